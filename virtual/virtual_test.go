package virtual

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

func recorded(t *testing.T, s *scenario.Scenario) []record.Event {
	t.Helper()
	var events []record.Event
	if err := Run(s, record.Func(func(e record.Event) { events = append(events, e) }), nil); err != nil {
		t.Fatal(err)
	}
	return events
}

func outcomes(events []record.Event) map[string]int {
	out := map[string]int{}
	for _, e := range events {
		if e.Step == record.Finished {
			out[e.Details.Get("outcome").(string)]++
		}
	}
	return out
}

// Document 000 in virtual time: every step, in order.
func TestHeldFlow(t *testing.T) {
	s := scenario.Embedded()
	s.Workload.Requests, s.Workload.Concurrency = 50, 7
	events := recorded(t, s)
	if err := record.CheckEdges(events, record.HeldEdges()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"completed": 50}, outcomes(events)); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff(events, recorded(t, s)); d != "" {
		t.Fatal("the same seed gives another run: " + d)
	}
	for i := 1; i < len(events); i++ {
		if events[i].Time < events[i-1].Time {
			t.Fatalf("event %d is earlier than the one before", i)
		}
	}
}

func TestPlainFlow(t *testing.T) {
	s := scenario.Embedded()
	s.Pools[0].Flow = scenario.Plain
	s.Workload.Requests, s.Workload.Rate, s.Workload.Concurrency = 40, 100, 5
	events := recorded(t, s)
	if err := record.CheckEdges(events, record.PlainEdges()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"completed": 40}, outcomes(events)); d != "" {
		t.Fatal(d)
	}
}

// Prefill beyond the hold limit is a 504, and beyond the client's patience the
// client's own; nothing is left behind.
func TestLimits(t *testing.T) {
	s := scenario.Embedded()
	s.Workload.Requests, s.Workload.Concurrency = 20, 20
	s.Pools[0].EPP.HoldLimit = 50e6
	if d := cmp.Diff(map[string]int{"timed_out": 20}, outcomes(recorded(t, s))); d != "" {
		t.Fatal(d)
	}
	s = scenario.Embedded()
	s.Workload.Timeout = 1e6
	if d := cmp.Diff(map[string]int{"timed_out": 3}, outcomes(recorded(t, s))); d != "" {
		t.Fatal(d)
	}
}

// A pool without a picker answers, whatever else it has of one.
func TestPoolWithoutAPicker(t *testing.T) {
	s, err := scenario.Load("../examples/plain.yaml", scenario.Setting{Path: "pools[0].epp", Value: "{replicas: 0}"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"completed": 100}, outcomes(recorded(t, s))); d != "" {
		t.Fatal(d)
	}
}

const scored = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
`

func batching(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: default
    replicas: 4
    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 5ms, outputTokens: 16}
workload: {requests: 200, rate: 50, prompt: {characters: 4000}}
`))
	if err != nil {
		t.Fatal(err)
	}
	s.Pools[0].EPP.Config.File, s.Pools[0].EPP.Config.Text = "picker.yaml", []byte(text)
	return s
}

// The scenario's picker configuration acts in virtual time as it does live:
// one prompt stays where its prefix is; prompts of their own spread.
func TestPickerConfig(t *testing.T) {
	picked := func(s *scenario.Scenario) map[string]int {
		out := map[string]int{}
		events := recorded(t, s)
		if d := cmp.Diff(map[string]int{"completed": 200}, outcomes(events)); d != "" {
			t.Fatal(d)
		}
		for _, e := range events {
			if e.Step == record.EndpointPicked {
				out[e.Endpoint]++
			}
		}
		return out
	}
	if got := picked(batching(t, scored)); len(got) != 4 {
		t.Fatalf("prompts of their own went to %v", got)
	}
	same := batching(t, scored)
	same.Workload.Prompt = scenario.Prompt{Text: strings.Repeat("the same words ", 200)}
	same.Workload.Rate = 1
	if got := picked(same); len(got) != 1 {
		t.Fatalf("one prompt went to %v", got)
	}
}

const controlled = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: queue-scorer
- type: concurrency-detector
  parameters: {maxConcurrency: 1}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer}]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 200ms
`

// Flow control holds requests back and lets them go, or refuses them.
func TestFlowControl(t *testing.T) {
	s := batching(t, controlled)
	got := outcomes(recorded(t, s))
	if got["completed"] == 0 || got["overloaded"] == 0 || got["completed"]+got["overloaded"] != 200 {
		t.Fatalf("got %v", got)
	}
}

func TestBadPickerConfig(t *testing.T) {
	s := batching(t, "plugins: [{type: nothing}]")
	if err := Run(s, nil, nil); err == nil || !strings.Contains(err.Error(), "picker.yaml") {
		t.Fatalf("got %v", err)
	}
}
