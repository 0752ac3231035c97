package virtual

import (
	"fmt"
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
)

// While load rises and falls linearly the servers that are wanted follow the fluid limit: requests arrive at a rate
// and stay for ten seconds, and servers are these requests over the target, rounded up. At every second HPA and KEDA
// want as many as the limit was at some moment of the last period of the HPA and of the scrape before it, or one
// more or fewer.
func TestAutoscalingFollowsTheFluidLimit(t *testing.T) {
	t.Parallel()
	const rise, peak, stay, target, sync, scrape = 600.0, 8.0, 10.0, 10.0, 15.0, 2.0
	rate := func(at float64) float64 { return peak * max(0, 1-math.Abs(at-rise)/rise) }
	limit := func(at float64) float64 { // the integral of the rate over the last stay, by its middle
		return max(1, math.Ceil(stay*rate(at-stay/2)/target))
	}
	for name, metric := range map[string]string{"of an average": "AverageValue", "of the pods": "Pods"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decides := fmt.Sprintf(`minReplicas: 1, maxReplicas: 12, pollingInterval: 15s,
    scaleUp: {stabilizationWindow: 0s}, scaleDown: {stabilizationWindow: 0s},
    triggers: [{name: running, query: sum(llm_d_epp_request_running), target: %v}]`, target)
			if metric == "Pods" { // a target of each pod's own figure
				decides = fmt.Sprintf(`manifest: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler,
      metadata: {name: x}, spec: {scaleTargetRef: {kind: Deployment, name: x}, minReplicas: 1, maxReplicas: 12,
        behavior: {scaleUp: {stabilizationWindowSeconds: 0}, scaleDown: {stabilizationWindowSeconds: 0}},
        metrics: [{type: Pods, pods: {metric: {name: "vllm:num_requests_running"},
          target: {type: AverageValue, averageValue: "%v"}}}]}}`, target)
			}
			s := parsed(t, fmt.Sprintf(`
pools:
- name: a
  replicas: 1
  modelServer: {batching: independent, prefill: 1s, interTokenLatency: 100ms, outputTokens: 91}
  lifecycle: {startup: 1s, preStop: 0s, gracePeriod: 1m}
  autoscaling: {%s, scrapeInterval: %vs, syncPeriod: %vs}
workload: {timeout: 10m, arrivals: constant, stages: [{rate: 0.02, duration: 1s},
  {rate: %v, duration: %vs, ramp: true}, {rate: 0.02, duration: %[5]vs, ramp: true}]}
`, decides, scrape, sync, peak, rise))
			wanted, at, off, most := 1.0, 1, 0, 1.0
			check := func(until float64) {
				for ; float64(at) < until; at++ {
					low, high := math.Inf(1), 0.0
					for back := 0.0; back <= sync+scrape; back++ {
						low, high = min(low, limit(float64(at)-back)), max(high, limit(float64(at)-back))
					}
					if wanted < low-1 || wanted > high+1 {
						if off++; off == 1 {
							t.Errorf("at %d s %v servers are wanted; the limit was %v to %v", at, wanted, low, high)
						}
					}
				}
			}
			if err := Run(s, record.Func(func(e record.Event) {
				if e.Step == record.Scaled {
					check(e.Time.Seconds())
					wanted = float64(e.Details.Get("to").(int))
					most = max(most, wanted)
				}
			}), nil); err != nil {
				t.Fatal(err)
			}
			check(2 * rise)
			if most < 8 || wanted > 2 || off > 0 {
				t.Errorf("up to %v servers and %v in the end, %d s of %v too few or too many", most, wanted, off,
					2*rise)
			}
		})
	}
}
