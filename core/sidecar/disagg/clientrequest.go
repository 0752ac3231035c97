package disagg

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// ClientRequest is one request at the sidecar: a machine (see core/machine) that begins with Start.
type ClientRequest struct {
	c   *Config
	r   Request
	now machine.Time
	fx  *Effects // the caller's, during a call

	body      object
	rewritten bool  // legs use r.Body, no longer the client's own bytes
	legs      []leg // indexed by id - 1

	sent int // the number of legs in the record

	prefill prefillState
	timing  timing

	add        header.List // added to the client's own headers on both legs
	source     object      // the server from which the prefill server pulls cached blocks
	encoding   *encoding
	wasEncoded bool
	asked      string // the prefiller whose bootstrap server the sidecar asked for its engines
	both       *both
	session    *sessionRequest
	fronted    *fronted
	chunks     *chunked
	saying     bool // an answer of the sidecar's own has begun to stream
	peeked     peeked

	started, first, over bool
	blocked              int
	mark                 string // how the sidecar served the request, for counters
}

// prefillState is the progress of the prefill leg.
type prefillState struct {
	targets []Target // prefillers still to try, the current one first
	tried   int      // attempts at the current one
	retryAt machine.Time
	done    bool // a prefill leg has succeeded
	cached  int  // its cached tokens
	blocks  int  // the number of KV blocks that it named
	strict  bool // the client's answer reports its cached tokens
}

// timing holds the times at which the parts of a request began and ended.
type timing struct {
	began, prefillAt, prefillEnd, decodeAt, decodeHead, decodeEnd machine.Time

	fetched machine.Time // the decode server's time to fetch the KV cache, as it reports it
	streams bool         // the decode server's answer is a stream
}

type leg struct {
	Leg
	status      int
	contentType string
	failed      bool
	then        func(body []byte) // takes the leg's whole answer
}

// failure is the last prefiller's failure, for the client when no prefiller is left.
type failure struct {
	leg    int
	status int
	body   []byte
	whole  bool // status and body are an answer from the prefiller
	bad    bool // the header names no server
	reason string
	// useless names the fault in the JSON of a successful answer. The client gets it with a 400, as from the real
	// sidecar.
	useless string
}

// New returns a ClientRequest, which does nothing before Start.
func New(c *Config, r Request) *ClientRequest { return &ClientRequest{c: c, r: r} }

// Next returns the time at which the sidecar retries a prefiller or gives up, if there is one.
func (x *ClientRequest) Next() (machine.Time, bool) {
	switch {
	case x.over:
	case x.both != nil && !x.both.prefilled:
		return x.both.until, true
	case x.prefill.retryAt > 0:
		return x.prefill.retryAt, true
	}
	return machine.Never, false
}

// Advance performs everything that is due.
func (x *ClientRequest) Advance(now machine.Time, fx *Effects) {
	defer x.reportToRouter(x.first, x.over)
	x.fx = fx
	for at, ok := x.Next(); ok && at <= now; at, ok = x.Next() {
		x.now = max(x.now, at)
		if x.both != nil {
			x.bothTimedOut()
			continue
		}
		x.prefill.retryAt = 0
		x.callPrefill()
	}
	x.now, x.fx = max(x.now, now), nil
}

// Input takes a message. It ignores messages about legs that the request no longer waits for.
func (x *ClientRequest) Input(now machine.Time, m Message, fx *Effects) {
	x.Advance(now, fx)
	x.fx = fx
	defer x.reportToRouter(x.first, x.over)
	switch m := m.(type) {
	case Start:
		if !x.started && !x.over {
			x.started, x.timing.began = true, x.now
			if d := m.Described; d != nil {
				x.r.Described, x.r.Bytes = d, d.Len()
			} else if m.Body != nil {
				x.r.Body, x.r.Bytes = m.Body, len(m.Body)
			}
			details := record.Details{record.D("method", x.r.Method), record.D("path", header.Open(x.r.Path)),
				record.D("bytes", x.r.Bytes)}
			if x.r.TraceParent != "" {
				details = append(details, record.D(tracing.Header, x.r.TraceParent))
			}
			x.record(record.RequestReceived, "", details...)
			x.start()
		}
	case Head:
		if l := x.leg(m.Leg); l != nil {
			l.status, l.contentType = m.Status, m.ContentType
			if l.Kind == Decode {
				x.timing.fetched = m.Fetched
			}
			x.head(l)
		}
	case Whole:
		if l := x.leg(m.Leg); l != nil {
			x.whole(l, m.Body)
		}
	case Part:
		if l := x.leg(m.Leg); l != nil && l.Kind == Decode && !x.over && x.tries() {
			x.peek(l, m.Data, m.End)
		}
	case Failed:
		if l := x.leg(m.Leg); l != nil && !l.failed {
			l.failed = true
			x.failed(l, m)
		}
	case FirstByte:
		if !x.first {
			x.first = true
			x.record(record.FirstTokenSeen, "", x.size(m.Bytes)...)
		}
	case Delivered:
		x.delivered(m)
	case Gone:
		if !x.over {
			x.over = true
			x.record(record.Aborted, "", record.D("reason", m.Reason))
		}
	}
	x.fx = nil
}

func (x *ClientRequest) do(a Action) { x.fx.Add(Effect{x.now, a}) }

// Over reports whether the request has ended: it was delivered, answered or given up.
func (x *ClientRequest) Over() bool { return x.over }

// Times returns the durations so far.
func (x *ClientRequest) Times(now machine.Time) Times {
	t := x.timing.until(now, x.prefill.done)
	if x.session != nil && x.session.first != "" {
		t.Ahead = 1
	}
	return t
}

func (t *timing) until(now machine.Time, prefilled bool) Times {
	out := Times{Total: now - t.began}
	if t.prefillEnd > 0 {
		out.Prefill = t.prefillEnd - t.prefillAt
	}
	if t.decodeAt == 0 {
		return out
	}
	end := now
	if t.decodeEnd > 0 {
		end = t.decodeEnd
	}
	out.Decode = end - t.decodeAt
	switch {
	case !prefilled || t.decodeHead == 0:
	case t.fetched > 0:
		out.Transfer = t.fetched
	case t.streams:
		out.Transfer = t.decodeHead - t.decodeAt
	}
	return out
}

// TransferHeader is the response header in which a decode server reports how many milliseconds the KV transfer took
// (document 003).
const TransferHeader = "X-Kv-Transfer-Time-Ms"

// Transferred parses TransferHeader. It returns 0 where the value is no time.
func Transferred(value string) machine.Time {
	ms, err := strconv.ParseFloat(value, 64)
	if err != nil || !(ms > 0 && ms < 1e9) {
		return 0
	}
	return machine.Time(ms * float64(machine.Millisecond))
}

// Blocks returns how many KV blocks the prefill leg named.
func (x *ClientRequest) Blocks() int { return x.prefill.blocks }

// Prefiller returns the server that prefilled the prompt, or an empty string.
func (x *ClientRequest) Prefiller() string {
	if !x.prefill.done || len(x.prefill.targets) == 0 {
		return ""
	}
	return x.prefill.targets[0].String()
}

func (x *ClientRequest) decided(how, endpoint, why string) {
	d := []record.Detail{record.D("decision", how), record.D("connector", x.c.connector().Name)}
	if why != "" {
		d = append(d, record.D("reason", why))
	}
	x.record(record.PrefillDecided, endpoint, d...)
}

// call sends a leg and returns its new id.
func (x *ClientRequest) call(l Leg) int {
	l.ID = len(x.legs) + 1
	if l.Kind != Bootstrap && l.Kind != Encode && (x.fronted != nil || x.c.Generates(x.r.Method, x.r.Path)) {
		l.Remove = routing
	}
	if x.fronted != nil && l.Kind != Bootstrap {
		l.Path = x.r.Path
	}
	if l.Original && x.rewritten {
		l.Original, l.Body = false, x.r.Body
	}
	l.describe(x.r.Described)
	if ids := x.c.Trace; ids != nil && l.Kind != Bootstrap {
		l.Set = append(slices.Clip(l.Set),
			header.Header{Name: tracing.Header,
				Value: ids.Next(x.r.TraceParent, x.name(), tracing.Leg(x.r.Attempt, x.sent-1))})
	}
	x.legs = append(x.legs, leg{Leg: l})
	x.do(Call{l})
	return l.ID
}

func (x *ClientRequest) callDecode(l Leg) int {
	l.Kind = Decode
	x.timing.decodeAt = x.now
	if x.fronted != nil {
		l.Target = x.fronted.worker
		x.record(record.DecodeLegSent, l.Target.String())
		return x.call(l)
	}
	x.record(record.DecodeLegSent, "")
	return x.call(l)
}

func (x *ClientRequest) leg(id int) *leg {
	if id < 1 || id > len(x.legs) {
		return nil
	}
	return &x.legs[id-1]
}

// deliver passes a leg's answer to the client.
func (x *ClientRequest) deliver(l *leg, before []byte, change *Change) {
	x.timing.decodeEnd = 0
	d := Deliver{Leg: l.ID, Before: before}
	if change != nil {
		d.Change = change
	}
	x.do(d)
}

func (x *ClientRequest) delivered(m Delivered) {
	if x.over {
		return
	}
	x.over = true
	x.timing.decodeEnd = x.now
	status := 200
	for i := range x.legs {
		if x.legs[i].Kind == Decode && x.legs[i].status > 0 {
			status = x.legs[i].status
		}
	}
	x.record(record.ResponseEndSeen, "", append(x.size(m.Bytes), record.D("status", status))...)
	x.endSession()
}

// size returns the record's detail for an answer's size.
func (x *ClientRequest) size(bytes int) []record.Detail {
	if x.c.StandIns {
		return nil
	}
	return []record.Detail{record.D("bytes", bytes)}
}

// answer ends the request with an answer and records why.
func (x *ClientRequest) answer(a Answer, why string) {
	x.over = true
	x.record(record.Answered, "", record.D("status", a.Status), record.D("reason", why))
	x.do(a)
}

// refuse answers with an error of the sidecar's own.
func (x *ClientRequest) refuse(status int, message string, head ...header.Header) {
	x.answer(refusal(status, message, head...), message)
}

func refusal(status int, message string, head ...header.Header) Answer {
	return Answer{Status: status, Head: append(head, header.Header{Name: "Content-Type", Value: "application/json"}),
		Body: ErrorBody(status, message)}
}

// finish answers with a body that the sidecar has made from a leg's body.
func (x *ClientRequest) finish(l *leg, body []byte) {
	x.over = true
	x.timing.decodeEnd = x.now
	x.record(record.ResponseEndSeen, "", append(x.size(len(body)), record.D("status", l.status))...)
	x.do(Answer{Status: l.status, Body: body, Verbatim: l.ID})
	x.endSession()
}

func (x *ClientRequest) draw(purpose string) machine.Draw {
	return machine.NewDraw(x.c.Seed, "sidecar", purpose, x.r.Number)
}

func (x *ClientRequest) uuid(purpose string) string { d := x.draw(purpose); return d.UUID() }

func (x *ClientRequest) record(step record.Step, endpoint string, details ...record.Detail) {
	switch step {
	case record.PrefillLegSent, record.DecodeLegSent, record.EncodeLegSent:
		x.sent++
	}
	if x.c.Recorder == nil {
		return
	}
	endpoint = cmp.Or(endpoint, x.c.Endpoint)
	x.c.Recorder.Record(record.Event{Time: x.now, Request: x.name(), Attempt: x.r.Attempt, Hop: record.Sidecar,
		Step:     step,
		Endpoint: endpoint, Details: details})
}

// name returns the request's name in the record: its own id or, where it came without one, the id of its legs.
func (x *ClientRequest) name() string {
	if x.r.ID != "" {
		return x.r.ID
	}
	return x.uuid("request")
}

// head takes a leg's status.
func (x *ClientRequest) head(l *leg) {
	switch {
	case x.over && !l.Detached:
		x.do(Drop{l.ID})
		return
	case l.Kind != Decode:
		if !l.Concurrent && !l.Detached {
			x.do(Collect{l.ID})
		}
		return
	}
	x.timing.decodeHead, x.timing.streams = x.now, strings.HasPrefix(l.contentType, "text/event-stream")
	ok := l.status >= 200 && l.status < 300
	x.record(record.ResponseHeadersSeen, "", record.D("status", l.status))
	switch {
	case x.both != nil:
		x.both.head = true
		x.deliverBoth()
	case l.then != nil || !ok && x.session != nil:
		x.do(Collect{l.ID})
	case !ok:
		x.deliver(l, nil, nil)
	case x.fronted != nil:
		x.translate(l)
	case x.tries() && !jsonType(l.contentType):
		x.do(Peek{l.ID})
	case x.tries():
		x.do(Collect{l.ID})
	case x.session != nil:
		x.deliver(l, nil, x.session.change(jsonType(l.contentType)))
	case x.prefill.strict:
		x.deliver(l, nil, &Change{cached: x.prefill.cached, set: true,
			document: !strings.Contains(l.contentType, "text/event-stream")})
	default:
		x.deliver(l, nil, nil)
	}
}

// failed handles a leg without an answer.
func (x *ClientRequest) failed(l *leg, m Failed) {
	if x.over && !l.Detached {
		return
	}
	switch l.Kind {
	case Prefill:
		x.record(record.PrefillLegFailed, l.Target.String(), record.D("reason", m.Reason))
		switch {
		case l.Detached:
		case x.both != nil:
			x.bothPrefilled(false, Answer{Status: 502, Head: header.Of(ErrorHeader, header.Text(m.Reason))}, m.Reason)
		default:
			x.prefillFailed(failure{leg: l.ID, reason: m.Reason})
		}
	case Bootstrap:
		x.bootstrapFailed("failed to query bootstrap endpoint: " + m.Reason)
	case Encode:
		x.record(record.EncodeLegFailed, l.Target.String(), record.D("item", l.ID-x.encoding.first),
			record.D("reason", m.Reason))
		x.encodeFailed(fmt.Sprintf("encoder request failed for item %d with status 502: ", l.ID-x.encoding.first),
			header.Header{Name: ErrorHeader, Value: header.Text(m.Reason)})
	case Decode:
		if x.both != nil && !x.both.prefilled {
			x.both.failed = &m
			return
		}
		x.decodeFailed(m)
	}
}

// decodeFailed answers for a decode server that gave no answer.
func (x *ClientRequest) decodeFailed(m Failed) {
	switch {
	case x.chunks != nil && x.saying:
		x.chunkFailed(nil, ErrorBody(502, m.Reason))
	case m.Refused:
		x.answer(m.Answer(), notReady)
	default:
		x.answer(m.Answer(), m.Reason)
	}
}

// EndsLegs reports whether an answer of this status also ends the detached legs, because it stands for a whole exchange
// that has failed.
func EndsLegs(status int) bool { return status >= 500 }

const notReady = "The decode node is not ready. Please check that the vLLM service is running and the port " +
	"configuration is correct."

// Answer returns the client's answer for a decode leg that failed before the sidecar passed on any of its answer.
func (m Failed) Answer() Answer {
	if m.Refused {
		return refusal(503, notReady)
	}
	return refusal(502, m.Reason)
}

// Served returns how the sidecar served the request, for counters: local, disaggregated, session, fallback or blocked.
func (x *ClientRequest) Served() string { return x.mark }
