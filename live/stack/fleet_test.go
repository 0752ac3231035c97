package stack

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

const scaling = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: chat
    replicas: 1
    failureMode: FailOpen
    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 5ms, outputTokens: 20}
    lifecycle: {startup: 300ms, preStop: PRESTOP, gracePeriod: 1m}
    autoscaling:
      maxReplicas: 3
      triggers: [{name: running, query: 'sum(llm_d_epp_request_running{namespace="x"})', target: 2}]
      scaleUp: {stabilizationWindow: 0s}
      scaleDown: {stabilizationWindow: 600ms}
      scrapeInterval: 100ms
      syncPeriod: 100ms
      pollingInterval: 100ms
workload:
  prompt: {characters: 400}
  timeout: 1m
  stages: [{rate: RATE, duration: 2s}, {rate: 1, duration: REST}]
`

// An autoscaler reads the picker's real page, real servers begin to listen and end, Envoy and the
// picker follow, and no request fails; virtual time does the same.
func TestScalingLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := bothTimes(t, unhurried(scaling, "PRESTOP", "10s", "15s", "RATE", "60", "30", "REST", "21s", "40s"),
		nil)
	for time, events := range map[string][]record.Event{"live": live, "virtual": played} {
		n, up, down := map[record.Step]int{}, false, false
		gone, picked := map[string]machine.Time{}, 0
		for _, e := range events {
			n[e.Step]++
			switch e.Step {
			case record.Finished:
				if o := fmt.Sprint(e.Details.Get("outcome")); o != string(record.Completed) {
					t.Errorf("%s: %s ended %s: %v", time, e.Request, o, e.Details)
				}
			case record.Scaled:
				from, to := e.Details.Get("from").(int), e.Details.Get("to").(int)
				up, down = up || to > from, down || to < from
				if to < 1 || to > 3 {
					t.Errorf("%s: %d servers wanted", time, to)
				}
			case record.ServerReady:
				delete(gone, e.Endpoint)
			case record.ServerGone:
				if cut := e.Details.Get("cut"); cut != nil {
					t.Errorf("%s: %v requests were cut", time, cut)
				}
				gone[e.Endpoint] = e.Time
			case record.EndpointPicked:
				if at, is := gone[e.Endpoint]; is && e.Time > at {
					t.Errorf("%s: %s went to %s, which is gone", time, e.Request, e.Endpoint)
				}
				picked++
			}
		}
		if !up || !down || n[record.ServerGone] == 0 || picked == 0 {
			t.Errorf("%s: up %v, down %v, %v", time, up, down, n)
		}
		// Where a busy machine keeps Envoy waiting for the picker, FailOpen lets requests pass without it.
		if time == "virtual" && picked != n[record.Finished] {
			t.Errorf("%s: up %v, down %v, %v", time, up, down, n)
		}
		if n[record.ServerStarted] > n[record.ServerReady]+n[record.ServerGone] {
			t.Errorf("%s: %v", time, n)
		}
	}
}

// Servers join and are drained by incidents, with prefill and decode apart, and each finishes
// what it has.
func TestJoinAndDrainLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := bothTimes(t, unhurried(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: chat
    model: m
    sidecar: routing
    groups:
      - {name: d, replicas: 2}
      - {name: p, replicas: 1, role: prefill}
    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 5ms, outputTokens: 20, numGPUBlocks: 4096, maxModelLen: 16384}
    lifecycle: {startup: 200ms, preStop: PRESTOP, gracePeriod: 1m}
    incidents:
      - {at: 500ms, what: add-server, group: d}
      - {at: 600ms, what: add-server, group: p}
      - {at: 1500ms, what: drain-server, server: 0}
      - {at: 1600ms, what: drain-server, server: 3}
workload: {stages: [{rate: RATE, duration: 4s}, {rate: 1, duration: REST}], timeout: 1m, prompt: {characters: 800}}
`, "PRESTOP", "5s", "30s", "RATE", "10", "1", "REST", "9s", "35s"), nil)
	for time, events := range map[string][]record.Event{"live": live, "virtual": played} {
		var said []string
		for _, e := range events {
			switch e.Step {
			case record.Finished:
				if o := fmt.Sprint(e.Details.Get("outcome")); o != string(record.Completed) {
					t.Errorf("%s: %s ended %s: %v", time, e.Request, o, e.Details)
				}
			case record.ServerReady, record.ServerLeaving, record.ServerGone:
				said = append(said, fmt.Sprintf("%s %v", strings.TrimPrefix(string(e.Step), "server_"),
					e.Details.Get("name")))
			}
		}
		for _, want := range []string{"ready chat-d-2", "ready chat-p-1", "leaving chat-d-0", "gone chat-d-0",
			"leaving chat-p-0", "gone chat-p-0"} {
			if !strings.Contains(strings.Join(said, ", "), want) {
				t.Errorf("%s: no %q in %v", time, want, said)
			}
		}
	}
}

// unhurried fills a scenario in whose servers come and go by the clock: names, each with its
// value, and with the one where the race detector makes requests take seconds to reach a
// server that was chosen. It has to be there that long.
func unhurried(text string, names ...string) string {
	for i := 0; i < len(names); i += 3 {
		value := names[i+1]
		if raced {
			value = names[i+2]
		}
		text = strings.ReplaceAll(text, names[i], value)
	}
	return text
}
