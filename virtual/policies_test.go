package virtual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

const manyPolicies = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: c, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: g}]
  rules: [{backendRefs: [{group: serving.kserve.io, kind: InferencePool, name: one}]}]
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: one}
spec:
  modelName: m
  selector: {matchLabels: {app: one}}
  targetPorts: [{number: 8000}]
  healthCheck: {enabled: %v, interval: 50ms, timeout: 20ms, unhealthyThreshold: 2, healthyThreshold: 2}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: one}
spec:
  replicas: 3
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec: {containers: [{name: sim, image: llm-d-inference-sim, args: [--model=m]}]}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: p}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]
  %s
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {name: x}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]
  extProc: [{backendRefs: [{name: epp, port: 9002}], failOpen: %v, processingMode: {request: {body: %s}, response: {body: %s}}}]
`

// Whatever policies say and whatever goes wrong, each request has one outcome, nothing is left
// anywhere, and the same happens again the next time.
func TestPoliciesLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n, ends := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		of := func(label string, list ...string) string { return rapid.SampledFrom(list).Draw(t, label) }
		var policy []string
		for _, x := range []string{
			of("retry", "", "retry: {numRetries: 3, retryOn: ['5xx', reset, connect-failure], perTryTimeout: 300ms, "+
				"backoff: {baseInterval: 5ms, maxInterval: 50ms}}",
				"retry: {numRetries: 1, retryOn: [connect-failure]}"),
			of("time", "", "timeout: {request: 900ms}", "timeout: {request: 50ms}"),
			"circuitBreaker: " + of("breaker", "{}", "{maxConnections: 2, maxPendingRequests: 3}",
				"{maxRequests: 4, maxRetries: 1}",
				"{outlierDetection: {consecutive5xxErrors: 2, interval: 50ms, baseEjectionTime: 100ms, "+
					"maxEjectionPercent: 70}}",
				"{maxConnections: 1, outlierDetection: {consecutiveLocalOriginFailures: 1, "+
					"splitExternalLocalOriginErrors: true, successRateMinimumHosts: 2, successRateRequestVolume: 2, "+
					"interval: 50ms, baseEjectionTime: 1s, maxEjectionPercent: 100}}"),
		} {
			if x != "" {
				policy = append(policy, x)
			}
		}
		n++
		path := filepath.Join(dir, fmt.Sprintf("m%d.yaml", n))
		modes := []string{"FullDuplexStreamed", "Streamed", "Buffered", "NONE"}
		text := fmt.Sprintf(manyPolicies, rapid.Bool().Draw(t, "probed"), strings.Join(policy, "\n  "),
			rapid.Bool().Draw(t, "open"), of("shown", modes...), of("answers", modes...))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		pool := of("upstream", "", "upstream: http2, ")
		switch of("pool", "", "sidecar", "fleet") {
		case "sidecar":
			pool += "sidecar: routing, replicas: 2, disaggregation: {prefillReplicas: 1}, "
		case "fleet":
			pool += "replicas: 2, lifecycle: {startup: 300ms, preStop: 50ms, gracePeriod: 200ms}, incidents: [{at: " +
				"300ms, what: add-server}, {at: 700ms, what: drain-server, server: 0}], "
		default:
			pool += "incidents: [" +
				of("incident", "", "{at: 400ms, what: crash, server: 1, for: 300ms}",
					"{at: 300ms, what: restart-epp, for: 300ms}") + "], "
		}
		fault := of("fault", "status=503", "reset", "refuse", "stall=1", "stall", "delay=350ms", "reset-after=1",
			"die-in-prefill", "no-body")
		s := fmt.Sprintf("apiVersion: windtunnel/v1alpha1\nkind: Scenario\nseed: %d\nmanifests: %s\npools: [{name: "+
			"one, %smodelServer: {prefill: 20ms..200ms, interTokenLatency: 10ms, outputTokens: 4, faults: [{fault: "+
			"%s, rate: 40%%}]}}]\nworkload: {requests: 40, rate: 40, timeout: 2s, stream: %v%s}\n",
			rapid.IntRange(1, 100).Draw(t, "seed"), path, pool, fault, rapid.Bool().Draw(t, "streams"),
			of("leaves", "", ", leaving: {after: 100ms, requests: [3, 9, 20]}"))
		play := func() (events []string, finished int) {
			x, err := scenario.Parse("x.yaml", []byte(s))
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, s, text)
			}
			err = Run(x, record.Func(func(e record.Event) {
				events = append(events, fmt.Sprint(e.Time, e.Request, e.Attempt, e.Hop, e.Step, e.Endpoint))
				if e.Step == record.Finished {
					finished++
					ends[fmt.Sprint(e.Details.Get("outcome"))]++
				}
			}), nil)
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, s, text)
			}
			return events, finished
		}
		first, finished := play()
		second, _ := play()
		if finished != 40 || strings.Join(first, "\n") != strings.Join(second, "\n") {
			t.Fatalf("%d of 40 requests ended; the same again: %v\n%s\n%s", finished, len(first) == len(second), s,
				text)
		}
	})
	for _, o := range []record.Outcome{record.Completed, record.Unavailable, record.TimedOut, record.Broken,
		record.Left} {
		if ends[string(o)] == 0 {
			t.Errorf("no request ended as %s: %v", o, ends)
		}
	}
}
