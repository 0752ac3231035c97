package virtual

import (
	"github.com/windtunnel/windtunnel/core/load/response"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// arrived starts the next conversation, unless it waits for the limit.
func (w *world) arrived() {
	v, begins := w.loop.Arrived(takeFrom(&w.talks))
	if v == nil {
		return
	}
	if w.loop.Open() {
		w.awaitArrival()
	}
	if begins {
		w.send(v)
	}
}

// awaitArrival schedules the next arrival of an open loop.
func (w *world) awaitArrival() {
	if at, more := w.loop.Arrival(); more {
		w.queue.Push(at, machine.ClassArrival, event{kind: arrive})
	}
}

// send sends a conversation's next request.
func (w *world) send(v *workload.Conversation) {
	q := v.Request()
	if w.front != nil {
		w.front.send(v, q)
		return
	}
	p := w.poolOf(&q)
	if p.direct && p.sendDirect(v, &q) {
		return
	}
	r := w.newRequest()
	r.Request, r.pool = q, p
	w.sendTo(r, v)
}

// sendTo sends a request of a conversation to its pool.
func (w *world) sendTo(r *request, v *workload.Conversation) {
	r.conversation = v
	if v.More() && r.pool.verbose {
		r.answerText = response.NewReader(r.contentType())
		r.answerText.Keep()
	}
	r.send()
}

// poolOf returns the pool of a request. Workloads only ask for models that a pool serves.
func (w *world) poolOf(r *workload.Request) *pool {
	if len(w.pools) == 1 || r.GRPC { // a gRPC call names no model
		return w.pools[0]
	}
	return w.pools[w.routes[r.Model].Pool]
}

// ended continues the conversation of a request that has its outcome, or starts the next conversation.
func (w *world) ended(r *request, o record.Outcome) {
	if v := r.conversation; v.More() {
		var think machine.Time
		if r.answerText != nil {
			r.answerText.Close()
			think = v.Next(r.answerText.Text(), o)
		} else if r.said != "" {
			think = v.Next(r.said, o)
		} else {
			think = v.NextDescribed(r.words, o)
		}
		w.next(v, think)
		return
	}
	w.next(nil, 0)
}

// next counts the end of a request, and schedules the next turn of its conversation after the pause think, or the next
// conversation if v is nil.
func (w *world) next(v *workload.Conversation, think machine.Time) {
	w.done++
	w.over = w.now
	if v != nil {
		w.queue.Push(w.now.Add(think), machine.ClassArrival, event{nextTurn, v})
		return
	}
	switch begins, arrives := w.loop.Ended(w.now); {
	case begins != nil:
		w.send(begins)
	case arrives:
		w.queue.Push(w.now, machine.ClassArrival, event{kind: arrive})
	}
}
