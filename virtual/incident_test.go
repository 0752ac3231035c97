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
  epp:
    config:
      plugins: [{type: health-data-source}, {type: random-picker}]
      dataLayer: {sources: [{pluginRef: health-data-source}]}
  incidents: [{at: 500ms, what: lose-rank, rank: 1, for: 3s}]
workload: {requests: 5, conversations: {turns: 5, thinkTime: 900ms}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, e := range recorded(t, s) {
		switch {
		case e.Step == record.Rejected, e.Step == record.Aborted:
			reasons = append(reasons, fmt.Sprint("server: ", e.Details.Get("reason")))
		case e.Step == record.Answered:
			reasons = append(reasons, fmt.Sprint("epp: ", e.Details.Get("reason")))
		case e.Step == record.Finished:
			reasons = append(reasons, fmt.Sprint(e.Details.Get("status")))
		}
	}
	want := "[server: The engine died. 500 server: The engine is dead: it crashed or lost a rank. 503 epp: " +
		"ServiceUnavailable: screeners eliminated all endpoint candidates 503 epp: ServiceUnavailable: screeners " +
		"eliminated all endpoint candidates 503 200]"
	if got := fmt.Sprint(reasons); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A server that stays dead is no endpoint once its readiness probe has failed three times, within 15 s, whatever the
// picker's configuration; the record of the run replays the same decisions.
func TestDeadServerIsNotReady(t *testing.T) {
	for _, incident := range []string{"crash", "kill-server", "crash, for: 30s"} {
		picked := map[bool]int{}
		s := parsed(t, `
pools:
- name: a
  replicas: 2
  modelServer: {batching: continuous, coefficients: {step: 1ms}, outputTokens: 2}
  incidents: [{at: 8s, server: 1, what: `+incident+`}]
workload: {requests: 120, rate: 2, arrivals: constant}
`)
		for _, e := range recorded(t, s) {
			switch {
			case e.Step != record.EndpointPicked || e.Endpoint != "10.0.0.2:8000":
			case e.Time > 23*machine.Second && e.Time < 38*machine.Second:
				t.Errorf("%s: the dead server is picked at %v", incident, e.Time)
			default:
				picked[e.Time < 38*machine.Second]++
			}
		}
		if picked[true] == 0 || picked[false] > 0 != (incident == "crash, for: 30s") {
			t.Errorf("%s: the server is picked %d times before it is found dead, %d times from 38 s on", incident,
				picked[true], picked[false])
		}
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

// during counts the outcomes of requests that are sent before, during and after an incident from 2 s to 4 s, at a rate
// of 10 to a pool with further lines, and returns the longest time of those that completed during it.
func during(t *testing.T, incident string, pool ...string) (outcomes [3]map[string]int, longest machine.Time) {
	t.Helper()
	sent := map[string]machine.Time{}
	for i := range outcomes {
		outcomes[i] = map[string]int{}
	}
	for _, e := range recorded(t, parsed(t, `
pools:
- name: a
  modelServer: {batching: continuous, coefficients: {step: 1ms}, outputTokens: 2}
  incidents: [`+incident+`]
  `+strings.Join(pool, "\n  ")+`
workload: {requests: 60, rate: 10, arrivals: constant, timeout: 10s}
`)) {
		switch {
		case e.Step == record.RequestSent:
			sent[e.Request] = e.Time
		case e.Step == record.Finished:
			at, i := sent[e.Request], 0
			if at >= 4*machine.Second {
				i = 2
			} else if at >= 2*machine.Second {
				i, longest = 1, max(longest, e.Time-at)
			}
			outcomes[i][fmt.Sprint(e.Details.Get("outcome"))]++
		}
	}
	return outcomes, longest
}

// A part that is killed or cut off fails requests, one that stops or is far away delays them, and none of that lasts
// longer than the incident.
func TestTroublesPass(t *testing.T) {
	for _, c := range []struct {
		incident, outcome string
		delayed           machine.Time
		pool              string
	}{
		{"{at: 2s, what: kill-server, for: 2s}", "unavailable", 0, ""},
		{"{at: 2s, what: cut-server, for: 2s}", "unavailable", 0, ""},
		{"{at: 2s, what: cut-epp, for: 2s}", "unavailable", 0, ""},
		{"{at: 2s, what: pause-server, for: 2s}", "", 1900 * machine.Millisecond, "epp: {replicas: 0}"},
		{"{at: 2s, what: pause-epp, for: 2s}", "completed", 1900 * machine.Millisecond, ""},
		{"{at: 2s, what: delay-server, for: 2s, delay: 100ms}", "completed", 200 * machine.Millisecond, ""},
		{"{at: 2s, what: delay-epp, for: 2s, delay: 100ms}", "completed", 400 * machine.Millisecond, ""},
		{"{at: 2s, what: delay-clients, for: 2s, delay: 100ms}", "completed", 200 * machine.Millisecond, ""},
		{"{at: 2050ms, what: delay-server, for: 1s, delay: 500ms}, {at: 2100ms, what: cut-clients}", "broken", 0, ""},
		{"{at: 2s, what: jump-clock, delay: 2s}", "completed", 0, ""},
	} {
		pool := []string{c.pool}
		if c.pool != "" {
			pool = append(pool, "flow: plain")
		}
		got, longest := during(t, c.incident, pool...)
		if got[0]["completed"] < 18 || got[2]["completed"] < 15 {
			t.Errorf("%s: %v before, %v after", c.incident, got[0], got[2])
		}
		if c.outcome != "" && got[1][c.outcome] == 0 && got[0][c.outcome] == 0 || longest < c.delayed {
			t.Errorf("%s: during it %v, the longest %v; expected some %s, and %v", c.incident, got[1], longest,
				c.outcome, c.delayed)
		}
	}
}

// A picker that is shown an idle server sends it everything.
func TestFalseMetrics(t *testing.T) {
	picks := [2]int{}
	for _, e := range recorded(t, parsed(t, `
pools:
- name: a
  replicas: 2
  modelServer: {batching: continuous, coefficients: {step: 50ms}, outputTokens: 20}
  epp:
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      plugins: [{type: running-requests-size-scorer}]
      schedulingProfiles: [{name: default, plugins: [{pluginRef: running-requests-size-scorer}]}]
  incidents: [{at: 1s, what: false-metrics, server: 1}]
workload: {requests: 100, rate: 20}
`)) {
		if e.Step == record.EndpointPicked && e.Time > 2*machine.Second {
			picks[e.Endpoint[len("10.0.0.")]-'1']++
		}
	}
	if 5*picks[0] > picks[1] {
		t.Errorf("the server that lies was picked %d times, the other one %d", picks[1], picks[0])
	}
}

// An index that loses events differs from the engines, with the reason.
func TestLoseEvents(t *testing.T) {
	s := parsed(t, `
pools:
- name: a
  modelServer: {batching: continuous, coefficients: {step: 10ms}, outputTokens: 20, kvEvents: {format: msgpack, interval: 10ms}}
  epp:
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      plugins: [{type: precise-prefix-cache-producer}, {type: prefix-cache-scorer}]
      schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}]}]
  incidents: [{at: 1s, what: lose-events, for: 1s}]
workload: {requests: 60, rate: 20, prompt: {characters: 1000}}
`)
	checks, err := Play(s, nil, Options{})
	if err != nil || len(checks) != 1 || checks[0].Missing == 0 || !checks[0].OK() ||
		!strings.Contains(checks[0].Excuse, "events were lost") {
		t.Errorf("found %+v, %v", checks, err)
	}
}
