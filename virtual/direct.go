package virtual

import (
	"slices"
	"strconv"

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

// direct is a request about which nothing is decided but where it goes and when
// it is computed: as nearly all are where nothing looks at them on their way. Its
// four events are those at which somebody else may be concerned. Everything comes out as
// for a request that takes every step; one that turns out to need them goes on as
// such.
type direct struct {
	workload.Request
	w            *world
	pool         *pool
	picker       *picking // of the pool's
	conversation *workload.Conversation
	ways         ways
	life         record.Life
	number       uint64 // the picker's
	sent         int    // of all that were sent, which one
	picked       epp.Direct
	server       *server
	asked        computed
	leg          *legs // through a sidecar; nil: there is none
	news         bool  // of the engine, not told yet
	flies        bool
	place        int          // in world.directs
	alarm        *alarm       // of the request that has taken its place
	due          machine.Time // of its event in the queue
	before       way          // what the answer takes to the client, before any of it went there
	head         [6]header.Header
}

// computed is what a model server has of one.
type computed struct {
	modelserver.Direct
	d *direct
}

// mayBeDirect says whether requests to the pool may be direct: as far as each part of it says so.
func (x *pool) mayBeDirect() bool {
	told := x.w.rec == nil || x.w.lives != nil // nobody wants their steps
	lasts := x.fleets == nil && len(x.Incidents) == 0
	return told && lasts && x.Picked() && !x.verbose && x.predicting == nil && x.modes.direct() && !x.Faults.Strike() &&
		!slices.ContainsFunc(x.pickers, func(k *picking) bool { return !k.direct() }) &&
		!slices.ContainsFunc(x.servers, func(sv *server) bool { return !sv.direct() })
}

// direct says whether requests may pass that nobody shows the picker whole.
func (m *modes) direct() bool { return m.response == stream.FullDuplex && m.limit == 0 }

// direct says whether the picker takes requests that need no stream, and at once.
func (k *picking) direct() bool { return k.m.Direct() && k.service == nil }

// direct says whether the server, and the sidecar before it, takes requests that need no
// Response, whoever of those alike reads them.
func (s *server) direct() bool {
	first := s.pool.first(s.Prefills())
	return s.core.Direct(s.w.limit) && s.reader.ReadsAs(&first.reader) &&
		(s.sidecar == nil || s.sidecar.config.Direct())
}

// first is the first server that prefills for others, or that answers clients.
func (x *pool) first(prefills bool) *server {
	if prefills {
		return x.servers[x.Decoders]
	}
	return x.servers[0]
}

// acting are headers that do something on the way of a request, or at its end.
var acting = slices.Concat(modelserver.Acting, disagg.Acting,
	[]string{"content-type", "x-request-id", picker.HeaderDestination})

// sendDirect sends a request, if it may be direct.
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
		w.spares = append(w.spares, d)
		return false
	}
	d.flies = true
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
	d.goes(d.ways.up.passes(w.now, &w.hops.first), decides)
	return true
}

// reads is what the request is read with, one at a time.
func (d *direct) reads() *modelserver.Head {
	h := &d.w.reading
	h.RequestID, h.Attempt, h.Scratch = d.ID, 1, &d.w.chat
	return h
}

// spareDirect is one that is not in flight.
func (w *world) spareDirect() *direct {
	if n := len(w.spares); n > 0 {
		d := w.spares[n-1]
		w.spares = w.spares[:n-1]
		return d
	}
	d := &direct{w: w, place: len(w.directs)}
	d.asked.d = d
	w.directs = append(w.directs, d)
	return d
}

// passes is when what leaves at a time arrives.
func (on *way) passes(now machine.Time, by *route) machine.Time {
	on.until = max(on.until, now.Add(by.takes(&on.draw)))
	return on.until
}

// goes has something happen at a time, which may be now.
func (d *direct) goes(at machine.Time, what kind) {
	if d.due = at; at > d.w.now {
		d.w.queue.Push(at, machine.ClassArrival, event{what, d})
		return
	}
	d.w.play(event{what, d})
}

// headers are those that the client sends.
func (d *direct) headers() header.List {
	h := append(d.head[:0], header.Header{Name: ":method", Value: "POST"}, header.Header{Name: ":path", Value: d.Path},
		header.Header{Name: "content-type", Value: jsonType}, header.Header{Name: "x-request-id", Value: d.ID})
	if !d.w.chunked {
		h = append(h, header.Header{Name: "content-length", Value: strconv.Itoa(d.Len())})
	}
	return append(h, d.Header...)
}

// decide is the request at the EPP.
func (d *direct) decide() {
	w := d.w
	d.life.Picked = w.now
	if !d.picked.Arrive(d.picker.m, d.picker, d.headers().Normalize(), &d.Described, d.number, d) {
		d.takeSteps(false)
	}
}

// decided is told of the picker's decision.
func (d *direct) decided() {
	w := d.w
	to, ok := d.picked.To()
	if !ok {
		d.takeSteps(true)
		return
	}
	d.server = d.pool.byAddr[to]
	if d.server == nil || d.server.sidecar != nil && !d.takesLegs() { // several, one for another
		d.takeSteps(true)
		return
	}
	d.life.Endpoint = d.server.endpoint
	d.ways.upBehind.passes(w.now, &w.hops.server) // the headers
	for left := d.Len(); left > stream.MaxChunkBytes; left -= stream.MaxChunkBytes {
		d.ways.upBehind.passes(w.now, &w.hops.server)
	}
	d.goes(d.ways.upBehind.passes(w.now, &w.hops.server), enters)
}

// takeSteps has the request go on as one that takes every step, from where it is at the
// EPP; decided says that it is.
func (d *direct) takeSteps(decided bool) {
	d.life.Picked = machine.Never // it will be told
	r := d.retire()
	if r.direct = decided; decided {
		d.picked.Owner = r
		r.stream.Adopt(&d.picked)
	}
	m := message{r: r, head: r.head().Normalize()}
	m.begun()
}

// retire tells the events of the request up to now, and has one take its place that takes
// every step. It is used no more: the picker may go on looking at what is in it.
func (d *direct) retire() *request {
	w, r := d.w, d.w.newRequest()
	d.tell()
	r.conversation, r.Request, r.ways, r.pool = d.conversation, d.Request, d.ways, d.pool
	r.stream = &r.memory.stream
	r.attach(d.picker, d.number)
	r.slot.open(w, r.stream, &r.fx, r.slot.carry)
	if d.flies = false; w.timeout > 0 {
		r.alarm = &alarm{r}
		d.alarm = r.alarm
	}
	d.forget()
	return r
}

// forget has it used no more.
func (d *direct) forget() {
	w := d.w
	last := w.directs[len(w.directs)-1]
	w.directs[d.place], last.place = last, d.place
	w.directs = w.directs[:len(w.directs)-1]
}

// tell tells the events of the request up to now, instead of a life.
func (d *direct) tell() {
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

// past is what has happened to a request that took no steps, while it takes those that
// it would have taken, without a word.
type past struct{ d *direct }

// becomes has the request go on as one that takes every step, wherever it is, and
// whatever is under way. Nothing of it is carried out just now.
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
	head := r.head().Normalize()
	if l.Picked == machine.Never {
		w.due(d.due, &r.ways.up, message{do: (*message).begun, r: r, head: head})
		return r
	}
	r.past, r.direct = &past{d}, true
	d.picked.Owner = r
	r.stream.Adopt(&d.picked)
	m := message{r: r, head: head}
	m.begun()
	switch p := r.sidecar; {
	case p != nil:
		for id := 1; p.legs[id] != nil; id++ {
			if x := d.leg.of(p.legs[id]); x != nil {
				x.tells(p.legs[id].sub.at, d.leg.first(x), d.leg.last(x))
			}
		}
	default:
		x.tells(r.at, l.First != machine.Never, l.Last != machine.Never)
	}
	r.past = nil
	return r
}

// tells has what takes its place hear what the model server has said of it; first and last
// are whether its first token and its end were told.
func (x *computed) tells(a *answering, first, last bool) {
	if a == nil {
		return
	}
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

// passes has a message arrive at once that has arrived, or when it does.
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

// due has a message arrive at a time.
func (w *world) due(at machine.Time, on *way, m message) {
	on.busy++
	under := takeFrom(&w.messages)
	m.on = on
	*under = m
	w.queue.Push(at, machine.ClassArrival, event{arrives, under})
}

// enter is the whole request at its model server, or a leg of it.
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

// hear takes what the engine of its server says of it. Where that is not how a request goes
// that is answered wholly, one that takes every step goes on with it: that one hears it.
func (x *computed) hear(s *server, f *engine.Effect) *sequence {
	d := x.d
	if !x.Hear(f) {
		r := d.becomes()
		if r.sidecar == nil {
			return &r.at.one.sequence
		}
		return &r.sidecar.legs[d.leg.idOf(x)].sub.at.one.sequence
	}
	if !d.news {
		d.news = true
		s.news = append(s.news, d)
	}
	return nil
}

// told has the answer leave, as far as it is there.
func (d *direct) told() {
	w, l, x, leg := d.w, &d.life, &d.asked, d.leg
	d.news = false
	if !d.flies || leg != nil && leg.told() {
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
			d.goes(leg.answers(), seesEnd)
			return
		}
		d.goes(d.ways.downBehind.passes(w.now, &w.hops.client), seesEnd)
	}
}

// seesEnd is the answer's end at the EPP.
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
	d.goes(d.ways.down.passes(w.now, &w.hops.server), getsEnd)
}

// getsEnd is the answer's end at the client.
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
	if d.flies, d.conversation = false, nil; d.leg == nil || d.leg.left() {
		w.spares = append(w.spares, d)
	} else {
		d.forget()
	}
	w.next(v, think)
}

// interrupted tells of requests in flight what has happened to them.
func (w *world) interrupted() {
	for _, d := range w.directs {
		if d.flies {
			d.tell()
		}
	}
}

// play is what happens to the request next, unless another one has taken its place.
func (d *direct) play(what kind) {
	switch {
	case !d.flies:
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

// mute is a recorder that may be told to listen no more.
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
