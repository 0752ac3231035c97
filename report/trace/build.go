package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// Of returns the spans of one request, from all of its events in any order. Where events are missing, as in a recording
// from the middle of a run, their spans are missing, too. A parent that is not among the spans belongs to another part
// or the client.
func Of(events []record.Event, o Options) []Span {
	events = slices.Clone(events)
	machine.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.Time, b.Time) })
	if len(events) == 0 {
		return nil
	}
	b := &builder{o: o, request: events[0].Request, events: events}
	b.trace = o.trace(b.request, tracing.Client)
	b.client()
	if c, ok := b.given(events); ok && !c.Sampled {
		return nil // the sender of the context does not sample this trace
	}
	for _, attempt := range b.attempts() {
		b.attempt(attempt)
	}
	return b.spans
}

type builder struct {
	o       Options
	request string
	trace   TraceID // the client's, or the picker's if the client does not trace
	events  []record.Event
	spans   []Span
	root    SpanID // the client's span, zero without one
}

// add appends a span, with an id from its key. Set its attributes by the pointer before the next add.
func (b *builder) add(key string, s Span) *Span {
	s.Trace, s.ID, s.Request = b.trace, b.o.span(b.request, key), b.request
	s.End = max(s.Start, s.End)
	b.spans = append(b.spans, s)
	return &b.spans[len(b.spans)-1]
}

func (s *Span) set(key string, value any) {
	if value != nil && value != "" {
		s.Attributes = append(s.Attributes, record.D(key, value))
	}
}

// given returns the context that the first events carry (traceparent). If Envoy traces, its own context replaces it.
func (b *builder) given(events []record.Event) (tracing.Context, bool) {
	if b.o.Gateway {
		return tracing.Context{}, false
	}
	return tracing.Parse(text(detail(events, tracing.Header)))
}

// below switches to the trace of the context that events carry and returns its span, or returns parent if they carry
// none.
func (b *builder) below(events []record.Event, parent SpanID) SpanID {
	c, ok := b.given(events)
	if !ok {
		return parent
	}
	b.trace = c.Trace
	return c.Span
}

// attempts returns the numbers of the request's tries.
func (b *builder) attempts() []int {
	var out []int
	for _, e := range b.events {
		if e.Hop != record.Client && !slices.Contains(out, attemptOf(e)) {
			out = append(out, attemptOf(e))
		}
	}
	slices.Sort(out)
	return out
}

// attemptOf returns the number of an event's try. Hops that do not know it count as the first.
func attemptOf(e record.Event) int {
	if e.Hop == record.Envoy {
		return 1 // its log covers all tries
	}
	return max(e.Attempt, 1)
}

func (b *builder) of(hop record.Hop, attempt int) (out []record.Event) {
	for _, e := range b.events {
		if e.Hop == hop && (hop == record.Client || attemptOf(e) == attempt) {
			out = append(out, e)
		}
	}
	return out
}

func first(events []record.Event, steps ...record.Step) (record.Event, bool) {
	for _, e := range events {
		if slices.Contains(steps, e.Step) {
			return e, true
		}
	}
	return record.Event{}, false
}

// detail returns the first value of a detail among events.
func detail(events []record.Event, key string) any {
	for _, e := range events {
		if v := e.Details.Get(key); v != nil {
			return v
		}
	}
	return nil
}

func text(v any) string { s, _ := v.(string); return s }

// whole returns a number of a detail as an int. A recording has float64.
func whole(v any) any {
	if f, ok := v.(float64); ok {
		return int(f)
	}
	return v
}

// operations are the names of OpenTelemetry's conventions for generative AI, by path.
var operations = map[string]string{"/v1/chat/completions": "chat", "/v1/completions": "text_completion",
	"/v1/embeddings": "embeddings"}

func (b *builder) client() {
	events := b.of(record.Client, 0)
	if len(events) == 0 || b.o.UntracedClient {
		return
	}
	path, model := text(detail(events, "path")), text(detail(b.events, "model"))
	operation := cmp.Or(operations[path], "generate_content")
	s := b.add(tracing.Client,
		Span{Name: strings.TrimSpace(operation + " " + model), Kind: ClientOf, Part: Part{Service: "windtunnel"},
			Scope: "windtunnel",
			Start: events[0].Time, End: events[len(events)-1].Time})
	b.root = s.ID
	s.set("gen_ai.operation.name", operation)
	s.set("gen_ai.provider.name", "vllm")
	s.set("gen_ai.request.model", model)
	s.set("http.request.header.x-request-id", b.request)
	s.set("url.path", path)
	if e, ok := first(events, record.FirstTokenReceived); ok {
		s.set("gen_ai.response.time_to_first_chunk", (e.Time - events[0].Time).Seconds())
		s.Marks = append(s.Marks, Mark{At: e.Time, Name: string(e.Step)})
	}
	if e, ok := first(b.events, record.LastTokenReceived); ok {
		s.set("gen_ai.usage.output_tokens", whole(e.Details.Get("tokens")))
	}
	e, ok := first(events, record.Finished)
	if !ok {
		s.Error = "unfinished"
		return
	}
	s.set("http.response.status_code", whole(e.Details.Get("status")))
	if outcome := text(e.Details.Get("outcome")); outcome != string(record.Completed) {
		s.Error = strings.TrimSuffix(outcome+": "+text(e.Details.Get("reason")), ": ")
		s.set("error.type", outcome)
	}
}

// attempt adds the spans behind the client.
func (b *builder) attempt(n int) {
	parent := b.root
	if b.o.Gateway {
		parent = b.envoy(n)
	}
	if picked, traced := b.picker(n, b.root); traced && !b.o.Gateway {
		parent = picked
	}
	if b.o.Gateway && b.root == (SpanID{}) { // Envoy begins a trace, and the picker another
		defer func(t TraceID) { b.trace = t }(b.trace)
		b.trace = b.o.trace(b.request, "envoy")
	}
	prefix := fmt.Sprintf("%d/", n)
	legs := b.sidecar(n, prefix, parent)
	b.servers(n, prefix, parent, legs)
}

// within returns the first and the last time of a try behind the client.
func (b *builder) within(n int) (start, end machine.Time) {
	start = machine.Never
	for _, e := range b.events {
		if e.Hop != record.Client && attemptOf(e) == n {
			start, end = min(start, e.Time), max(end, e.Time)
		}
	}
	return start, end
}

// envoy adds Envoy's spans, and returns the parent of the spans behind Envoy. Attributes come from Envoy's log, which
// live runs have.
func (b *builder) envoy(n int) SpanID {
	if b.root == (SpanID{}) {
		defer func(t TraceID) { b.trace = t }(b.trace)
		b.trace = b.o.trace(b.request, "envoy")
	}
	part := Part{Service: "envoy"}
	start, end := b.within(n)
	if start == machine.Never {
		return b.root
	}
	log, logged := first(b.of(record.Envoy, n), record.Logged)
	prefix := fmt.Sprintf("%d/", n)
	ingress := b.o.span(b.request, "ingress")
	if n == 1 {
		last := end
		for _, e := range b.events {
			if e.Hop != record.Client {
				last = max(last, e.Time)
			}
		}
		s := b.add("ingress", Span{Name: "ingress", Kind: ServerOf, Part: part, Scope: "envoy", Parent: b.root,
			Start: start, End: last})
		s.set("component", "proxy")
		s.set("guid:x-request-id", b.request)
		s.set("http.method", detail(b.of(record.EPP, n), "method"))
		s.set("http.url", detail(b.of(record.EPP, n), "path"))
		s.set("http.protocol", log.Details.Get("protocol"))
		s.set("upstream_address", log.Endpoint)
		if logged {
			s.set("http.status_code", fmt.Sprint(whole(log.Details.Get("status"))))
			s.set("request_size", fmt.Sprint(whole(log.Details.Get("bytes_in"))))
			s.set("response_size", fmt.Sprint(whole(log.Details.Get("bytes_out"))))
		}
	}
	if epp := b.of(record.EPP, n); len(epp) > 0 {
		b.add(prefix+"ext_proc",
			Span{Name: "async envoy.service.ext_proc.v3.ExternalProcessor.Process egress", Kind: ClientOf, Part: part,
				Scope:  "envoy",
				Parent: ingress, Start: epp[0].Time, End: epp[len(epp)-1].Time})
	}
	if !b.o.Egress {
		return ingress
	}
	sent, ok := first(b.of(record.EPP, n), record.Part1Sent, record.RequestPassed)
	if !ok {
		sent.Time = start
	}
	s := b.add(prefix+"egress",
		Span{Name: "router egress", Kind: ClientOf, Part: part, Scope: "envoy", Parent: ingress, Start: sent.Time,
			End: end})
	s.set("upstream_address", sent.Endpoint)
	return s.ID
}

// decision parses the explanation of a pick, from a picker or from a recording.
func decision(e record.Event, into any) error {
	x := e.Details.Get(record.Explanation)
	if x == nil {
		return nil
	}
	data, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
