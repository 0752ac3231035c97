package virtual

import (
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/load/response"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// clientSide is the client's state of a request and its answer.
type clientSide struct {
	conversation *workload.Conversation
	ref          *requestRef
	ended        *callStatus // of a gRPC call
	echo         string      // the echoed metadata
	status       int
	bare         bool             // the response has no body
	failed       *response.Error  // an error inside the answer
	refusal      *response.Reader // an answer with an error status
	first        bool             // the client has seen the first token
	over         bool
	answerText   *response.Reader // the answer's text, if a sidecar may have assembled the answer
	words        described.Text   // the answer, if the conversation continues
	said         string           // the answer, if it is not a described.Text
}

func (r *request) record(step record.Step, details ...record.Detail) {
	if r.w.rec != nil {
		r.w.rec.Record(record.Event{Time: r.w.now, Request: r.ID, Hop: record.Client, Step: step, Details: details})
	}
}

// send sends the request: headers and body reach the EPP together.
func (r *request) send() {
	r.w.sent++
	if r.w.open != nil {
		r.w.open[r] = struct{}{}
	}
	r.stream = &r.memory.stream
	switch {
	case len(r.pool.pickers) == 0:
		*r.stream, r.seen.alone = epp.Stream{}, true
	case r.answers != nil:
		r.attach(r.pool.pickers[0], 0)
	case r.pool.Picker.Dies:
		r.assign(r.pool.pickers[0])
	default:
		r.assign(r.pool.picker())
	}
	if r.w.brief {
		r.record(record.RequestSent, r.Counted()...)
	} else {
		r.record(record.RequestSent, r.Sent()...)
	}
	r.ways = r.w.hops.open(r.ID, 0)
	r.slot.open(r.w, r.stream, &r.fx, r.slot.carry)
	// At equal times, a client leaves after the end of a step, whose tokens it still gets, and before other requests
	// arrive.
	after, leaves := r.w.load.Leaves(r.Index)
	if leaves || r.w.timeout > 0 {
		r.ref = &requestRef{r}
	}
	if r.w.timeout > 0 {
		r.w.limits.add(r.w, deadline{at: r.w.now.Add(r.w.timeout), ref: r.ref})
	}
	if leaves {
		r.w.queue.Push(r.w.now.Add(after), machine.ClassAbort, event{leave, r.ref})
	}
	head := r.w.clientHead(nil, &r.Request).Normalize()
	r.pass(&r.ways.up, &r.pool.hops.first, message{do: (*message).begun, head: head})
}

// clientHead returns the headers that the client sends, in the memory of h.
func (w *world) clientHead(h header.List, q *workload.Request) header.List {
	h = append(slices.Grow(h[:0], 5+len(q.Header)), header.Header{Name: ":method", Value: "POST"},
		header.Header{Name: ":path", Value: q.Path}, header.Header{Name: "content-type", Value: q.ContentType()},
		header.Header{Name: "x-request-id", Value: q.ID})
	switch {
	case q.GRPC:
		h = append(h, header.Header{Name: "te", Value: "trailers"})
	case !w.chunked:
		h = append(h, header.Header{Name: "content-length", Value: strconv.Itoa(q.Len())})
	}
	return append(h, q.Header...)
}

// giveUp ends the request at the client's time limit.
func (r *request) giveUp() { r.abandon((*response.Facts).TimedOut) }

// leaves ends the request because the client leaves on purpose.
func (r *request) leaves() {
	r.abandon(func(f *response.Facts) (record.Outcome, []record.Detail) { return f.Left(response.ClientLeft) })
}

// abandon ends the request, unless it has ended, with an outcome of the facts that the client knows.
func (r *request) abandon(outcome func(*response.Facts) (record.Outcome, []record.Detail)) {
	if !r.over {
		f := r.facts()
		r.finish(outcome(&f))
		r.left()
	}
}

// left aborts the request at the EPP and at the servers: no client waits for the answer.
func (r *request) left() {
	r.pass(&r.ways.up, &r.pool.hops.client, message{do: (*message).left})
	r.drop(&r.pool.hops.past, "the client left")
}

func (r *request) finish(o record.Outcome, details []record.Detail) {
	if r.over {
		return
	}
	if r.over = true; r.ref != nil {
		r.ref.r = nil
	}
	delete(r.w.open, r)
	response.Finish(r.record, o, details)
	if r.pool.Picker.Dies && r.picker != nil {
		delete(r.picker.has, r)
	}
	if r.memory != nil {
		r.w.ending = append(r.w.ending, r)
	}
	r.w.ended(r, o)
}

// answered takes the EPP's own answer at the client.
func (r *request) answered(a stream.Answer) {
	switch {
	case r.status == 0 && r.GRPC:
		r.status, r.ended = 200, &callStatus{vllmgrpc.EnvoyCodeOf(a.Status), string(a.Body)}
		r.received(nil, nil, true)
		return
	case r.status == 0:
		r.status = a.Status
		r.received(a.Body, nil, true)
		return
	}
	r.finish(record.OutcomeOfStatus(a.Status), []record.Detail{record.D("status", a.Status)})
}

// received takes a piece of the response at the client.
func (r *request) received(body []byte, piece *described.Piece, end bool) {
	if r.over {
		return
	}
	ok := r.status >= 200 && r.status < 300
	if ok && !r.first && (len(body) > 0 || piece != nil) {
		r.first = true
		r.record(record.FirstTokenReceived, record.D("status", r.status))
	}
	r.keepAnswer(body)
	if !ok {
		if r.refusal == nil {
			r.refusal = response.NewReader("application/json")
		}
		_, _ = r.refusal.Write(body) // it never fails
	}
	if !end {
		return
	}
	if r.refusal != nil {
		r.refusal.Close()
	}
	f := r.facts()
	r.finish(f.Ended(r.record))
}

// facts returns the facts that the client knows of the response.
func (r *request) facts() response.Facts {
	f := response.Facts{Status: r.status, Bytes: -1, Tokens: r.tokens, Whole: r.whole, Error: r.failed,
		Metadata: r.echo, Echoed: r.echo != ""}
	f.Want = r.stream.Metadata()
	f.Known = f.Want != ""
	if r.refusal != nil { // only the body has the error
		read := r.refusal.Facts(r.status)
		f.Error, f.Text = read.Error, read.Text
	} else if !r.first {
		f.Bytes = 0
	}
	if c := r.ended; c != nil {
		f.Call(c.code, c.message, true)
	}
	return f
}

func (r *request) contentType() string {
	if r.conversation != nil && r.conversation.Streams() {
		return "text/event-stream"
	}
	return "application/json"
}

// keepAnswer keeps the text of the answer, if the conversation continues.
func (r *request) keepAnswer(body []byte) {
	if r.w.answers != nil {
		r.w.answers(r.ID, body)
	}
	if r.answerText != nil {
		_, _ = r.answerText.Write(body) // it never fails
	}
}
