package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// arrive prepares a request and admits it, unless plug-ins need answers first.
func (m *Machine) arrive(r *Request) {
	if r.state == ended { // its stream ended before its Arrive
		m.unlink(r)
		m.emit(Effect{Kind: Decided, Request: r})
		return
	}
	r.ArrivedAt = m.now
	m.link(r)
	needs, err := m.p.Prepare(m.now, r.Request)
	switch {
	case err != nil:
		m.refuse(r, err)
	case len(needs) > 0:
		r.Needs, r.state = needs, asking
		m.emit(Effect{Kind: Ask, Request: r})
	default:
		m.admit(r)
	}
}

func (m *Machine) answered(r *Request, answers []picker.Answer) {
	if !r.Asking() && r.state != following {
		return
	}
	r.Answers = append(r.Answers, answers...)
	switch r.state {
	case asking:
		m.callsFailed(r, answers)
		m.admit(r)
	case consulting:
		m.callsFailed(r, answers)
		m.choose(r)
	}
}

// leave ends a request whose client left. Flow control ends the requests that it holds.
func (m *Machine) leave(r *Request) {
	switch r.state {
	case arriving, asking, following, consulting:
		m.refuse(r, flowcontrol.EvictedContextCancelled.Refusal(false))
		m.placed(r)
	case queued:
		m.flow(flowcontrol.Gone{ID: r.number})
	}
}

// admit passes a request to flow control, or places it.
func (m *Machine) admit(r *Request) {
	if m.c.Follows {
		r.state = following
		return
	}
	if m.fc == nil || r.Body == nil {
		m.place(r)
		return
	}
	m.numbers++
	r.number, r.state = m.numbers, queued
	r.evictable = m.evicts && r.Objective.Priority < 0
	m.queue[r.number] = r
	entered, from := Effect{Kind: Queued, Request: r}, len(m.flowFx.List)
	m.fc.Input(m.now, flowcontrol.Arrive{ID: r.number, Priority: r.Objective.Priority, FairnessID: r.FairnessID,
		Bytes: int64(r.SizeBytes), Tokens: int64(r.Tokens), Most: r.MaxWait,
		TTFT: machine.Time(r.TTFTMs * float64(machine.Millisecond))}, &m.flowFx)
	for _, e := range m.flowFx.List[from:] {
		if e.Kind == flowcontrol.Decided && e.ID == r.number {
			entered.Flow = e
		}
	}
	m.emit(entered)
	m.play()
}

// flow passes a message to flow control, if there is any, and applies its effects.
func (m *Machine) flow(msg flowcontrol.Message) {
	if m.fc != nil {
		m.fc.Input(m.now, msg, &m.flowFx)
		m.play()
	}
}

// loadOf reports to flow control the new load of the endpoints that a decision's profiles chose first.
func (m *Machine) loadOf(d *picker.Decision) {
	view := m.p.Pool().View()
	switch {
	case m.fc == nil:
		return
	case d == nil || d.View != view: // the places may belong to other endpoints now
		m.loads()
		return
	}
	for i := range d.Profiles {
		if p := &d.Profiles[i]; p.Ok() {
			m.load(int(p.Picked[0]))
		}
	}
	m.play()
}

// load reports one endpoint's load to flow control.
func (m *Machine) load(endpoint int) {
	l := plugins.Load(m.p, &m.p.Pool().View().States[endpoint])
	m.fc.Input(m.now, flowcontrol.LoadChanged{Endpoint: endpoint, Load: l}, &m.flowFx)
}

// loads reports the pool's present loads to flow control.
func (m *Machine) loads() {
	if m.fc != nil {
		m.flow(flowcontrol.Pool{Loads: plugins.Loads(m.p, m.p.Pool().View())})
	}
}

// play applies flow control's effects. Effects that follow from them join the list, so that the loop grows and not the
// stack.
func (m *Machine) play() {
	if m.playing {
		return
	}
	m.playing = true
	i := 0
	defer func() { // after a panic of our own, the next message applies the rest
		m.flowFx.List = m.flowFx.List[:copy(m.flowFx.List, m.flowFx.List[i:])]
		m.playing = false
	}()
	for i < len(m.flowFx.List) {
		e := m.flowFx.List[i]
		i++
		m.carryOut(&e)
	}
}

func (m *Machine) carryOut(e *flowcontrol.Effect) {
	r := m.queue[e.ID]
	switch e.Kind {
	case flowcontrol.RevocationConfirmed, flowcontrol.RevocationTimedOut:
		m.emit(Effect{Kind: Revoked, Request: r, Flow: *e})
		return
	}
	if r == nil {
		return
	}
	if e.Kind == flowcontrol.Evict {
		m.evicted = true
		m.emit(Effect{Kind: Revoked, Request: r, Flow: *e})
		m.emit(Effect{Kind: Evict, Request: r})
		return
	}
	m.emit(Effect{Kind: Left, Request: r, Flow: *e})
	r.admission = e.Admission()
	if err := e.Refusal(); err != nil {
		delete(m.queue, e.ID)
		m.remember(&picker.Decision{Request: r.Request, View: m.p.Pool().View(), At: m.now, Primary: -1, Saturation: -1,
			Err: err, Admission: r.admission})
		m.refuse(r, err)
		return
	}
	m.place(r)
}

// placed reports to flow control how a request that it released was placed.
func (m *Machine) placed(r *Request) {
	if r.number == 0 {
		return
	}
	m.flow(flowcontrol.Placed{ID: r.number})
	if r.Err != nil {
		delete(m.queue, r.number)
		m.flow(flowcontrol.Done{ID: r.number})
	}
	m.loadOf(r.Decision)
}

// refuse ends a request without an endpoint.
func (m *Machine) refuse(r *Request, err *apierror.Error) {
	m.unlink(r)
	r.Err, r.state = err, ended
	m.emit(Effect{Kind: Decided, Request: r})
}

// place decides, unless plug-ins need answers about endpoints first.
func (m *Machine) place(r *Request) {
	if needs := m.p.Consult(m.now, r.Request, m.p.Pool().View(), r.Answers); len(needs) > 0 {
		r.Needs, r.state = needs, consulting
		m.emit(Effect{Kind: Ask, Request: r})
		return
	}
	m.choose(r)
}

// choose picks and commits. The request gets its answer even if a plug-in panics.
func (m *Machine) choose(r *Request) {
	if err := m.p.Guard(nil, func() { m.pick(r) }); err != nil {
		_ = m.p.Release(m.now, r.Decision) // the first error is the one to report
		m.refuse(r, err)
	}
	m.placed(r)
}

func (m *Machine) pick(r *Request) {
	kept, moved := m.affinity()
	began := m.p.Stopwatch()
	d := m.p.Pick(m.now, r.Request, m.p.Pool().View(), r.Answers, m.decisions.reuse())
	r.Decision, d.Admission = d, r.admission
	if d.Err == nil {
		d.Err = m.p.Commit(m.now, d)
		if d.Err != nil { // a plug-in panicked: the others release what they hold
			_ = m.p.Release(m.now, d) // the first error is the one to report
		}
	}
	d.Took = m.p.Stopwatch() - began
	r.Kept, r.Moved = m.affinity()
	r.Kept, r.Moved = r.Kept-kept, r.Moved-moved
	m.remember(d)
	if d.Err != nil {
		m.refuse(r, d.Err)
		return
	}
	r.state = decided
	m.describe(r)
	if m.observed != nil {
		m.observed.count(r, r.Dispatched(nil))
	}
	m.emit(Effect{Kind: Decided, Request: r})
}

// describe takes the details of a decision for the record, before scrapes change the endpoints that they explain.
func (m *Machine) describe(r *Request) {
	if m.c.Stream.Recorder != nil && !m.c.Stream.Brief {
		r.details = r.Decision.Recorded(m.c.Explain)
	}
}

// Follow gives a waiting request the decision that another picker made, nil for none. Before, it calls look with the
// decision that this Machine would have made in the state after all earlier decisions of the other picker
// (Config.Follows).
func (m *Machine) Follow(now machine.Time, r *Request, elsewhere *picker.Decision, fx *Effects,
	look func(*picker.Decision)) {
	m.Advance(now, fx)
	if r.state != following && !r.Asking() {
		return
	}
	m.fx = fx
	defer func() { m.fx = nil }()
	if elsewhere == nil || len(elsewhere.Profiles) == 0 && elsewhere.Err != nil {
		m.refuse(r, flowcontrol.EvictedOther.Refusal(false))
		return
	}
	d := m.p.Pick(m.now, r.Request, m.p.Pool().View(), r.Answers, nil)
	look(d)
	if elsewhere.Err != nil || !d.Follow(elsewhere) {
		m.refuse(r, flowcontrol.EvictedOther.Refusal(false))
		return
	}
	r.Decision, r.state = d, decided
	r.Err = m.p.Commit(m.now, d)
	m.describe(r)
}

// affinity returns how many requests stayed with their session's endpoint, and how many did not.
func (m *Machine) affinity() (kept, moved int64) {
	for _, a := range m.affine {
		_ = m.p.Guard(a, func() { // an error costs one metric
			hits, misses := a.Affinity()
			kept, moved = kept+hits, moved+misses
		})
	}
	return kept, moved
}

// early ends a request before its Arrive, which then reports the end.
func (r *Request) early() {
	r.Err, r.state = flowcontrol.EvictedContextCancelled.Refusal(false), ended
}

// done releases what a request held when its stream ended.
func (m *Machine) done(r *Request) {
	if r.state == arriving {
		r.early()
		if m.log != nil { // its Arrive may follow a snapshot
			m.link(r)
		}
		return
	}
	m.leave(r)
	if r.state != decided {
		return
	}
	m.unlink(r)
	r.state = ended
	m.respond(r, (*picker.Response).RunBodyHooks)
	m.checkPrediction(r)
	if m.observed != nil {
		m.observed.count(r, r.Ended(nil, m.now))
	}
	if err := m.p.Release(m.now, r.Decision); r.Err == nil {
		r.Err = err
	}
	if r.Err != nil && !r.ErrSent {
		m.emit(Effect{Kind: Failed, Request: r})
	}
	if !r.direct {
		defer m.decisions.forget(r.Decision)
	}
	if m.fc == nil || r.number == 0 {
		return
	}
	delete(m.queue, r.number)
	m.loadOf(r.Decision)
	done := flowcontrol.Done{ID: r.number}
	if r.Response != nil {
		done.PromptTokens, done.CompletionTokens = int64(r.Response.Usage.PromptTokens),
			int64(r.Response.Usage.CompletionTokens)
	}
	m.flow(done)
}
