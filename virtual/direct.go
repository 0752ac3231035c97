package virtual

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// direct is a request for which only the picker and the engine decide anything. Most requests are direct if no recorder
// reads their steps. It has four events: at the picker, at the model server, and the end of the answer at the EPP and
// at the client. The results equal those of a request that takes every step. A direct request that needs the steps
// after all becomes such a request (docs/design.md, "Direct requests").
type direct struct {
	workload.Request
	w            *world
	pool         *pool
	picker       *picking
	conversation *workload.Conversation
	ways         ways
	life         record.Life
	number       uint64 // of the request at the picker
	sent         int    // of the request among all sent ones
	picked       epp.Direct
	server       *server
	asked        computed
	leg          *legs // nil without a sidecar
	updated      bool  // server.notify will report the engine's progress
	inFlight     bool
	place        int          // in world.directs
	ref          *requestRef  // the request that has replaced it
	due          machine.Time // time of its event in the queue
	before       way          // ways.down before the first piece of the answer
	head         [6]header.Header
}

// computed is a direct request, or its prefill leg, at a model server.
type computed struct {
	modelserver.Direct
	d *direct
}

// mayBeDirect reports whether every part of the pool supports direct requests.
func (x *pool) mayBeDirect() bool {
	unread := x.w.rec == nil || x.w.lives != nil // the recorder does not read steps
	lasts := x.replicaSets == nil && !x.w.troubled
	return unread && lasts && x.Picked() && !x.verbose && x.predicting == nil && x.modes.direct() &&
		!x.Faults.Strike() && !slices.ContainsFunc(x.pickers, func(k *picking) bool { return !k.direct() }) &&
		!slices.ContainsFunc(x.servers, func(sv *server) bool { return !sv.direct() })
}

// direct reports whether Envoy passes responses on without waiting for their end or for the picker.
func (m *modes) direct() bool { return m.response == stream.FullDuplex && m.limit == 0 }

// direct reports whether the picker decides at once, without a stream.
func (k *picking) direct() bool { return k.m.Direct() && k.service == nil }

// direct reports whether the server, and its sidecar, support requests without a Response, which any equal server may
// read.
func (s *server) direct() bool {
	first := s.pool.first(s.Prefills())
	return s.core.Direct(s.w.limit) && s.reader.ReadsAs(&first.reader) &&
		(s.sidecar == nil || s.sidecar.config.Direct())
}

// first returns the first server that only prefills, or the first one that answers clients.
func (x *pool) first(prefills bool) *server {
	if prefills {
		return x.servers[x.Decoders]
	}
	return x.servers[0]
}

// acting are headers with an effect on the way of a request.
var acting = slices.Concat(modelserver.Acting, disagg.Acting,
	[]string{"content-type", "x-request-id", picker.HeaderDestination})

// sendDirect sends a request as a direct one, if it may be.
func (x *pool) sendDirect(v *workload.Conversation, q *workload.Request) bool {
	w := x.w
	if _, leaves := w.load.Leaves(q.Index); leaves || !q.IsDescribed() || q.GRPC {
		return false
	}
	for _, name := range acting {
		if len(q.Header) > 0 && q.Header.Get(name) != "" {
			return false
		}
	}
	d := w.spareDirect()
	d.Request, d.conversation, d.pool = *q, v, x
	api := modelserver.APIOf(q.Path)
	if api == nil || !d.asked.Read(&x.servers[0].reader, d.reads(), api, &d.Described, modelserver.Whole,
		w.rec != nil) {
		w.freeDirects = append(w.freeDirects, d)
		return false
	}
	d.inFlight = true
	w.sent++
	d.picker = x.picker()
	d.picker.number++
	d.number, d.sent = d.picker.number, w.sent
	if w.timeout > 0 {
		w.limits.add(w, deadline{at: w.now.Add(w.timeout), direct: d, number: d.sent})
	}
	d.life = record.Life{Request: q.ID, Number: q.Index + 1, Class: q.Class, SLO: q.SLO, Sent: w.now,
		Prompt: d.asked.PromptTokens(),
		Picked: machine.Never, Reached: machine.Never, Started: machine.Never, First: machine.Never,
		FirstSeen: machine.Never, FirstGot: machine.Never,
		Last: machine.Never, LastSeen: machine.Never, LastGot: machine.Never}
	if w.lives != nil {
		w.lives.Sending(w.now, 1)
	}
	d.ways, d.leg = w.hops.open(q.ID, 0), nil
	d.before = d.ways.down
	d.schedule(d.ways.up.passes(w.now, &w.hops.first), decides)
	return true
}

// reads returns the Head for reading the request. All requests share it.
func (d *direct) reads() *modelserver.Head {
	h := &d.w.reading
	h.RequestID, h.Attempt, h.Scratch = d.ID, 1, &d.w.chat
	return h
}

// spareDirect returns one that is not in flight.
func (w *world) spareDirect() *direct {
	if n := len(w.freeDirects); n > 0 {
		d := w.freeDirects[n-1]
		w.freeDirects = w.freeDirects[:n-1]
		return d
	}
	d := &direct{w: w, place: len(w.directs)}
	d.asked.d = d
	w.directs = append(w.directs, d)
	return d
}

// passes returns the arrival of a message that leaves now.
func (on *way) passes(now machine.Time, by *route) machine.Time {
	on.until = max(on.until, now.Add(by.takes(&on.draw)))
	return on.until
}

// schedule plays an event of the request at a time, which may be now.
func (d *direct) schedule(at machine.Time, what kind) {
	if d.due = at; at > d.w.now {
		d.w.queue.Push(at, machine.ClassArrival, event{what, d})
		return
	}
	d.w.play(event{what, d})
}

// decide hands the request to the picker.
func (d *direct) decide() {
	w := d.w
	d.life.Picked = w.now
	head := w.clientHead(d.head[:0], &d.Request).Normalize()
	if !d.picked.Arrive(d.picker.m, d.picker, head, &d.Described, d.number, d) {
		d.takeSteps(false)
	}
}

// decided follows the picker's decision.
func (d *direct) decided() {
	w := d.w
	to, ok := d.picked.To()
	if !ok {
		d.takeSteps(true)
		return
	}
	d.server = d.pool.byAddr[to]
	// several servers, or a sidecar that has to decide
	if d.server == nil || d.server.sidecar != nil && !d.takesLegs() {
		d.takeSteps(true)
		return
	}
	d.life.Endpoint = d.server.endpoint
	d.ways.upBehind.passes(w.now, &w.hops.server) // the headers
	for left := d.Len(); left > stream.MaxChunkBytes; left -= stream.MaxChunkBytes {
		d.ways.upBehind.passes(w.now, &w.hops.server)
	}
	d.schedule(d.ways.upBehind.passes(w.now, &w.hops.server), enters)
}

// takeSteps replaces the request, at the EPP, by one that takes every step. decided reports whether the picker has
// decided about it.
func (d *direct) takeSteps(decided bool) {
	d.life.Picked = machine.Never // the other request records it
	r := d.retire()
	if r.direct = decided; decided {
		d.picked.Owner = r
		r.stream.Adopt(&d.picked)
	}
	r.beginAtEPP()
}

// beginAtEPP handles the client's headers and body at the EPP now.
func (r *request) beginAtEPP() {
	m := message{r: r, head: r.w.clientHead(nil, &r.Request).Normalize()}
	m.begun()
}

// retire records the events of the request so far, and returns the request that replaces it. The direct is not reused,
// because the picker may still refer to it.
func (d *direct) retire() *request {
	w, r := d.w, d.w.newRequest()
	d.recordEvents()
	r.conversation, r.Request, r.ways, r.pool = d.conversation, d.Request, d.ways, d.pool
	r.stream = &r.memory.stream
	r.attach(d.picker, d.number)
	r.slot.open(w, r.stream, &r.fx, r.slot.carry)
	if d.inFlight = false; w.timeout > 0 {
		r.ref = &requestRef{r}
		d.ref = r.ref
	}
	d.forget()
	return r
}

// forget removes the direct from the list of all.
func (d *direct) forget() {
	w := d.w
	last := w.directs[len(w.directs)-1]
	w.directs[d.place], last.place = last, d.place
	w.directs = w.directs[:len(w.directs)-1]
}

// recordEvents records the events of the request so far, in place of a Life.
func (d *direct) recordEvents() {
	w := d.w
	if w.lives == nil {
		return
	}
	w.lives.Sending(w.now, -1)
	for e := range d.life.Events {
		if e.Time <= w.now {
			w.rec.Record(e)
		}
	}
}

// past is the history of a direct request while the request that replaces it replays the same steps, unrecorded.
type past struct{ d *direct }

// becomes replaces the request, at any point of its way, by one that takes every step. No effect of the request may be
// under way on the call stack.
func (d *direct) becomes() *request {
	w, l, x := d.w, &d.life, &d.asked
	r := d.retire()
	if l.FirstSeen > w.now {
		r.ways.down = d.before
	}
	if leg := d.leg; leg != nil && x.Streams && l.First != machine.Never && leg.life.FirstSeen > w.now {
		r.ways.downBehind = leg.before
	}
	if w.mute != nil {
		w.mute.off = true
		defer func() { w.mute.off = false }()
	}
	if l.Picked == machine.Never {
		w.due(d.due, &r.ways.up,
			message{do: (*message).begun, r: r, head: w.clientHead(nil, &r.Request).Normalize()})
		return r
	}
	r.past, r.direct = &past{d}, true
	d.picked.Owner = r
	r.stream.Adopt(&d.picked)
	r.beginAtEPP()
	if p := r.sidecar; p != nil {
		for id := 1; p.legs[id] != nil; id++ {
			d.leg.of(p.legs[id]).replay(p.legs[id].sub.at)
		}
	} else {
		x.replay(r.at)
	}
	r.past = nil
	return r
}

// replay reports the engine's progress so far to the answering that replaces x.
func (x *computed) replay(a *answering) {
	if a == nil {
		return
	}
	first, last := x.reported()
	p, leg := &a.p, x.d.leg
	p.Started, p.StartedAt, p.Cached = x.StartedAt != machine.Never, x.StartedAt, x.Cached
	if leg != nil && x == &x.d.asked {
		p.Fetched, p.FetchedBytes = leg.life.Fetched, leg.life.FetchedBytes
	}
	if h := x.Sequence.Hold; h != nil {
		p.Kept = &modelserver.Kept{Host: a.s.host(), Port: a.s.pool.SideChannel, Hold: h}
	}
	if first {
		p.Choices[0].Tokens = 1
	}
	a.input(p)
	if last {
		p.Choices[0] = modelserver.Choice{Tokens: x.Tokens, Finished: true, Reason: x.Reason}
		a.input(p)
	}
}

// passes delivers a message at once if the direct request's had arrived, and otherwise at the same time as that one.
func (p *past) passes(on *way, m message) {
	d, now, l := p.d, p.d.w.now, &p.d.life
	at, arrived := d.due, false
	switch on {
	case &m.r.ways.upBehind:
		if arrived = l.Reached != machine.Never; d.leg != nil {
			arrived = d.leg.life.Reached != machine.Never
		}
	case &m.r.ways.downBehind:
		if arrived = l.LastSeen != machine.Never; !m.end {
			at, arrived = l.FirstSeen, l.FirstSeen <= now
		}
	case &m.r.ways.down:
		if !m.end {
			at, arrived = l.FirstGot, l.FirstGot <= now
		}
	}
	if !arrived {
		d.w.due(at, on, m)
		return
	}
	m.do(&m)
}

// due delivers a message at a time.
func (w *world) due(at machine.Time, on *way, m message) {
	on.busy++
	under := takeFrom(&w.messages)
	m.on = on
	*under = m
	w.queue.Push(at, machine.ClassArrival, event{arrives, under})
}

// enter takes the request, or a leg of it, at its model server.
func (d *direct) enter() {
	if d.leg != nil && d.leg.enter() {
		return
	}
	d.life.Reached = d.w.now
	d.asked.submit(d.server)
}

func (x *computed) submit(to *server) {
	x.Sequence.Owner = x
	to.input(enginecore.Submit{Sequence: &x.Sequence.Sequence})
}

// applyEffect takes the engine's effect on it. For an effect that does not occur in the life of a whole answer, a
// request that takes every step replaces it, and applyEffect returns that request's sequence.
func (x *computed) applyEffect(s *server, f *engine.Effect) *sequence {
	d := x.d
	if !x.ApplyEffect(f) {
		r := d.becomes()
		if r.sidecar == nil {
			return &r.at.one.sequence
		}
		return &r.sidecar.legs[d.leg.idOf(x)].sub.at.one.sequence
	}
	if !d.updated {
		d.updated = true
		s.updated = append(s.updated, d)
	}
	return nil
}

// engineUpdated sends the pieces of the answer that the engine has made.
func (d *direct) engineUpdated() {
	w, l, x, leg := d.w, &d.life, &d.asked, d.leg
	d.updated = false
	if !d.inFlight || leg != nil && leg.prefillUpdated() {
		return
	}
	l.Started, l.Cached = x.StartedAt, x.Cached
	if x.FirstAt != machine.Never && l.First == machine.Never {
		if l.First = w.now; x.Streams {
			at := w.now
			if leg != nil {
				leg.before, leg.life.FirstSeen = d.ways.downBehind, leg.answers()
				at = leg.life.FirstSeen
			}
			l.FirstSeen = d.ways.downBehind.passes(at, &w.hops.client)
			d.before = d.ways.down
			l.FirstGot = d.ways.down.passes(l.FirstSeen, &w.hops.server)
		}
	}
	if x.EndedAt != machine.Never {
		l.Last, l.Tokens = w.now, x.Tokens
		if leg != nil {
			d.schedule(leg.answers(), seesEnd)
			return
		}
		d.schedule(d.ways.downBehind.passes(w.now, &w.hops.client), seesEnd)
	}
}

// seesEnd takes the answer's end at the EPP.
func (d *direct) seesEnd() {
	w, l := d.w, &d.life
	if d.leg != nil && d.leg.seesEnd() {
		return
	}
	l.LastSeen = w.now
	if !d.asked.Streams {
		l.FirstSeen = w.now
	}
	d.picker.Input(epp.Done{Request: &d.picked.Request})
	d.schedule(d.ways.down.passes(w.now, &w.hops.server), getsEnd)
}

// getsEnd takes the answer's end at the client.
func (d *direct) getsEnd() {
	w, l := d.w, &d.life
	l.LastGot = w.now
	if !d.asked.Streams {
		l.FirstGot = w.now
	}
	if w.lives != nil {
		w.lives.Lived(l)
	}
	v, think := d.conversation, machine.Time(0)
	if v.More() {
		if said, ok := d.asked.Said(); ok {
			think = v.NextDescribed(said, l.Outcome())
		} else {
			think = v.Next(d.asked.Text(), l.Outcome())
		}
	} else {
		w.talks, v = append(w.talks, v), nil
	}
	d.picked.Over()
	if d.inFlight, d.conversation = false, nil; d.leg == nil || d.leg.left() {
		w.freeDirects = append(w.freeDirects, d)
	} else {
		d.forget()
	}
	w.next(v, think)
}

// interrupted records the events of the direct requests in flight.
func (w *world) interrupted() {
	for _, d := range w.directs {
		if d.inFlight {
			d.recordEvents()
		}
	}
}

// play plays the next event of the request, unless another request has replaced it.
func (d *direct) play(what kind) {
	switch {
	case !d.inFlight:
	case what == decides:
		d.decide()
	case what == enters:
		d.enter()
	case what == seesEnd:
		d.seesEnd()
	default:
		d.getsEnd()
	}
}

// mute is a recorder that can be switched off.
type mute struct {
	record.Recorder
	off bool
}

// Record implements record.Recorder.
func (m *mute) Record(e record.Event) {
	if !m.off {
		m.Recorder.Record(e)
	}
}
