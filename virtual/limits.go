package virtual

import "github.com/windtunnel/windtunnel/core/machine"

// limits are the clients' time limits, in the order in which they end: all are as
// long. There is one event in the queue for the first of them.
type limits struct {
	list  []deadline
	room  []deadline // that list is in
	awake bool
}

// deadline is the end of one request's.
type deadline struct {
	at     machine.Time
	alarm  *alarm  // of the request,
	direct *direct // or of a direct one, if it still is the one that was sent with this number
	number int
}

// waits is whose limit it is: a request, or a direct one. Both are nil where it has ended.
func (x *deadline) waits() (*request, *direct) {
	d := x.direct
	switch {
	case d == nil:
		return x.alarm.r, nil
	case d.sent != x.number:
		return nil, nil
	case d.alarm != nil: // another one has taken its place
		return d.alarm.r, nil
	case !d.flies:
		return nil, nil
	}
	return nil, d
}

// add is told of a request that is sent.
func (x *limits) add(w *world, d deadline) {
	x.forget()
	if len(x.list) == cap(x.list) && cap(x.room) > 2*len(x.list) { // most of the room is behind those that are over
		x.list = x.room[:copy(x.room[:cap(x.room)], x.list)]
	}
	had := cap(x.list)
	if x.list = append(x.list, d); cap(x.list) > had {
		x.room = x.list[:0]
	}
	x.await(w)
}

// forget forgets the first as far as their requests have ended.
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

// wake gives up those whose time has come.
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
