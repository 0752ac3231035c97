package virtual

import "github.com/windtunnel/windtunnel/core/machine"

// limits are the deadlines of requests, in order of time: all clients have the same limit. The queue has one event, for
// the first deadline.
type limits struct {
	list  []deadline
	room  []deadline // the memory of list
	awake bool       // the event is in the queue
}

// deadline is the time limit of a request.
type deadline struct {
	at     machine.Time
	ref    *requestRef // the request,
	direct *direct     // or a direct one, if its sent is still number
	number int
}

// waits returns the request, or the direct one, that the deadline is for. Both are nil if it has ended.
func (x *deadline) waits() (*request, *direct) {
	d := x.direct
	switch {
	case d == nil:
		return x.ref.r, nil
	case d.sent != x.number:
		return nil, nil
	case d.ref != nil: // a request has replaced it
		return d.ref.r, nil
	case !d.inFlight:
		return nil, nil
	}
	return nil, d
}

// add adds the deadline of a request.
func (x *limits) add(w *world, d deadline) {
	x.forget()
	if len(x.list) == cap(x.list) && cap(x.room) > 2*len(x.list) { // most of room is before list
		x.list = x.room[:copy(x.room[:cap(x.room)], x.list)]
	}
	had := cap(x.list)
	if x.list = append(x.list, d); cap(x.list) > had {
		x.room = x.list[:0]
	}
	x.await(w)
}

// forget drops the first deadlines whose requests have ended.
func (x *limits) forget() {
	n := 0
	for ; n < len(x.list); n++ {
		if r, d := x.list[n].waits(); r != nil || d != nil {
			break
		}
		x.list[n] = deadline{}
	}
	x.list = x.list[n:]
}

func (x *limits) await(w *world) {
	if len(x.list) > 0 && !x.awake {
		x.awake = true
		w.queue.Push(x.list[0].at, machine.ClassAbort, event{kind: giveUp})
	}
}

// wake ends the requests whose deadline has come.
func (x *limits) wake(w *world) {
	x.awake = false
	for x.forget(); len(x.list) > 0 && x.list[0].at <= w.now; x.forget() {
		r, d := x.list[0].waits()
		if d != nil {
			r = d.becomes()
		}
		r.giveUp()
	}
	x.await(w)
}
