package virtual

import (
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

// clientSide holds the client's state of its request and of the answer.
type clientSide struct {
	conversation *workload.Conversation
	alarm        *alarm
	ended        *callStatus // of a call by gRPC
	echo         string      // the metadata that came back
	status       int
	bare         bool             // the response has no body
	failed       *response.Error  // an error inside the answer
	refusal      *response.Reader // an answer with an error status
	first        bool             // the client has seen the first token
	over         bool
	heard        *response.Reader // the answer, where a sidecar may have put it together
	words        described.Text   // the answer, where the conversation continues from it
	said         string           // or this, where it is not words
}

func (r *request) record(step record.Step, details ...record.Detail) {
	if r.w.rec != nil {
		r.w.rec.Record(record.Event{Time: r.w.now, Request: r.ID, Hop: record.Client, Step: step, Details: details})
	}
}

// begin sends the request: headers and body reach the EPP together.
func (r *request) begin() {
	r.w.sent++
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
		r.record(record.RequestSent, r.Told()...)
	} else {
		r.record(record.RequestSent, r.Sent()...)
	}
	r.ways = r.w.hops.open(r.ID, 0)
	r.slot.open(r.w, r.stream, &r.fx, r.slot.carry)
	// Who leaves has left before others arrive at the same moment, and after the
	// step that ends then: what it brought was in time.
	after, leaves := r.w.load.Leaves(r.Index)
	if leaves || r.w.timeout > 0 {
		r.alarm = &alarm{r}
	}
	if r.w.timeout > 0 {
		r.w.limits.add(r.w, deadline{at: r.w.now.Add(r.w.timeout), alarm: r.alarm})
	}
	if leaves {
		r.w.queue.Push(r.w.now.Add(after), machine.ClassAbort, event{leave, r.alarm})
	}
	head := r.head().Normalize()
	r.w.pass(&r.ways.up, &r.pool.hops.first, message{r: r, do: (*message).begun, head: head})
}

// head are the headers that the client sends.
func (r *request) head() header.List {
	h := make(header.List, 4, 5+len(r.Header))
	h[0], h[1] = header.Header{Name: ":method", Value: "POST"}, header.Header{Name: ":path", Value: r.Path}
	h[2], h[3] = header.Header{Name: "content-type", Value: r.ContentType()},
		header.Header{Name: "x-request-id", Value: r.ID}
	switch {
	case r.GRPC:
		h = append(h, header.Header{Name: "te", Value: "trailers"})
	case !r.w.chunked:
		h = append(h, header.Header{Name: "content-length", Value: strconv.Itoa(r.Len())})
	}
	return append(h, r.Header...)
}

// giveUp is the client's own time limit.
func (r *request) giveUp() {
	if !r.over {
		f := r.facts()
		r.finish(f.TimedOut())
		r.left()
	}
}

// leaves is the client going away on purpose.
func (r *request) leaves() {
	if !r.over {
		f := r.facts()
		r.finish(f.Left(response.ClientLeft))
		r.left()
	}
}

// left tells everybody that nobody waits for the answer any more.
func (r *request) left() {
	r.w.pass(&r.ways.up, &r.pool.hops.client, message{r: r, do: (*message).left})
	r.drop(&r.pool.hops.past, "the client left")
}

func (r *request) finish(o record.Outcome, details []record.Detail) {
	if r.over {
		return
	}
	if r.over = true; r.alarm != nil {
		r.alarm.r = nil
	}
	response.Finish(r.record, o, details)
	if r.pool.Picker.Dies && r.picker != nil {
		delete(r.picker.has, r)
	}
	if r.memory != nil {
		r.w.ending = append(r.w.ending, r)
	}
	r.w.ended(r, o)
}

// answered is the EPP's own answer at the client.
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

// received is a piece of the response at the client.
func (r *request) received(body []byte, piece *described.Piece, end bool) {
	if r.over {
		return
	}
	ok := r.status >= 200 && r.status < 300
	if ok && !r.first && (len(body) > 0 || piece != nil) {
		r.first = true
		r.record(record.FirstTokenReceived, record.D("status", r.status))
	}
	r.hear(body)
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

// facts are what the client knows of the response.
func (r *request) facts() response.Facts {
	f := response.Facts{Status: r.status, Bytes: -1, Tokens: r.tokens, Whole: r.whole, Error: r.failed,
		Metadata: r.echo, Echoed: r.echo != ""}
	f.Want = r.stream.Metadata()
	f.Known = f.Want != ""
	if r.refusal != nil { // it is told in the body alone
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

// hear keeps what the answer says, where the conversation goes on from it.
func (r *request) hear(body []byte) {
	if r.w.answers != nil {
		r.w.answers(r.ID, body)
	}
	if r.heard != nil {
		_, _ = r.heard.Write(body) // it never fails
	}
}
