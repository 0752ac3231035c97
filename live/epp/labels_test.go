package epp

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// byProgram makes all metrics distinguish the fairness id: flow control's, the load's and the programs'.
const byProgram = `
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 1000000}}
- {type: inflight-load-producer}
- {type: program-aware-fairness}
- {type: active-request-scorer}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: active-request-scorer}]}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultPriorityBand: {fairnessPolicyRef: program-aware-fairness}
`

// measured is a picking with all its metrics in one registry.
func measured(t *testing.T, text string) (*Picking, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	k := picking(t, text, 2, func(o *PickingOptions) { o.Metrics = NewPickMetrics(reg, "pool") })
	if err := ObservePool(reg, k, "pool"); err != nil {
		t.Fatal(err)
	}
	return k, reg
}

// checkSeries reads the page and says how many series its longest family has,
// and which names and labels there are.
func checkSeries(t *testing.T, reg *prometheus.Registry) (most int, values map[string]bool) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values = map[string]bool{}
	for _, f := range families {
		values[f.GetName()] = true
		most = max(most, len(f.Metric))
		for _, m := range f.Metric {
			for _, l := range m.Label {
				values[l.GetValue()] = true
				if !utf8.ValidString(l.GetValue()) || len(l.GetValue()) > 4*maxLabelBytes ||
					strings.ContainsAny(l.GetValue(), "\x00\x1b\x7f\u009b") {
					t.Errorf("%s has the label %s=%.80q", f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	return most, values
}

// serveOne serves a request from its headers to the end of its response, without
// a wire.
func (k *Picking) serveOne(t *testing.T, head header.List, body string) {
	t.Helper()
	c := newServed(&Server{o: Options{Now: k.o.Now}}, k, deafWire{}, t.Context())
	c.send(stream.Message{Kind: stream.Headers, Head: head})
	c.send(stream.Message{Kind: stream.Body, Body: []byte(body), End: true})
	c.ask()
	c.send(stream.Message{Kind: stream.ResponseHeaders, Head: header.Of(":status", "200")})
	c.in = stream.Message{Kind: stream.ResponseBody,
		Body: []byte(`{"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}`), End: true}
	c.response()
	if r := c.machine.Result(); r != stream.PassedThrough {
		t.Errorf("%.100q: %v", head, r)
	}
}

// Whatever clients call models and themselves, and however many names they
// make up: the page of metrics is there, and its length is bounded.
func TestLabelsThatStrangersMakeUp(t *testing.T) {
	t.Parallel()
	k, reg := measured(t, byProgram)
	ask := func(model, fairness string) {
		t.Helper()
		k.serveOne(t, chatHead("1", picker.HeadersFairness[0], fairness),
			strings.Replace(hello, `"m"`, `"`+model+`"`, 1))
	}
	long := strings.Repeat("ü", 1<<19)
	for _, name := range []string{"known", "\xff", "\xfe", "a\x1b[31m", "nul\x00", long, long + "2", "\u202eevil"} {
		ask("known", name)
	}
	for _, model := range []string{`\u001b[31m`, long} {
		ask(model, "known")
	}
	if _, values := checkSeries(t, reg); !values["known"] || !values["\uFFFD"] || !values["a\uFFFD[31m"] {
		t.Errorf("the labels are %v", values)
	}
	for i := range 4 * maxSeries {
		ask("known", fmt.Sprint("fairness-", i))
	}
	for i := range 2 * maxSeries {
		ask(fmt.Sprint("model-", i), "known")
	}
	most, values := checkSeries(t, reg)
	if most > 2*(maxSeries*3/2+3) { // two endpoints
		t.Errorf("a family has %d series", most)
	}
	if !values["other"] || !values["fairness-1"] || values[fmt.Sprint("fairness-", 4*maxSeries-1)] {
		t.Error("not the first names are told, and others as one")
	}
	if !values["llm_d_epp_program_aware_attained_service_tokens"] {
		t.Error("the programs' figures are missing")
	}
	if !values["model-1"] {
		t.Error("made-up fairness ids leave no room for models")
	}
}

// The gauges of what is under way go back to zero, also for series that came
// after the bound was reached.
func TestGaugesOfBoundedSeriesReturn(t *testing.T) {
	t.Parallel()
	k, reg := measured(t, byProgram)
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range maxSeries / 2 {
				k.serveOne(t, chatHead("1", picker.HeadersFairness[0], fmt.Sprint(c, "-", i)), hello)
			}
		})
	}
	wg.Wait()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	gauges := []string{"llm_d_epp_request_running", "llm_d_epp_flow_control_queue_size",
		"llm_d_epp_flow_control_queue_bytes"}
	for _, f := range families {
		if !slices.Contains(gauges, f.GetName()) {
			continue
		}
		for _, m := range f.Metric {
			if m.Gauge.GetValue() != 0 {
				t.Errorf("%s is left at %v", f.GetName(), m)
			}
		}
	}
}

// A header that is no UTF-8 is a header like any other: the request is answered
// and its stream ends.
func TestHeaderThatIsNoUTF8(t *testing.T) {
	t.Parallel()
	k, reg := measured(t, byProgram)
	rig := startWire(t, k)
	for _, name := range append(picker.HeadersFairness[:],
		append(picker.HeadersObjective[:], picker.HeadersModelRewrite[:]...)...) {
		if said := rig.open(name, "\xff").untilOver("data: {}\n\n"); said != "passed" {
			t.Errorf("%s: the stream ended with %q", name, said)
		}
	}
	until(t, "all streams are over", func() bool { return rig.Active() == 0 })
	checkSeries(t, reg)
	k.checkSettled(t)
}
