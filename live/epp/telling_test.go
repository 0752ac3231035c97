package epp

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/core/picker/preview"
	"github.com/windtunnel/windtunnel/core/stream"
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

func told(t *testing.T) (*Picking, *bytes.Buffer) {
	t.Helper()
	k := picking(t, disaggregated, 3)
	var log bytes.Buffer
	k.o.Log = slog.New(slog.NewJSONHandler(&log, nil))
	k.o.Explain, k.o.DocumentHeaders, k.o.History = true, true, 10
	role := func(r string) map[string]string { return map[string]string{picker.LabelRole: r} }
	k.With(func(p *picker.Picker, _ machine.Time) {
		p.Pool().Set([]*picker.Endpoint{
			picker.NewEndpoint("default", "decode-0", "127.0.0.1", "8000", role("decode")),
			picker.NewEndpoint("default", "prefill-0", "127.0.0.2", "8000", role("prefill")),
		})
	})
	return k, &log
}

// The keys that document 003 tells people to look for are on one line at info.
func TestLogHasTheDocumentsKeys(t *testing.T) {
	k, log := told(t)
	_, x := k.Decide(context.Background(), chat(1))
	x.(starter).Sent()
	defer x.End(stream.PassedThrough)
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

// A request that asks is told in its response where it went and why.
func TestResponseHeadersOnRequest(t *testing.T) {
	k, _ := told(t)
	get := func(set header.List) map[string]string {
		out := map[string]string{}
		for _, h := range set {
			out[h.Name] = h.Value
		}
		return out
	}
	ok := header.Of(":status", "200")
	d, x := k.Decide(context.Background(), chat(1))
	got := get(x.ResponseHeaders(ok))
	x.End(stream.PassedThrough)
	if got["x-selected-pod"] != "decode-0" || got["x-prefill-pod"] != "" {
		t.Errorf("unasked: %v", got)
	}
	if h := get(d.Set); h["x-target-pod"] != "127.0.0.1:8000" || h["x-selected-pod"] != "decode-0" {
		t.Errorf("request headers: %v", h)
	}
	r := chat(2)
	r.Head = append(r.Head, header.Header{Name: "x-windtunnel-explain", Value: "true"})
	_, x = k.Decide(context.Background(), r)
	got = get(x.ResponseHeaders(ok))
	x.End(stream.PassedThrough)
	for name, want := range map[string]string{"x-selected-pod": "decode-0", "x-decode-pod": "decode-0", "x-prefill-pod": "prefill-0",
		"x-cache-hit": "true", "x-windtunnel-scores": "decode-0=1"} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	if got["x-scheduling-time-ms"] == "" || got["x-filter-time-ms"] == "" || got["x-cache-prefix-length"] == "0" {
		t.Errorf("times or length are missing: %v", got)
	}
}

// The request's record, the page and Explain tell the same.
func TestOneDecisionIsToldEverywhere(t *testing.T) {
	k, _ := told(t)
	d, x := k.Decide(context.Background(), chat(7))
	x.End(stream.PassedThrough)
	text, _ := flow.Details(d.Details).Get(flow.Explanation).(string)
	var recorded picker.Explanation
	if err := json.Unmarshal([]byte(text), &recorded); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	k.Pages()["GET /debug/decisions"].ServeHTTP(w, httptest.NewRequest("GET", "/debug/decisions?request=7", nil))
	var page []picker.Explanation
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page) != 1 {
		t.Fatal(err, w.Body)
	}
	var a, b strings.Builder
	if err := recorded.WriteTable(&a); err != nil {
		t.Fatal(err)
	}
	if err := page[0].WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() || !strings.Contains(a.String(), "prefill on prefill-0") ||
		!strings.Contains(a.String(), "decode-filter removed prefill-0 (its role is prefill)") {
		t.Errorf("recorded:\n%s\npage:\n%s", &a, &b)
	}
}

// The pool's page is a state that preview reads: figures, and what is in
// flight.
func TestLiveStateIsPreviewed(t *testing.T) {
	k := picking(t, "plugins: [{type: active-request-scorer}, {type: queue-scorer}]", 2)
	k.o.History = 10
	k.With(func(p *picker.Picker, now machine.Time) {
		p.Pool().Update(now, []int{0, 1}, func(_ int, s *picker.State) { s.Waiting = 3 })
	})
	d, x := k.Decide(context.Background(), chat(1))
	defer x.End(stream.PassedThrough)
	w := httptest.NewRecorder()
	k.Pages()["GET /debug/state"].ServeHTTP(w, httptest.NewRequest("GET", "/debug/state", nil))
	s, err := preview.ReadState(w.Body.Bytes())
	if err != nil {
		t.Fatal(err, w.Body)
	}
	p, err := preview.Build(k.p.Config(), plugins.Builtin(), picker.Options{}, s)
	if err != nil {
		t.Fatal(err)
	}
	next, err := preview.Pick(p, 0, &preview.Request{Body: string(chat(2).Body)}, "next")
	if err != nil {
		t.Fatal(err)
	}
	if next.Destination() == d.Endpoint || next.View.States[0].Waiting != 3 {
		t.Errorf("the request in flight on %s does not count: %s", d.Endpoint, next.Destination())
	}
}
