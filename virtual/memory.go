package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// memory is one request and what nearly every one needs. It is used again once
// nothing refers to it any more.
type memory struct {
	request   request
	stream    epp.Stream
	response  picker.Response
	answering answering
}

// newRequest is an empty request.
func (w *world) newRequest() *request {
	m := takeFrom(&w.memories)
	r := &m.request
	if r.slot.carry == nil {
		r.slot.carry = func(i int) { r.do(&r.fx.List[i]) }
		r.slot.carried = func() {
			if r.stream.Result() != stream.Running {
				r.slot.end()
			}
		}
		m.answering.carries()
	}
	r.w, r.memory, r.slot.class = w, m, machine.ClassTimer
	return r
}

// carries has a carry out what its Response says.
func (a *answering) carries() { a.carry = func(i int) { a.do(&a.fx.List[i]) } }

// newAnswering is the request's at its model server.
func (r *request) newAnswering() *answering {
	if r.memory != nil && r.at == nil {
		r.at = &r.memory.answering
	} else {
		r.at = new(answering)
		r.at.carries()
	}
	r.at.r, r.at.class = r, machine.ClassArrival // after a delay this is when it arrives, to the server
	return r.at
}

// keep keeps a piece of the answer for as long as it is on its way.
func (a *answering) keep(p described.Piece) *described.Piece {
	x := new(described.Piece)
	if a.one.told < len(a.one.pieces) {
		x = &a.one.pieces[a.one.told]
		a.one.told++
	}
	*x = p
	return x
}

// recycle takes back the memory of requests that have ended, now that nothing is
// being carried out. That of one of which something may still come is left alone.
func (w *world) recycle() {
	for i, r := range w.ending {
		w.ending[i] = nil
		if !r.isDone() {
			continue
		}
		m, a := r.memory, &r.memory.answering
		a.s.forgets(a)
		r.slot.end()
		a.end()
		carry, carried, answers, effects := r.slot.carry, r.slot.carried, a.carry, r.fx.List[:0]
		m.request, *a = request{}, answering{}
		r.slot.carry, r.slot.carried, a.carry, r.fx.List = carry, carried, answers, effects
		w.memories = append(w.memories, m)
	}
	w.ending = w.ending[:0]
}

// isDone says that a request has ended as most do, with the whole of an answer,
// and that nothing under way or in an engine knows of it.
func (r *request) isDone() bool {
	a := &r.memory.answering
	return r.whole && r.at == a && a.resp.Over() && !a.news && a.p.Gone == "" && a.p.Kept == nil &&
		len(a.p.Choices) == 1 && a.p.Choices[0].Finished && !a.p.Choices[0].Aborted &&
		r.sidecar == nil && r.pool.kv == nil && r.modes().limit == 0 && r.stream.Result() != stream.Running &&
		r.ways.up.busy+r.ways.upBehind.busy+r.ways.downBehind.busy+r.ways.down.busy == 0
}
