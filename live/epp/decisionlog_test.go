package epp

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/picker/preview"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

const disaggregated = `
plugins:
- {type: decode-filter}
- {type: prefill-filter}
- {type: prefix-cache-scorer}
- {type: always-disagg-pd-decider}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: prefix-cache-scorer}]}
- {name: prefill, plugins: [{pluginRef: prefill-filter}]}
`

// decisionsOnly leaves out what is said of endpoints that nobody serves.
type decisionsOnly struct{ slog.Handler }

// Handle takes a line.
func (h decisionsOnly) Handle(ctx context.Context, r slog.Record) error {
	if r.Message != "scheduling decision" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func newLogged(t *testing.T, change ...func(o *PickingOptions)) (*Picking, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	k := picking(t, disaggregated, 0, func(o *PickingOptions) {
		o.Log = slog.New(decisionsOnly{slog.NewJSONHandler(&log, nil)})
		o.Explain, o.DocumentHeaders, o.History = record.DefaultExplained, true, 10
		o.Stream.Recorder = record.Func(func(record.Event) {})
		for _, f := range change {
			f(o)
		}
	})
	role := func(r string) map[string]string { return map[string]string{picker.LabelRole: r} }
	k.SetEndpoints([]*picker.Endpoint{
		picker.NewEndpoint("default", "decode-0", "127.0.0.1", "8000", role("decode")),
		picker.NewEndpoint("default", "prefill-0", "127.0.0.2", "8000", role("prefill")),
	})
	return k, &log
}

// The keys that document 003 names are on one line at info.
func TestLogHasTheDocumentsKeys(t *testing.T) {
	k, log := newLogged(t)
	defer k.testAsk(context.Background(), chat(1), hello).leave()
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatal(err, log)
	}
	for key, want := range map[string]string{"selected_pod": "decode-0", "prefill_pod": "prefill-0", "request_id": "1",
		"filter_result": "decode 2->1", "scorer_result": "decode-0=0"} {
		if got, _ := line[key].(string); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if _, ok := line["scheduling_duration"]; !ok || line["level"] != "INFO" {
		t.Errorf("no scheduling_duration at info in %v", line)
	}
}

// The response to a request that asks for the reasons has them in its headers.
func TestResponseHeadersOnRequest(t *testing.T) {
	k, _ := newLogged(t)
	get := func(set header.List) map[string]string {
		out := map[string]string{}
		for _, h := range set {
			out[h.Name] = h.Value
		}
		return out
	}
	ok := header.Of(":status", "200")
	x := k.testAsk(context.Background(), chat(1), hello)
	got := get(x.respond(ok, ""))
	x.leave()
	if got["x-selected-pod"] != "decode-0" || got["x-prefill-pod"] != "prefill-0" || got["x-decode-pod"] != "" {
		t.Errorf("unasked: %v", got)
	}
	if h := get(x.set); h["x-target-pod"] != "127.0.0.1" || h["x-selected-pod"] != "decode-0" {
		t.Errorf("request headers: %v", h)
	}
	x = k.testAsk(context.Background(), chatHead("2", "x-windtunnel-explain", "true"), hello)
	got = get(x.respond(ok, ""))
	x.leave()
	for name, want := range map[string]string{"x-selected-pod": "decode-0", "x-decode-pod": "decode-0",
		"x-prefill-pod": "prefill-0",
		"x-cache-hit":   "true", "x-windtunnel-scores": "decode-0=1"} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	if got["x-scheduling-time-ms"] == "" || got["x-filter-time-ms"] == "" || got["x-cache-prefix-length"] == "0" {
		t.Errorf("times or length are missing: %v", got)
	}
}

// The request's record, the page and Explain report the same decision.
func TestOneDecisionIsReportedEverywhere(t *testing.T) {
	var recorded *picker.Explanation
	k, _ := newLogged(t, func(o *PickingOptions) {
		o.Stream.Recorder = record.Func(func(e record.Event) {
			if e.Step == record.EndpointPicked {
				recorded, _ = e.Details.Get(record.Explanation).(*picker.Explanation)
			}
		})
	})
	k.testAsk(context.Background(), chat(7), hello).leave()
	if recorded == nil {
		t.Fatal("the record explains nothing")
	}
	w := httptest.NewRecorder()
	k.Pages()["GET /debug/decisions"].ServeHTTP(w, httptest.NewRequest("GET", "/debug/decisions?request=7", nil))
	var page []picker.Explanation
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page) != 1 {
		t.Fatal(err, w.Body)
	}
	var a, b strings.Builder
	if err := recorded.WriteTable(&a, 0); err != nil {
		t.Fatal(err)
	}
	if err := page[0].WriteTable(&b, 0); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() || !strings.Contains(a.String(), "prefill on prefill-0") ||
		!strings.Contains(a.String(), "decode-filter removed prefill-0 (its role is prefill)") {
		t.Errorf("recorded:\n%s\npage:\n%s", &a, &b)
	}
}

// The pool's page is a state that preview reads: metrics, and what is in
// flight.
func TestLiveStateIsPreviewed(t *testing.T) {
	k := picking(t, "plugins: [{type: active-request-scorer}, {type: queue-scorer}]", 2,
		func(o *PickingOptions) { o.History = 10 })
	k.waiting(3, 3)
	d := k.testAsk(context.Background(), chat(1), hello)
	defer d.leave()
	w := httptest.NewRecorder()
	k.Pages()["GET /debug/state"].ServeHTTP(w, httptest.NewRequest("GET", "/debug/state", nil))
	s, err := preview.ReadState("state.yaml", w.Body.Bytes())
	if err != nil {
		t.Fatal(err, w.Body)
	}
	p, err := preview.Build(k.o.Picker.Config(), plugins.Builtin(), picker.Options{}, s)
	if err != nil {
		t.Fatal(err)
	}
	next, err := preview.Pick(p, 0, &preview.Request{Body: hello}, "next")
	if err != nil {
		t.Fatal(err)
	}
	if next.Destination() == d.endpoint || next.View.States[0].Waiting != 3 {
		t.Errorf("the request in flight on %s does not count: %s", d.endpoint, next.Destination())
	}
}
