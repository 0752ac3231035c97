package stack

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// policed are a Gateway, a route and a pool of two model servers, whose picker chooses at
// random.
const policed = `
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
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: one}]}]
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: one}
spec: {selector: {matchLabels: {app: one}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: epp, port: {number: 9002}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: one}
spec:
  replicas: 2
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec: {containers: [{name: sim, image: llm-d-inference-sim, args: [--model=m]}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: epp}
data:
  config: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    plugins: [{type: random-picker}]
    schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
---
`

// traffic is a BackendTrafficPolicy about the route of policed.
func traffic(spec string) string {
	return "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: {name: p}\nspec:\n  " +
		"targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]\n" + spec
}

// underPolicy is a scenario of manifests with a policy.
func underPolicy(t *testing.T, policy, pool, workload string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(path, []byte(policed+policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("apiVersion: windtunnel/v1alpha1\nkind: Scenario\nname: policies\nmanifests: %s\npools: "+
		"[{name: one, %s}]\nworkload: {%s}\n", path, pool, workload)
}

// sends are the attempts of each request with the servers that got the first two, and how it
// ended: where others go is Envoy's turn.
func sends(events []record.Event) map[string]string {
	names := map[string]any{}
	for _, e := range events {
		if e.Step == record.EndpointPicked {
			names[e.Endpoint] = e.Details.Get("name")
		}
	}
	tries, out := map[string]map[int]string{}, map[string]string{}
	for _, e := range events {
		if e.Hop != record.Server || e.Request == "" {
			continue
		}
		if tries[e.Request] == nil {
			tries[e.Request] = map[int]string{}
		}
		tries[e.Request][e.Attempt] = fmt.Sprint(e.Attempt)
		if e.Attempt <= 2 {
			tries[e.Request][e.Attempt] += fmt.Sprint(" at ", names[e.Endpoint])
		}
	}
	for _, e := range events {
		if e.Step == record.Finished {
			for _, n := range slices.Sorted(maps.Keys(tries[e.Request])) {
				out[e.Request] += tries[e.Request][n] + ", "
			}
			out[e.Request] += fmt.Sprint(e.Details.Get("outcome"), " ", e.Details.Get("status"))
		}
	}
	return out
}

// sameSends holds what both times did with requests together, and returns it.
func sameSends(t *testing.T, text string) map[string]string {
	t.Helper()
	live, played := bothTimes(t, text, func(o *Options) {
		oneWorker(o)
		events := o.Recorder.(*recording)
		// Envoy must see an answer's beginning before its end: a server cuts no answer that the client has nothing of.
		o.Faults = func(server *modelserver.ServerOptions) {
			server.Faults.BeforeCut = func() { awaitFirstTokens(t, events) }
		}
	})
	a, b := sends(live), sends(played)
	for id, was := range a {
		if was != b[id] {
			t.Errorf("%s: live %s; virtual %s", id, was, b[id])
		}
	}
	return a
}

// awaitFirstTokens waits until the clients have the first token of every answer that a server has begun.
func awaitFirstTokens(t *testing.T, events *recording) {
	events.await(t, "the first token of each answer that a server has begun", func(all []record.Event) bool {
		missing := 0
		for _, e := range all {
			switch {
			case e.Hop == record.Server && e.Step == record.FirstTokenSent:
				missing++
			case e.Hop == record.Client && e.Step == record.FirstTokenReceived:
				missing--
			}
		}
		return missing == 0
	})
}

// met is how many requests ended in a way, after so many attempts at the least.
func met(all map[string]string, attempts int, ends string) (n int) {
	for _, was := range all {
		if strings.HasSuffix(was, ends) && (attempts == 1 || strings.Contains(", "+was, fmt.Sprint(", ", attempts))) {
			n++
		}
	}
	return n
}

// What fails is tried again, in both times as often, at the same servers, with the same
// outcome: whatever the fault is, and whatever the policy says of it.
func TestRetriesLiveAsVirtual(t *testing.T) {
	t.Parallel()
	const retry = "  retry: {numRetries: 3, retryOn: [%s], %s backoff: {baseInterval: 5ms, maxInterval: 20ms}}\n"
	for i, c := range []struct {
		name, on, more, faults string
		attempts               int // of a request that meets the fault
		ends                   string
	}{
		{"a status", "5xx", "", "{fault: status=500, servers: [0]}", 2, "completed 200"},
		{"a status that is named", "retriable-status-codes", "retriableStatusCodes: [429],",
			"{fault: status=429, servers: [0]}", 2, "completed 200"},
		{"another one", "retriable-status-codes", "retriableStatusCodes: [429],", "{fault: status=503, servers: [0]}",
			1, "unavailable 503"},
		{"a client's mistake", "5xx", "", "{fault: status=404, servers: [0]}", 1, "refused 404"},
		{"a connection that is closed", "reset", "", "{fault: refuse, servers: [0]}", 2, "completed 200"},
		{"one that is closed later", "reset", "", "{fault: die-in-prefill, servers: [0]}", 2, "completed 200"},
		{"only connections that cannot be made", "connect-failure", "", "{fault: reset, servers: [0]}", 1,
			"unavailable 503"},
		{"everywhere", "gateway-error", "", "{fault: status=502}", 4, "unavailable 502"},
		{"once the answer has begun", "'5xx', reset", "", "{fault: reset-after=2, servers: [0]}", 1, "broken 200"},
	} {
		if !nightly.Each(i, 3) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const server = "modelServer: {prefill: 20ms, interTokenLatency: 50ms, outputTokens: 4, faults: ["
			text := underPolicy(t, traffic(fmt.Sprintf(retry, c.on, c.more)), server+c.faults+"]}",
				"requests: 8, concurrency: 1, prompt: {characters: 100000}")
			if all := sameSends(t, text); met(all, c.attempts, c.ends) == 0 {
				t.Errorf("none of the requests met the fault as expected: %v", all)
			}
		})
	}
}

// Before each retry is a wait, as long as the policy's intervals say: so short that all are made
// within the route's limit, or so long that it cuts them; in both times.
func TestBackOffLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		name, backoff string
		least, most   int // attempts of a request
		ends          string
	}{
		// Without the limit of 100 ms, waits up to 1 s, of 16 the sum is about 7 s.
		{"up to a maximum", "backoff: {baseInterval: 100ms, maxInterval: 100ms}", 17, 17, "server_error 500"},
		{"as Envoy Gateway writes it", "perRetry: {backOff: {baseInterval: 100ms, maxInterval: 100ms}}", 17, 17,
			"server_error 500"},
		// Up to 100, 200, 400 ms and so on: 51 s of waits if all were made.
		{"doubled each time", "backoff: {baseInterval: 100ms, maxInterval: 60s}", 2, 12, "timed_out 504"},
		{"long from the beginning", "backoff: {baseInterval: 9000h, maxInterval: 9000h}", 1, 1, "timed_out 504"},
		{"none is said", "", 17, 17, "server_error 500"},
	} {
		if !nightly.Each(i, 3) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			policy := traffic("  timeout: {request: 12s}\n  retry: {numRetries: 16, retryOn: ['5xx'], " + c.backoff +
				"}\n")
			live, played := bothTimes(t,
				underPolicy(t, policy, "modelServer: {prefill: 1ms, outputTokens: 1, faults: [{fault: status=500}]}",
					"requests: 6, concurrency: 6"), oneWorker)
			for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
				for id, was := range sends(events) {
					if n := strings.Count(was, ", "); n < c.least || n > c.most || !strings.HasSuffix(was, c.ends) {
						t.Errorf("%s: %s: %d attempts: %s; expected %d to %d, %s", when, id, n, was, c.least, c.most,
							c.ends)
					}
				}
			}
		})
	}
}

// Limits cut where they should: all of an exchange, or an attempt that has not begun to
// answer, which is made again; in both times.
func TestTimeoutsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	const again = "  retry: {numRetries: 2, perTryTimeout: 3s, retryOn: [reset], backoff: {baseInterval: 5ms}}\n"
	for i, c := range []struct {
		name, policy, faults string
		attempts             int
		ends                 string
	}{
		{"all of it", "  timeout: {request: 3s}\n", "{fault: stall, servers: [0]}", 1, "timed_out 504"},
		{"all of it, once it has begun", "  timeout: {request: 3s}\n", "{fault: stall=2, servers: [0]}", 1,
			"broken 200"},
		{"all of it, however often it is tried", "  timeout: {request: 4500ms}\n" + again, "{fault: stall}", 2,
			"timed_out 504"},
		{"an attempt", again, "{fault: stall, servers: [0]}", 2, "completed 200"},
		{"every attempt", again, "{fault: delay=30s}", 3, "timed_out 504"},
		{"no attempt that has begun", again, "{fault: stall=2, servers: [0]}", 1, "timed_out 200"},
		{"an attempt without retries", "  timeout: {backend: 55s}\n", "{fault: delay=900ms, servers: [0]}", 1,
			"completed 200"},
	} {
		if !nightly.Each(i, 3) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := sameSends(t, underPolicy(t, traffic(c.policy),
				"modelServer: {prefill: 20ms, interTokenLatency: 50ms, outputTokens: 4, faults: ["+c.faults+"]}",
				"requests: 4, concurrency: 1, timeout: 12s"))
			if met(all, c.attempts, c.ends) == 0 {
				t.Errorf("none of the requests met the limit as expected: %v", all)
			}
		})
	}
}

// Open breakers, and budgets of retries, answer as many requests at once in both times.
func TestBreakersLiveAsVirtual(t *testing.T) {
	t.Parallel()
	const again = "  retry: {numRetries: 3, retryOn: ['5xx'], backoff: {baseInterval: 1ms}}\n"
	for i, c := range []struct {
		name, policy, faults string
		attempts             int // at servers, of all requests
		ends                 string
	}{
		{"requests", "  circuitBreaker: {maxRequests: 2}\n", "", 2, "map[completed:2 unavailable:4]"},
		{"a rate", "  rateLimit: {local: {rules: [{limit: {requests: 2, unit: Hour}}]}}\n" +
			"  loadBalancer: {type: LeastRequest}\n", "", 2, "map[completed:2 overloaded:4]"},
		{"connections", "  circuitBreaker: {maxConnections: 1}\n", "", 6, "map[completed:6]"},
		{"connections, and those that wait", "  circuitBreaker: {maxConnections: 1, maxPendingRequests: 1}\n", "", 2,
			"map[completed:2 unavailable:4]"},
		{"retries", "  circuitBreaker: {maxRetries: 1}\n" + again, "{fault: delay=3s;status=503}", 9,
			"map[unavailable:6]"},
		{"a budget of retries", "  circuitBreaker: {retryBudget: {percent: {numerator: 40}, minRetryConcurrency: " +
			"1}}\n" + again, "{fault: delay=3s;status=503}", 10, "map[unavailable:6]"},
		{"a budget as document 003 has it",
			"  retry: {numRetries: 3, retryOn: ['5xx'], backoff: {baseInterval: 1ms}, retryBudget: " +
				"{minRetriesPercent: 20.0, retryRatio: 0.1}}\n", "{fault: delay=3s;status=503}", 15,
			"map[unavailable:6]"},
	} {
		if !nightly.Each(i, 3) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := underPolicy(t, traffic(c.policy), "modelServer: {prefill: 8s, outputTokens: 4, faults: ["+c.faults+
				"]}", "requests: 6, concurrency: 6, rate: 10, arrivals: constant")
			live, played := bothTimes(t, text, func(o *Options) {
				oneWorker(o)
				// no server answers before the picker has received all requests
				o.Recorder = inStep{o.Recorder.(*recording), t, playVirtually(t, text)}
			})
			for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
				attempts := map[string]bool{}
				for _, e := range events {
					if e.Hop == record.Server && e.Request != "" {
						attempts[fmt.Sprint(e.Request, e.Attempt)] = true
					}
				}
				if ends := outcomes(events); len(attempts) != c.attempts || ends != c.ends {
					t.Errorf("%s: %d attempts, %s; expected %d, %s", when, len(attempts), ends, c.attempts, c.ends)
				}
			}
		})
	}
}

// What fails is ejected, by what it answers or by its health check: no picker's candidate
// while that lasts, and one again afterwards; in both times.
func TestEjectionsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	const checked = "  modelName: m\n  healthCheck: {enabled: true, endpoint: /health, interval: 100ms, timeout: 1s, " +
		"unhealthyThreshold: 1, healthyThreshold: 1}"
	for _, c := range []struct{ name, manifests, pool string }{
		{"outlier detection", policed +
			traffic("  circuitBreaker: {outlierDetection: {consecutive5xxErrors: 2, interval: 100ms, "+
				"baseEjectionTime: 4s, maxEjectionPercent: 50}}\n"),
			"modelServer: {prefill: 20ms, outputTokens: 4, faults: [{fault: status=500, servers: [0], requests: [1, " +
				"2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}]}"},
		{"health checks", strings.Replace(
			strings.ReplaceAll(policed, "inference.networking.k8s.io", "serving.kserve.io"),
			"spec: {selector: {matchLabels: {app: one}}, targetPorts: [{number: 8000}], endpointPickerRef: "+
				"{name: epp, port: {number: 9002}}}",
			"spec:\n"+checked+"\n  selector: {matchLabels: {app: one}}\n  targetPorts: [{number: 8000}]\n", 1),
			"modelServer: {prefill: 20ms, outputTokens: 4}, incidents: [{at: 500ms, what: crash, server: 0, for: " +
				"4s}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "m.yaml")
			if err := os.WriteFile(path, []byte(c.manifests), 0o600); err != nil {
				t.Fatal(err)
			}
			live, played := bothTimes(t,
				fmt.Sprintf("apiVersion: windtunnel/v1alpha1\nkind: Scenario\nmanifests: %s\npools: [{name: one, "+
					"%s}]\nworkload: {requests: 160, rate: 20, arrivals: constant}\n", path, c.pool), oneWorker)
			for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
				failed, without, back := 0, 0, 0 // requests, choices without the endpoint, and of it after those
				for _, e := range events {
					candidates, _ := e.Details.Get("candidates").(int)
					switch picked := e.Step == record.EndpointPicked; {
					case e.Step == record.Finished && e.Details.Get("outcome") != "completed":
						failed++
					case picked && candidates == 1:
						if without++; e.Details.Get("name") == "one-0" {
							t.Errorf("%s: %s chose the endpoint that is ejected", when, e.Request)
						}
					case picked && without > 0 && e.Details.Get("name") == "one-0":
						back++
					}
				}
				if failed == 0 || without == 0 || back == 0 {
					t.Errorf("%s: %d requests failed; %d choices without the endpoint, %d of it again", when, failed,
						without, back)
				}
			}
		})
	}
}

// An endpoint that fails more often than the others is ejected at the end of an interval, by
// success rate, whatever it answered last; in both times.
func TestSuccessRateLiveAsVirtual(t *testing.T) {
	t.Parallel()
	const requests, failing = 320, 80 // for two intervals: in one of them at least every server has requests
	path := filepath.Join(t.TempDir(), "m.yaml")
	manifests := strings.Replace(policed, "replicas: 2", "replicas: 5", 1) +
		traffic("  circuitBreaker: {outlierDetection: {consecutive5xxErrors: 1000, consecutiveGatewayErrors: 1000, "+
			"splitExternalLocalOriginErrors: true, "+
			"successRateMinimumHosts: 5, successRateRequestVolume: 1, enforcingSuccessRate: 100, interval: 1s, "+
			"baseEjectionTime: 2s, maxEjectionPercent: 50}}\n")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	var numbers []string
	for i := range failing {
		numbers = append(numbers, fmt.Sprint(i+1))
	}
	live, played := bothTimes(t, fmt.Sprintf(`apiVersion: windtunnel/v1alpha1
kind: Scenario
manifests: %s
pools: [{name: one, modelServer: {prefill: 20ms, outputTokens: 4, faults: [{fault: status=500, servers: [0], requests: [%s]}]}}]
workload: {requests: %d, rate: 40, arrivals: constant}
`, path, strings.Join(numbers, ", "), requests), oneWorker)
	for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
		of := map[string]int{} // choices by their number of candidates
		last, failed := 0, 0
		for _, e := range events {
			switch e.Step {
			case record.EndpointPicked:
				last, _ = e.Details.Get("candidates").(int)
				of[fmt.Sprint(last)]++
				if last == 4 && e.Details.Get("name") == "one-0" {
					t.Errorf("%s: %s chose the endpoint that is ejected", when, e.Request)
				}
			case record.Finished:
				if e.Details.Get("outcome") != "completed" {
					failed++
				}
			}
		}
		if failed == 0 || of["4"] == 0 || of["4"]+of["5"] != requests || last != 5 {
			t.Errorf("%s: %d requests failed; choices by their candidates: %v, the last of %d", when, failed, of, last)
		}
	}
}

// asking is an EnvoyExtensionPolicy about the route of policed.
func asking(request, response, more string) string {
	return fmt.Sprintf("apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyExtensionPolicy\nmetadata: {name: "+
		"x}\nspec:\n  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]\n  extProc: "+
		"[{backendRefs: [{name: epp, port: 9002}], processingMode: {request: {body: %s}, response: {body: "+
		"%s}}%s}]\n", request, response, more)
}

// How a route asks its picker is the same in both times: every step, whatever of bodies the
// picker is shown.
func TestProcessingModesLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for i, request := range []string{"FullDuplexStreamed", "Streamed", "Buffered", "NONE"} {
		for j, response := range []string{"FullDuplexStreamed", "Streamed", "Buffered", "NONE"} {
			if response == "FullDuplexStreamed" && request == "Buffered" || !nightly.Each(i+j, 2) {
				continue
			}
			t.Run(request+" "+response, func(t *testing.T) {
				t.Parallel()
				live, _ := liveAsVirtual(t,
					underPolicy(t, asking(request, response, ""), "modelServer: {prefill: 20ms, outputTokens: 4}",
						"requests: 3, concurrency: 1"))
				wantCompleted(t, live, 3)
			})
		}
	}
}

// A picker that takes longer than processingTimeout is given up, and one that is gone is not
// asked: with failOpen any server answers, else nobody does; in both times.
func TestFailureModesLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for open, want := range map[bool]string{false: "map[completed:2 timed_out:2]", true: "map[completed:4]"} {
		t.Run(fmt.Sprint("stuck, failOpen ", open), func(t *testing.T) {
			t.Parallel()
			text := underPolicy(t, asking("Buffered", "NONE",
				fmt.Sprintf(", processingTimeout: 4s, failOpen: %v", open)),
				"modelServer: {prefill: 12s, outputTokens: 4}",
				"requests: 4, rate: 20, concurrency: 4, arrivals: constant")
			path := strings.TrimSpace(strings.Split(strings.Split(text, "manifests: ")[1], "\n")[0])
			manifests := strings.Replace(policed, `    plugins: [{type: random-picker}]
    schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
`, `    featureGates: [flowControl]
    plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 1}}, {type: queue-scorer}]
    schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
    flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
`, 1) + asking("Buffered", "NONE", fmt.Sprintf(", processingTimeout: 4s, failOpen: %v", open))
			if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
				t.Fatal(err)
			}
			live, played := bothTimes(t, text, nil)
			for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
				if got := outcomes(events); got != want {
					t.Errorf("%s: %s, expected %s", when, got, want)
				}
			}
		})
	}
	for open, want := range map[string]string{"": "unavailable", ", failureMode: FailOpen": "completed"} {
		t.Run("gone"+open, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "m.yaml")
			if err := os.WriteFile(path,
				[]byte(strings.Replace(policed, "port: {number: 9002}", "port: {number: 9002}"+open, 1)+
					traffic("  retry: {numRetries: 2, retryOn: ['5xx']}\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			live, played := bothTimes(t,
				fmt.Sprintf("apiVersion: windtunnel/v1alpha1\nkind: Scenario\nmanifests: %s\npools: [{name: one, "+
					"modelServer: {prefill: 20ms, outputTokens: 4, faults: [{fault: status=503, servers: [0]}]}, "+
					"incidents: [{at: 500ms, what: restart-epp, for: 60s}]}]\nworkload: {requests: 80, rate: 20, "+
					"arrivals: constant}\n", path), oneWorker)
			for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
				last, n, gone := machine.Time(0), 0, false
				after := map[string]bool{} // requests that came when the picker was gone
				for _, e := range events {
					switch e.Step {
					case record.IncidentBegan:
						gone = true
					case record.RequestSent:
						after[e.Request], last = gone, max(last, e.Time)
					}
				}
				for _, e := range events {
					// once Envoy knows
					if e.Step == record.Finished && after[e.Request] && e.Time > last-machine.Second {
						if n++; fmt.Sprint(e.Details.Get("outcome")) != want {
							t.Errorf("%s: at %v %v", when, e.Time, e.Details)
						}
					}
				}
				if n == 0 {
					t.Errorf("%s: nothing ended", when)
				}
			}
		})
	}
}

// outcomes are how many requests ended how.
func outcomes(events []record.Event) string {
	ends := map[string]int{}
	for _, e := range events {
		if e.Step == record.Finished {
			ends[fmt.Sprint(e.Details.Get("outcome"))]++
		}
	}
	return fmt.Sprint(ends)
}

// oneWorker has Envoy count connections and turns in one thread.
func oneWorker(o *Options) { o.Envoy = func(c *envoy.Config) { c.Workers = 1 } }
