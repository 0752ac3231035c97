package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// memory holds a request and the parts that nearly every request needs. It is reused once nothing refers to it.
type memory struct {
	request   request
	stream    epp.Stream
	response  picker.Response
	answering answering
}

// newRequest returns an empty request.
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

// carries sets the function that carries out the effects of the Response.
func (a *answering) carries() { a.carry = func(i int) { a.do(&a.fx.List[i]) } }

// newAnswering returns the request's answering at its model server.
func (r *request) newAnswering() *answering {
	if r.memory != nil && r.at == nil {
		r.at = &r.memory.answering
	} else {
		r.at = new(answering)
		r.at.carries()
	}
	r.at.r, r.at.class = r, machine.ClassArrival // a delayed request arrives at the server then
	return r.at
}

// keep returns a copy of a piece of the answer that stays valid on its way.
func (a *answering) keep(p described.Piece) *described.Piece {
	x := new(described.Piece)
	if a.one.used < len(a.one.pieces) {
		x = &a.one.pieces[a.one.used]
		a.one.used++
	}
	*x = p
	return x
}

// recycle reuses the memory of requests that have ended, between events. It skips requests that parts may still refer
// to.
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

// isDone reports whether a request has ended with a whole answer, and no message or engine refers to it.
func (r *request) isDone() bool {
	a := &r.memory.answering
	return (r.picker == nil || !r.picker.paused) &&
		r.whole && r.at == a && a.resp.Over() && !a.updated && a.p.Gone == "" && a.p.Kept == nil &&
		len(a.p.Choices) == 1 && a.p.Choices[0].Finished && !a.p.Choices[0].Aborted &&
		r.sidecar == nil && r.pool.kv == nil && r.modes().limit == 0 && r.stream.Result() != stream.Running &&
		r.ways.up.busy+r.ways.upBehind.busy+r.ways.downBehind.busy+r.ways.down.busy == 0
}
