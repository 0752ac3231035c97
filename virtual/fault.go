package virtual

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/serving"
)

// What goes wrong with single requests at their model servers. The order is
// that of a live server: the connection first, then the delay, then answers
// that come at once, then what happens while tokens are made.

// reached is told when a request can be read at its model server, which comes
// to it after the delay of a fault.
func (r *request) reached(bytes int) {
	r.payload, r.fault = bytes, r.w.faults.Of(r.ID, r.server.index)
	switch {
	case r.fault.Refuse, r.fault.Reset:
		r.session = nil // nothing was read
		r.cut("the connection was reset")
	case r.fault.Delay > 0:
		// To the server this is when it arrives.
		r.w.queue.Push(r.w.now.Add(machine.FromDuration(r.fault.Delay)), machine.ClassArrival, event{kind: afterFault, request: r})
	default:
		r.taken()
	}
}

// taken is the request at its model server, refused where a fault or the
// request itself says so.
func (r *request) taken() {
	now := r.w.now
	switch f := &r.fault; {
	case r.session.Ended(): // the client left during the delay
	case f.Status == 204 || f.Status == 304:
		r.session.Rejected(now, f.Status, fmt.Sprintf("A fault was asked for: status %d.", f.Status))
		r.respond(f.Status, nil, true)
	case f.Status != 0:
		r.do(r.session.Rejected(now, f.Status, fmt.Sprintf("A fault was asked for: status %d.", f.Status)))
	case f.NoBody:
		r.session.Rejected(now, 200, "A fault was asked for: no body.")
		r.respond(200, nil, true)
	default:
		r.asks().at(r.server)
		if bad := r.asks().fits(r.server.engine.Config().MaxModelLen); bad != nil {
			r.do(r.session.Rejected(now, bad.Status, bad.Message))
			return
		}
		r.do(r.session.Received(now, r.payload, r.receivedDetails()...))
	}
}

// prefilling is told when the engine begins the prompt. What dies then does so
// after the engine has told all that it began in that step.
func (r *request) prefilling() {
	if r.fault.DieInPrefill {
		r.w.queue.Push(r.w.now, machine.ClassTimer, event{kind: die, request: r})
	}
}

// dies is the server breaking off in the prefill.
func (r *request) dies() {
	if !r.session.Ended() {
		r.do(r.session.PeerGone(r.w.now, "fault: died in prefill"))
		r.cut("the connection was closed")
	}
}

// firstTokenMade sends the first token, and after it nothing more where a fault
// says so: then whatever the first token brings about comes too late.
func (r *request) firstTokenMade(at machine.Time) {
	f := &r.fault
	if f.StallAfter != nil && *f.StallAfter == 0 {
		r.silent = true
		return
	}
	r.tokens = 1
	e := r.session.FirstToken(at, r.firstToken())
	first := r.beginning()
	ends := f.EndBeforePart2 && r.session.Held()
	resets := f.ResetAfter != nil && *f.ResetAfter <= 1 && first != nil
	if e.Do != serving.SendFirst || !ends && !resets {
		r.do(e)
		r.counted(1)
		return
	}
	if ends {
		r.do(r.session.PeerGone(at, "fault: ended before part 2"))
		r.whole = true // but for what part 2 would have brought
		r.respond(200, first, false)
		r.respond(200, nil, true)
		return
	}
	r.do(r.session.PeerGone(at, "fault: reset"))
	r.respond(200, first, false)
	r.cut("the connection was reset")
}

// counted is told that so many tokens have been made.
func (r *request) counted(tokens int) {
	if r.silent || r.session.Ended() {
		return
	}
	r.tokens = tokens
	switch f := &r.fault; {
	case f.ResetAfter != nil && tokens >= *f.ResetAfter && r.asks().stream:
		r.do(r.session.PeerGone(r.w.now, "fault: reset"))
		r.cut("the connection was reset")
	case f.StallAfter != nil && tokens >= *f.StallAfter:
		r.silent = true
	}
}

// watched is true where a fault depends on how many tokens there are.
func (r *request) watched() bool { return r.fault.ResetAfter != nil || r.fault.StallAfter != nil }

// receivedDetails are what a model server says of a request that it has read.
func (r *request) receivedDetails() []flow.Detail {
	if r.w.rec == nil {
		return nil
	}
	a := r.asks()
	model := a.lora
	if model == "" {
		model = r.w.model
	}
	return []flow.Detail{flow.D("model", model), flow.D("prompt_tokens", len(a.prompt)), flow.D("stream", a.stream)}
}

// cut is the connection to the model server breaking.
func (r *request) cut(reason string) {
	if r.leg != nil {
		r.leg.back(func() { r.leg.broke(reason) })
		return
	}
	r.lost()
}
