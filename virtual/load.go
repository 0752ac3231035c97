package virtual

import (
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/response"
	"github.com/windtunnel/windtunnel/core/workload"
)

// arrived begins the next conversation, or lets it wait for the limit.
func (w *world) arrived() {
	v := w.load.ConversationIn(takeFrom(&w.talks), w.conversations, w.planned)
	if v == nil {
		return
	}
	w.conversations++
	w.planned += v.Turns
	if w.load.Rate > 0 {
		w.awaitArrival()
		if w.flying >= w.limit {
			w.overdue = append(w.overdue, v)
			return
		}
	}
	w.flying++
	w.send(v)
}

// awaitArrival looks when the next conversation of an open loop arrives.
func (w *world) awaitArrival() {
	if w.planned >= w.load.Requests {
		return
	}
	at, more := w.arrivals.Next()
	if !more {
		w.planned = w.load.Requests // there are fewer
		return
	}
	w.queue.Push(at, machine.ClassArrival, event{kind: arrive})
}

// send is a conversation's next request.
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
	w.begin(r, v)
}

// begin begins a request of a conversation whose pool is known.
func (w *world) begin(r *request, v *workload.Conversation) {
	r.conversation = v
	if v.More() && r.pool.verbose {
		r.heard = response.NewReader(r.contentType())
		r.heard.Keep()
	}
	r.begin()
}

// poolOf is the pool that a request leads to. A model that no pool serves is not asked
// for.
func (w *world) poolOf(r *workload.Request) *pool {
	if len(w.pools) == 1 || r.GRPC { // a call names no model
		return w.pools[0]
	}
	return w.pools[w.routes[r.Model].Pool]
}

func (r *request) contentType() string {
	if r.conversation != nil && r.conversation.Streams() {
		return "text/event-stream"
	}
	return "application/json"
}

// hear keeps what the answer says, where the conversation goes on from it.
func (r *request) hear(body []byte) {
	if r.w.answers != nil {
		r.w.answers(r.ID, body)
	}
	if r.heard != nil {
		_, _ = r.heard.Write(body) // it never fails
	}
}

// ended is told when a request has its outcome. The conversation goes on, or
// makes room for the next one.
func (w *world) ended(r *request, o flow.Outcome) {
	if v := r.conversation; v.More() {
		var think machine.Time
		if r.heard != nil {
			r.heard.Close()
			think = v.Next(r.heard.Text(), o)
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

// next is told that a request has ended, and how long the user thinks before the
// next of its conversation, nil where there is none.
func (w *world) next(v *workload.Conversation, think machine.Time) {
	w.done++
	w.over = w.now
	if v != nil {
		w.queue.Push(w.now.Add(think), machine.ClassArrival, event{nextTurn, v})
		return
	}
	w.flying--
	switch {
	case len(w.overdue) > 0:
		v := w.overdue[0]
		w.overdue = w.overdue[1:]
		w.flying++
		w.send(v)
	case w.load.Rate == 0 && w.load.Until > 0 && w.now >= w.load.Until:
		w.planned = w.load.Requests // time is up
	case w.load.Rate == 0 && w.planned < w.load.Requests:
		w.queue.Push(w.now, machine.ClassArrival, event{kind: arrive})
	}
}
