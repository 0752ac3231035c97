package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// disaggregated is a request that is prefilled on p and decoded behind the sidecar of d.
func disaggregated(id string) (out []record.Event) {
	add := func(hop record.Hop, step record.Step, endpoint string, details ...record.Detail) {
		out = append(out, record.Event{Time: machine.Time(len(out)+1) * machine.Millisecond, Request: id, Attempt: 1,
			Hop: hop, Step: step, Endpoint: endpoint, Details: details})
	}
	add(record.Client, record.RequestSent, "", record.D("path", "/v1/chat/completions"))
	add(record.EPP, record.RequestReceived, "", record.D("method", "POST"), record.D("path", "/v1/chat/completions"))
	add(record.EPP, record.EndpointPicked, "d:1", record.D("model", "m"),
		record.D(record.Explanation,
			map[string]any{"target_model": "m", "disaggregation": "prefill-decode", "prefill": "p",
				"profiles": []any{map[string]any{"name": "decode", "picked": []any{"d"},
					"scorers": []any{map[string]any{"name": "q", "type": "queue-scorer", "weight": 2.0}},
					"endpoints": []any{map[string]any{"name": "d", "host_port": "d:1", "raw": []any{0.5}, "total": 1.0,
						"picked": true}}}}}))
	add(record.EPP, record.RequestPassed, "d:1")
	add(record.Sidecar, record.RequestReceived, "d:1", record.D("method", "POST"),
		record.D("path", "/v1/chat/completions"))
	add(record.Sidecar, record.PrefillDecided, "p:1", record.D("decision", "disaggregated"),
		record.D("connector", "nixlv2"))
	add(record.Sidecar, record.PrefillLegSent, "p:1")
	add(record.Server, record.RequestReceived, "p:1", record.D("prompt_tokens", 9))
	add(record.Server, record.LastTokenSent, "p:1", record.D("tokens", 1))
	add(record.Sidecar, record.PrefillLegEnded, "p:1", record.D("status", 200))
	add(record.Sidecar, record.DecodeLegSent, "d:1")
	add(record.Server, record.RequestReceived, "d:2")
	add(record.Server, record.PrefillStarted, "d:2")
	add(record.Server, record.FirstTokenSent, "d:2")
	add(record.Server, record.LastTokenSent, "d:2", record.D("tokens", 5), record.D("finish_reason", "stop"))
	add(record.Sidecar, record.ResponseEndSeen, "d:1", record.D("status", 200))
	add(record.EPP, record.ResponseEndSeen, "d:1", record.D("status", 200))
	add(record.Client, record.Finished, "", record.D("outcome", "completed"))
	return out
}

// tree draws spans, each below its parent.
func tree(spans []Span) string {
	var b strings.Builder
	var below func(parent SpanID, trace TraceID, depth int)
	below = func(parent SpanID, trace TraceID, depth int) {
		for _, s := range spans {
			if s.Parent == parent && s.Trace == trace {
				fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat(" ", depth), s.Part.Service, s.Name)
				below(s.ID, trace, depth+1)
			}
		}
	}
	seen := map[TraceID]bool{}
	for _, s := range spans {
		if !seen[s.Trace] {
			seen[s.Trace] = true
			below(SpanID{}, s.Trace, 0)
		}
	}
	return b.String()
}

const picking = `llm-d-epp: gateway.request
  llm-d-epp: gateway.request_orchestration
   llm-d-epp: pick_disagg_profile
   llm-d-epp: run_scheduler_profile
    llm-d-epp: filter_endpoints
    llm-d-epp: llm_d.epp.scoring
     llm-d-epp: llm_d.epp.scorer.queue-scorer
    llm-d-epp: pick_endpoints
   llm-d-epp: pick_disagg_profile
   llm-d-epp: prepare_disaggregation
`

const serving = `llm-d-disagg-sidecar: llm_d.pd_proxy.POST /v1/chat/completions
 llm-d-disagg-sidecar: forward_request
  llm-d-disagg-sidecar: prefill
   llm-d-disagg-sidecar: HTTP POST
    vllm-prefill: llm_request
  llm-d-disagg-sidecar: decode
   llm-d-disagg-sidecar: HTTP POST
    vllm-decode: llm_request
`

const extProc = "envoy: async envoy.service.ext_proc.v3.ExternalProcessor.Process egress\n"

func indent(by int, text string) string {
	return strings.ReplaceAll(strings.Repeat(" ", by)+strings.TrimSuffix(text, "\n"), "\n",
		"\n"+strings.Repeat(" ", by)) + "\n"
}

// The picker's lines stand one deeper already.
func pickingAt(depth int) string {
	return indent(depth, strings.ReplaceAll(picking, "\n  ", "\n "))
}

// The parents of all spans, in each topology.
func TestParents(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"Envoy does not trace": {Options{},
			"windtunnel: chat m\n" + pickingAt(1) + indent(2, serving)},
		"nor does the client": {Options{UntracedClient: true}, pickingAt(0) + indent(1, serving)},
		"Envoy traces": {Options{Gateway: true},
			"windtunnel: chat m\n envoy: ingress\n" + indent(2, extProc) + indent(2, serving) + pickingAt(1)},
		"Envoy traces each try": {Options{Gateway: true, Egress: true},
			"windtunnel: chat m\n envoy: ingress\n" + indent(2, extProc) + "  envoy: router egress\n" +
				indent(3, serving) + pickingAt(1)},
		"Envoy traces and the client does not: two": {Options{Gateway: true, UntracedClient: true},
			"envoy: ingress\n" + indent(1, extProc) + indent(1, serving) + pickingAt(0)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tree(Of(disaggregated("r"), c.o)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// ids are the ids of a run in which every part traces.
var ids = &tracing.IDs{Salt: 7, Share: 1}

// carried returns events of a request with the traceparent that each part received, from a client that sent the first.
func carried(first string) []record.Event {
	out := disaggregated("r")
	gateway := ids.Next(first, "r", tracing.Gateway(1))
	legs := []string{ids.Next(gateway, "r", tracing.Leg(1, 0)), ids.Next(gateway, "r", tracing.Leg(1, 1))}
	for i := range out {
		got := ""
		switch e := &out[i]; {
		case e.Step != record.RequestReceived:
		case e.Hop == record.EPP:
			got = first
		case e.Hop == record.Sidecar:
			got = gateway
		case e.Endpoint == "p:1":
			got = legs[0]
		default:
			got = legs[1]
		}
		if got != "" {
			out[i].Details = append(out[i].Details, record.D(tracing.Header, got))
		}
	}
	return out
}

// part returns the events of some hops, as a part that runs alone records them.
func part(events []record.Event, hops ...record.Hop) []record.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e record.Event) bool { return !slices.Contains(hops, e.Hop) })
}

// Parts pass on the ids of the spans that they send. The spans of all parts form one trace, whether one process has all
// events or each part only its own.
func TestParentsAsCarried(t *testing.T) {
	o := Options{Salt: 7}
	if got, want := tree(Of(carried(ids.Next("", "r", tracing.Client)), o)),
		"windtunnel: chat m\n"+pickingAt(1)+indent(2, serving); got != want {
		t.Errorf("our own client: got\n%s\nwant\n%s", got, want)
	}
	const theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, first := range map[string]string{"somebody else's client": theirs, "a client that does not trace": ""} {
		events := part(carried(first), record.EPP, record.Sidecar, record.Server)
		together := Of(events, o)
		var apart []Span
		for _, hop := range []record.Hop{record.EPP, record.Sidecar} {
			apart = append(apart, Of(part(events, hop), o)...)
		}
		for _, endpoint := range []string{"p:1", "d:2"} {
			apart = append(apart, Of(
				slices.DeleteFunc(part(events, record.Server),
					func(e record.Event) bool { return e.Endpoint != endpoint }),
				o)...)
		}
		for which, spans := range map[string][]Span{"together": together, "apart": apart} {
			root := spans[0]
			c, traced := tracing.Parse(first)
			if traced && (root.Trace != c.Trace || root.Parent != c.Span) || !traced &&
				(root.Parent != SpanID{} || root.Trace != ids.Trace("r", tracing.Client)) {
				t.Errorf("%s, %s: the picker's span is in trace %x below %x", name, which, root.Trace, root.Parent)
			}
			for i := range spans { // tree wants a root, and no role where nobody knows of a sidecar
				if spans[i].Parent == root.Parent {
					spans[i].Parent = SpanID{}
				}
				if spans[i].Name == "llm_request" && which == "apart" {
					spans[i].Part.Service = map[string]string{"p:1": "vllm-prefill",
						"d:2": "vllm-decode"}[spans[i].Part.Instance]
				}
			}
			if got, want := tree(spans), pickingAt(0)+indent(1, serving); got != want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", name, which, got, want)
			}
		}
	}
	if n := len(Of(part(carried(theirs[:52]+"-00"), record.EPP), o)); n != 0 {
		t.Errorf("%d spans of a trace that its client does not want", n)
	}
}

// A part that runs alone ends a request by its own last step.
func TestCollectorOfOnePart(t *testing.T) {
	for _, hop := range []record.Hop{record.EPP, record.Sidecar, record.Server} {
		got := 0
		c := NewCollector(func(e []record.Event) { got++ })
		for _, e := range part(carried(""), hop) {
			c.Record(e)
		}
		c.Settle(60 * machine.Second)
		if got != 1 {
			t.Errorf("%s: emitted %d times", hop, got)
		}
		c.Close()
	}
}

// The attributes of a span come from the events, live or from a recording.
func TestAttributes(t *testing.T) {
	var recorded []record.Event
	for _, e := range disaggregated("r") {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back record.Event
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatal(err)
		}
		recorded = append(recorded, back)
	}
	a, b := Of(disaggregated("r"), Options{Salt: 1}), Of(recorded, Options{Salt: 1})
	if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
		t.Errorf("a recording makes other spans:\n%s\n%s", x, y)
	}
	got := map[string]any{}
	for _, s := range a {
		for _, x := range s.Attributes {
			got[s.Part.Service+" "+x.Key] = x.Value
		}
	}
	for key, want := range map[string]any{"vllm-decode gen_ai.usage.completion_tokens": 5,
		"vllm-decode gen_ai.latency.time_to_first_token": 0.002,
		"vllm-decode gen_ai.response.finish_reasons":     `["stop"]`,
		"vllm-prefill gen_ai.usage.prompt_tokens":        9, "llm-d-epp llm_d.epp.scorer.score.max": 0.5,
		"llm-d-disagg-sidecar llm_d.pd_proxy.disaggregation_used": true, "llm-d-epp target_model": "m"} {
		if got[key] != want {
			t.Errorf("%s: got %v, want %v", key, got[key], want)
		}
	}
	if Of(disaggregated("r"), Options{Salt: 2})[0].Trace == a[0].Trace {
		t.Error("two runs share a trace")
	}
}

// Each request is emitted once, whatever hop ends it, and one without an end at Close.
func TestCollector(t *testing.T) {
	var got []string
	c := NewCollector(func(e []record.Event) { got = append(got, fmt.Sprint(e[0].Request, len(e))) })
	for _, e := range disaggregated("a") {
		c.Record(e)
	}
	for _, e := range disaggregated("b") {
		if e.Hop != record.Client { // nobody hears of b's client
			c.Record(e)
		}
	}
	c.Record(record.Event{Time: 10 * machine.Second, Request: "c", Hop: record.EPP, Step: record.RequestReceived})
	if fmt.Sprint(got) != "[b16 a18]" && fmt.Sprint(got) != "[a18 b16]" {
		t.Fatal(got)
	}
	c.Record(record.Event{Time: 10 * machine.Second, Request: "a", Hop: record.Envoy, Step: record.Logged})
	if n := c.Close(); n != 0 || len(got) != 3 || got[2] != "c1" {
		t.Fatal(n, got)
	}
}

// In the native format every slice that begins ends, in order, on a track that was described.
func TestPerfettoNests(t *testing.T) {
	var spans []Span
	for i := range 5 {
		events := disaggregated(record.RequestID(1, i+1))
		for j := range events {
			events[j].Time += machine.Time(i) * 3 * machine.Millisecond // they overlap
		}
		spans = append(spans, Of(events, Options{})...)
	}
	var b bytes.Buffer
	if err := WritePerfetto(&b, spans, nil); err != nil {
		t.Fatal(err)
	}
	tracks, depth, last, begins := map[uint64]bool{}, map[uint64]int{}, map[uint64]uint64{}, 0
	for packet := range fields(t, b.Bytes(), tracePacket) {
		for d := range fields(t, packet, packetDescriptor) {
			tracks[one(t, d, trackUUID)] = true
		}
		for e := range fields(t, packet, packetEvent) {
			at, track := one(t, packet, packetTime), one(t, e, eventTrack)
			if !tracks[track] {
				t.Fatal("an event on a track that was not described")
			}
			kind := one(t, e, eventType)
			if kind != instant {
				if at < last[track] {
					t.Fatalf("track %d goes back from %d to %d", track, last[track], at)
				}
				last[track] = at
			}
			switch kind {
			case sliceBegin:
				begins++
				depth[track]++
			case sliceEnd:
				if depth[track]--; depth[track] < 0 {
					t.Fatal("a slice ends that did not begin")
				}
			}
		}
	}
	for track, d := range depth {
		if d != 0 {
			t.Errorf("track %d: %d slices do not end", track, d)
		}
	}
	if begins != len(spans) {
		t.Errorf("%d of %d spans are slices", begins, len(spans))
	}
	var out bytes.Buffer
	if err := WriteChrome(&out, spans, nil); err != nil || !json.Valid(out.Bytes()) ||
		strings.Count(out.String(), `"ph":"X"`) != len(spans) {
		t.Errorf("Chrome's JSON: %v", err)
	}
}

// Pods have counters below their own track, once for each change, and incidents are a
// track; the same in Chrome's JSON.
func TestAround(t *testing.T) {
	var a Around
	a.Sample(1, "d:2", 1, 2, 0.25)
	a.Sample(2, "d:2", 1, 2, 0.25) // nothing new
	a.Sample(3, "elsewhere:1", 0, 0, 0)
	a.Event(record.Event{Time: 4, Hop: record.Server, Step: record.IncidentBegan, Endpoint: "d:2",
		Details: record.Details{record.D("what", "crash")}})
	// too many to be moments
	a.Event(record.Event{Time: 5, Hop: record.Server, Step: record.EngineStep, Endpoint: "d:2"})
	a.Event(record.Event{Time: 99, Hop: record.Server, Step: record.IncidentEnded})
	a.Until(50)
	var b bytes.Buffer
	spans := Of(disaggregated("r"), Options{})
	if err := WritePerfetto(&b, spans, &a); err != nil {
		t.Fatal(err)
	}
	names, parents, got := map[uint64]string{}, map[uint64]uint64{}, []string{}
	for packet := range fields(t, b.Bytes(), tracePacket) {
		for d := range fields(t, packet, packetDescriptor) {
			for n := range fields(t, d, trackName) {
				names[one(t, d, trackUUID)] = string(n)
			}
			for range fields(t, d, trackCounts) {
				parents[one(t, d, trackUUID)] = one(t, d, trackParent)
			}
		}
		for e := range fields(t, packet, packetEvent) {
			track := one(t, e, eventTrack)
			switch one(t, e, eventType) {
			case count:
				v := "25"
				if names[track] != "KV cache (%)" {
					v = fmt.Sprint(one(t, e, eventCount))
				} else if one(t, packet, packetTime) == 3 {
					v = "0"
				}
				got = append(got, fmt.Sprint(one(t, packet, packetTime), " ", names[parents[track]], " ", names[track],
					" ", v))
			case instant:
				if names[track] == "incidents" {
					for n := range fields(t, e, eventName) {
						got = append(got, string(n))
					}
				}
			}
		}
	}
	want := []string{"1 vllm-decode d:2 waiting 1", "1 vllm-decode d:2 running 2", "1 vllm-decode d:2 KV cache (%) 25",
		"3 elsewhere:1 waiting 0", "3 elsewhere:1 running 0", "3 elsewhere:1 KV cache (%) 0", "incident_began crash"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	b.Reset()
	if err := WriteChrome(&b, spans, &a); err != nil || strings.Count(b.String(), `"ph":"C"`) != 4 ||
		!strings.Contains(b.String(), `"name":"incident_began crash"`) {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func fields(t *testing.T, b []byte, want protowire.Number) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			number, kind, n := protowire.ConsumeTag(b)
			m := protowire.ConsumeFieldValue(number, kind, b[max(n, 0):])
			if n < 0 || m < 0 {
				t.Fatal("no protobuf")
			}
			if number == want && kind == protowire.BytesType {
				v, _ := protowire.ConsumeBytes(b[n:])
				if !yield(v) {
					return
				}
			}
			b = b[n+m:]
		}
	}
}

func one(t *testing.T, b []byte, want protowire.Number) uint64 {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if number == want {
			v, _ := protowire.ConsumeVarint(b[n:])
			return v
		}
		b = b[n+protowire.ConsumeFieldValue(number, kind, b[n:]):]
	}
	t.Fatalf("field %d is missing", want)
	return 0
}

func TestMermaid(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMermaid(&b, disaggregated("r")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sequenceDiagram\n", "participant p0 as client", "as server d#58;2",
		": 6.000 ms prefill\n", "endpoint_picked d#58;1", "finished completed"} {
		if !strings.Contains(strings.ReplaceAll(b.String(), "endpoint_picked d 1", "endpoint_picked d#58;1"), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// No recording causes a panic.
func FuzzOf(f *testing.F) {
	for _, e := range disaggregated("r") {
		line, _ := json.Marshal(e)
		f.Add(line)
	}
	f.Add([]byte(`{"time":1,"request":"r","hop":"sidecar","step":"encode_leg_sent","details":{"item":{}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e record.Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		spans := Of(append(disaggregated(e.Request), e), Options{Gateway: true, Egress: true})
		var around Around
		around.Event(e)
		around.Sample(e.Time, e.Endpoint, 1, -1, 0.5)
		for _, err := range []error{WritePerfetto(&bytes.Buffer{}, spans, &around),
			WriteMermaid(&bytes.Buffer{}, []record.Event{e})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := WriteChrome(&bytes.Buffer{}, spans, &around); err != nil {
			t.Fatal(err)
		}
	})
}
