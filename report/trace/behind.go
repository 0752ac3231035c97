package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// scopeProxy is the scope of the real sidecar's own spans, and scopeHTTP the scope of the requests that it serves and
// sends.
const (
	scopeProxy = "llm-d-router/pkg/sidecar/proxy"
	scopeHTTP  = "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
)

// leg is a request that a sidecar sends, the parent of the server's spans. end is when the answer was complete,
// machine.Never for an incomplete one.
type leg struct {
	at       machine.Time
	end      machine.Time
	endpoint string // "" for the sidecar's own decode server
	role     string
	id       SpanID
}

// marked are connectors whose legs have the longer span names in the real sidecar.
var marked = []string{"mooncake", "offloading"}

// sidecar adds the spans of the sidecar and returns its legs.
func (b *builder) sidecar(n int, prefix string, parent SpanID) (legs []leg) {
	events := b.of(record.Sidecar, n)
	if len(events) == 0 {
		return nil
	}
	last := events[len(events)-1]
	parent = b.below(events, parent)
	received, _ := first(events, record.RequestReceived) // which has the sidecar's own address
	part := Part{Service: "llm-d-disagg-sidecar", Instance: received.Endpoint}
	start := events[0].Time
	method, path := cmp.Or(text(detail(events, "method")), "POST"), text(detail(events, "path"))
	s := b.add(prefix+"sidecar",
		Span{Name: "llm_d.pd_proxy." + method + " " + path, Kind: ServerOf, Part: part, Scope: scopeHTTP,
			Parent: parent, Start: start, End: last.Time})
	s.set("http.request.method", method)
	s.set("url.path", path)
	failed, answered := first(events, record.Answered, record.Aborted, record.PrefillerBlocked)
	s.set("http.response.status_code", whole(detail(events[max(0, len(events)-1):], "status")))
	server := s.ID
	connector := text(detail(events, "connector"))
	s = b.add(prefix+"forward",
		Span{Name: "forward_request", Kind: Internal, Part: part, Scope: scopeProxy, Parent: server, Start: start,
			End: last.Time})
	forward, at := s.ID, len(b.spans)-1
	decided, _ := first(events, record.PrefillDecided)
	disaggregated := text(decided.Details.Get("decision")) == "disaggregated"
	s.set("llm_d.openai.api", operations[path])
	s.set("llm_d.pd_proxy.connector", connector)
	s.set("llm_d.pd_proxy.request_path", path)
	s.set("llm_d.pd_proxy.disaggregation_used", disaggregated)
	s.set("llm_d.pd_proxy.reason", text(decided.Details.Get("reason")))
	if disaggregated {
		s.set("llm_d.pd_proxy.prefill_target", decided.Endpoint)
	}
	if answered {
		s.Error = text(failed.Details.Get("reason"))
	}
	if e, ok := first(events, record.PrefillerBlocked); ok {
		s.Error = "ssrf_protection_denied"
		s.set("llm_d.pd_proxy.error", s.Error)
		s.set("llm_d.pd_proxy.denied_target", text(e.Details.Get("address")))
	}
	for i, e := range events {
		if slices.Contains([]record.Step{record.PrefillLegSent, record.EncodeLegSent, record.DecodeLegSent}, e.Step) {
			legs = append(legs, b.leg(strings.TrimSuffix(tracing.Leg(n, len(legs)), "/http"), part, forward, connector,
				e, events[i+1:]))
		}
	}
	s = &b.spans[at]
	s.set("llm_d.pd_proxy.total_duration_ms", milliseconds(last.Time-start))
	if e, ok := first(events, record.FirstTokenSeen); ok {
		s.set("llm_d.pd_proxy.true_ttft_ms", milliseconds(e.Time-start))
	}
	for _, l := range legs {
		if l.end != machine.Never && l.role != "encode" {
			s.set("llm_d.pd_proxy."+l.role+"_duration_ms", milliseconds(l.end-l.at))
		}
	}
	return legs
}

func milliseconds(t machine.Time) float64 { return t.Seconds() * 1000 }

// legName returns the real sidecar's name for a leg's span.
func legName(role, connector string) string {
	if slices.Contains(marked, connector) {
		return "llm_d.pd_proxy." + role
	}
	return role
}

// leg adds the spans of a leg, to a prefill or encode server or to the sidecar's own server.
func (b *builder) leg(key string, part Part, parent SpanID, connector string, sent record.Event,
	after []record.Event) leg {
	role, ended, failed := "prefill", record.PrefillLegEnded, record.PrefillLegFailed
	switch sent.Step {
	case record.EncodeLegSent:
		role, ended, failed = "encode", record.EncodeLegEnded, record.EncodeLegFailed
	case record.DecodeLegSent:
		role, ended, failed = "decode", record.ResponseEndSeen, record.Aborted
	}
	own := role == "decode"
	out := leg{at: sent.Time, end: machine.Never, role: role}
	if !own {
		out.endpoint = sent.Endpoint
	}
	end, status, result := sent.Time, any(nil), record.Event{}
	for _, e := range after {
		end = e.Time
		if v := e.Details.Get("status"); own && v != nil {
			status = v
		}
		if (e.Step == ended || e.Step == failed) &&
			(own || (e.Endpoint == "" || e.Endpoint == sent.Endpoint) && sameItem(sent, e)) {
			result, out.end = e, e.Time
			break
		}
	}
	s := b.add(key, Span{Name: legName(role, connector), Kind: Internal, Part: part, Scope: scopeProxy, Parent: parent,
		Start: sent.Time, End: end})
	s.set("llm_d.pd_proxy.request_id", b.request)
	s.set("llm_d.pd_proxy.connector", connector)
	if !own {
		s.set("llm_d.pd_proxy."+role+"_target", sent.Endpoint)
		status = result.Details.Get("status")
		if result.Step == failed || out.end == machine.Never {
			s.Error = cmp.Or(text(result.Details.Get("reason")), "no answer")
		}
	}
	if role == "prefill" {
		s.set("llm_d.pd_proxy.prefill.status_code", whole(status))
	}
	if role != "encode" {
		s.set("llm_d.pd_proxy."+role+".duration_ms", milliseconds(end-sent.Time))
	}
	out.id = b.sent(key, part, s.ID, sent.Endpoint, sent.Time, end, status)
	return out
}

// sameItem reports whether an answer belongs to a leg. Encode legs run at the same time, each for one item.
func sameItem(sent, answer record.Event) bool {
	item := sent.Details.Get("item")
	// a recording may hold anything
	return item == nil || fmt.Sprint(whole(item)) == fmt.Sprint(whole(answer.Details.Get("item")))
}

// sent adds the span of an HTTP request that a sidecar sends. The server receives its context.
func (b *builder) sent(key string, part Part, parent SpanID, to string, start, end machine.Time, status any) SpanID {
	s := b.add(key+"/http", Span{Name: "HTTP POST", Kind: ClientOf, Part: part, Scope: scopeHTTP, Parent: parent,
		Start: start, End: end})
	s.set("http.request.method", "POST")
	s.set("server.address", to)
	s.set("http.response.status_code", whole(status))
	return s.ID
}

// servers adds a span llm_request for each request that a model server finished or aborted.
func (b *builder) servers(n int, prefix string, parent SpanID, legs []leg) {
	var order []string
	visits := map[string][]record.Event{}
	current := map[string]string{} // by endpoint
	for _, e := range b.of(record.Server, n) {
		key := current[e.Endpoint]
		if e.Step == record.Part1Received || e.Step == record.RequestReceived || key == "" {
			key = fmt.Sprintf("%sserver/%s/%d", prefix, e.Endpoint, len(order))
			current[e.Endpoint] = key
			order = append(order, key)
		}
		visits[key] = append(visits[key], e)
	}
	for _, key := range order {
		b.server(key, visits[key], parent, legs)
	}
}

func (b *builder) server(key string, events []record.Event, parent SpanID, legs []leg) {
	start, last := events[0], events[len(events)-1]
	role := ""
	if len(legs) > 0 {
		parent, role = legFor(legs, start)
	}
	parent = b.below(events, parent)
	service := "vllm"
	if role != "" {
		service += "-" + role
	}
	s := b.add(key, Span{Name: "llm_request", Kind: ServerOf, Part: Part{service, start.Endpoint},
		Scope: "vllm.llm_engine", Parent: parent, Start: start.Time, End: last.Time})
	s.set("gen_ai.request.id", b.request)
	s.set("gen_ai.usage.prompt_tokens", whole(start.Details.Get("prompt_tokens")))
	s.set("gen_ai.usage.completion_tokens", whole(last.Details.Get("tokens")))
	if reason := text(last.Details.Get("finish_reason")); reason != "" {
		s.set("gen_ai.response.finish_reasons", fmt.Sprintf("[%q]", reason))
	}
	at := func(step record.Step) (machine.Time, bool) { e, ok := first(events, step); return e.Time, ok }
	token, answered := at(record.FirstTokenSent)
	taken, scheduled := at(record.PrefillStarted)
	if answered {
		s.set("gen_ai.latency.time_to_first_token", (token - start.Time).Seconds())
	}
	s.set("gen_ai.latency.e2e", (last.Time - start.Time).Seconds())
	if scheduled {
		s.set("gen_ai.latency.time_in_queue", (taken - start.Time).Seconds())
	}
	if scheduled && answered {
		s.set("gen_ai.latency.time_in_model_prefill", (token - taken).Seconds())
		s.set("gen_ai.latency.time_in_model_decode", (last.Time - token).Seconds())
		s.set("gen_ai.latency.time_in_model_inference", (last.Time - taken).Seconds())
	}
	if e, ok := first(events, record.Rejected, record.Violation, record.Aborted); ok {
		s.Error = cmp.Or(text(e.Details.Get("reason")), string(e.Step))
	}
}

// legFor returns the leg that reached a server: the last one sent to its endpoint, or else the leg to the sidecar's own
// server.
func legFor(legs []leg, received record.Event) (SpanID, string) {
	for _, l := range slices.Backward(legs) {
		if l.endpoint == received.Endpoint && l.at <= received.Time && l.role != "decode" {
			return l.id, l.role
		}
	}
	for _, l := range slices.Backward(legs) {
		if l.role == "decode" {
			return l.id, l.role
		}
	}
	return legs[len(legs)-1].id, ""
}
