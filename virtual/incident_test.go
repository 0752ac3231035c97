package virtual

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// A dead server answers 503 until the picker has seen it fail three times, is
// then left out, and comes back with an empty cache.
func TestLostRank(t *testing.T) {
	s, err := scenario.Parse("x.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  modelServer: {batching: continuous, coefficients: {step: 1s}, outputTokens: 2, numGPUBlocks: 4096, maxModelLen: 16384, tensorParallelSize: 2}
  incidents: [{at: 500ms, what: lose-rank, rank: 1, for: 3s}]
workload: {requests: 5, conversations: {turns: 5, thinkTime: 900ms}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range recorded(t, s) {
		switch {
		case e.Step == record.Rejected, e.Step == record.Aborted:
			told = append(told, fmt.Sprint("server: ", e.Details.Get("reason")))
		case e.Step == record.Answered:
			told = append(told, fmt.Sprint("epp: ", e.Details.Get("reason")))
		case e.Step == record.Finished:
			told = append(told, fmt.Sprint(e.Details.Get("status")))
		}
	}
	want := "[server: The engine died. 500 server: The engine is dead: it crashed or lost a rank. 503 epp: " +
		"ServiceUnavailable: screeners eliminated all endpoint candidates 503 epp: ServiceUnavailable: screeners " +
		"eliminated all endpoint candidates 503 200]"
	if got := fmt.Sprint(told); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// slow plays requests to two servers. The first one becomes slow and delays its metrics by this time. picks counts the
// requests of each server from some seconds later on.
func slow(t *testing.T, delay string) (picks [2]int) {
	t.Helper()
	s, err := scenario.Parse("x.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  replicas: 2
  modelServer: {batching: continuous, coefficients: {step: 10ms}, outputTokens: 20}
  epp:
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      plugins: [{type: queue-scorer}, {type: running-requests-size-scorer}]
      schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}, {pluginRef: running-requests-size-scorer}]}]
  incidents: [{at: 1s, what: slow-down, server: 0, factor: 10}, {at: 1s, what: slow-metrics, server: 0, delay: `+delay+`}]
workload: {requests: 400, rate: 40}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range recorded(t, s) {
		if e.Step == record.EndpointPicked && e.Time > 5*machine.Second {
			picks[e.Endpoint[len("10.0.0.")]-'1']++
		}
	}
	return picks
}

// A picker keeps away from a slow server as far as it knows: what it goes by is the last
// page that came in time.
func TestSlowMetrics(t *testing.T) {
	soon, never, again := slow(t, "1ms")[0], slow(t, "5s")[0], slow(t, "5s, for: 3s")[0]
	if 2*soon >= never {
		t.Errorf("the slow server was picked %d times where its metrics came soon, and %d where they never came", soon,
			never)
	}
	if 2*again >= never {
		t.Errorf("the slow server was picked %d times after its metrics came again, and %d where they never came",
			again, never)
	}
}

// Steps take factor times as long while a server is slow, and as long as before afterwards.
func TestSlowDown(t *testing.T) {
	began := map[string]machine.Time{}
	var took []string
	for _, e := range recorded(t, parsed(t, `
pools:
- name: a
  modelServer: {batching: continuous, coefficients: {step: 10ms}, outputTokens: 11}
  incidents: [{at: 2s, what: slow-down, factor: 2.5, for: 2s}]
hops: {network: 0ms, envoy: 0ms, extProc: 0ms, sidecar: 0ms}
workload: {requests: 6, rate: 1, arrivals: constant}
`)) {
		switch {
		case e.Hop == record.Server && e.Step == record.FirstTokenSent:
			began[e.Request] = e.Time
		case e.Hop == record.Server && e.Step == record.LastTokenSent:
			took = append(took, (e.Time - began[e.Request]).String())
		}
	}
	if got := fmt.Sprint(took); got != "[0.1s 0.25s 0.25s 0.1s 0.1s 0.1s]" {
		t.Errorf("ten tokens of requests at 1 to 6 s took %s, of which those at 2 and 3 s are slow", got)
	}
}

// KV caches that travel as an incident begins are lost, and with for those, too, that begin to
// travel before it is over; who comes later is served.
func TestLoseTransfers(t *testing.T) {
	for incident, want := range map[string]string{"at: 2100ms": "[4]", "at: 2100ms, for: 2s": "[4 5 6 7 8]"} {
		var failed []string
		for _, e := range recorded(t, parsed(t, `
pools:
- name: a
  sidecar: routing
  disaggregation: {prefillReplicas: 1, nic: ethernet-10}
  modelServer: {batching: continuous, accelerator: H100, outputTokens: 5}
  incidents: [{`+incident+`, what: lose-transfers, server: 1}]
workload: {requests: 12, rate: 2, arrivals: constant, prompt: {tokens: 2000}}
`)) {
			if e.Step == record.Finished && fmt.Sprint(e.Details.Get("outcome")) != "completed" {
				failed = append(failed, strings.TrimLeft(e.Request[len("req-1-"):], "0"))
			}
		}
		if fmt.Sprint(failed) != want {
			t.Errorf("%s: requests %v failed, expected %s", incident, failed, want)
		}
	}
}

// An engine that crashed stays dead where nobody says for how long.
func TestCrashedStaysDead(t *testing.T) {
	for spell, want := range map[string][2]int{"": {2, 0}, ", for: 1s": {2, 7}} {
		before, after := 0, 0
		for _, e := range recorded(t, parsed(t, `
pools:
- name: a
  modelServer: {batching: continuous, coefficients: {step: 1ms}, outputTokens: 2}
  incidents: [{at: 2500ms, what: crash`+spell+`}]
workload: {requests: 12, rate: 1, arrivals: constant}
`)) {
			if e.Step == record.Finished && fmt.Sprint(e.Details.Get("outcome")) == "completed" {
				if e.Time < 2500*machine.Millisecond {
					before++
				} else if e.Time > 5*machine.Second {
					after++
				}
			}
		}
		if before != want[0] || after < want[1] || want[1] == 0 && after > 0 {
			t.Errorf("crash%s: %d completed before and %d well after", spell, before, after)
		}
	}
}
