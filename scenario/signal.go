package scenario

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
)

// The queries of each signal, from llm-d's guides for workload autoscaling (guides/workload-autoscaling).

const (
	queueQuery      = "sum(llm_d_epp_flow_control_queue_size)"
	runningQuery    = "sum(llm_d_epp_request_running)"
	saturationQuery = "max(llm_d_epp_flow_control_pool_saturation)"
	tokensQuery     = "sum(llm_d_epp_inflight_tokens) / %s or vector(0)"
	kvCacheQuery    = "sum(vllm:kv_cache_usage_perc) or vector(0)"
	pendingQuery    = "max(kube_deployment_status_replicas_unavailable)"
	replicasQuery   = "max(kube_deployment_status_replicas)"
	readyQuery      = "max(kube_deployment_status_replicas_ready)"
	// p90 of a latency as a part of its objective, at most 2, if there was any.
	latencyQuery = "clamp_max(histogram_quantile(0.9, sum by (le) (rate(%s_bucket[1m]))) / %s, 2) > 0"
)

// latencyFormula keeps the signal latency within a band: below it there are too many servers, above it too few.
const latencyFormula = "let s = max(ttft, tpot);\n" +
	"s > 0.55 ? max(ready * s / 0.55, replicas) : (s < 0.40 ? replicas * s / 0.40 : replicas)"

// ofSignal sets the autoscaler of the signal, without a manifest.
func (a *Autoscaling) ofSignal(s *Scenario) error {
	c, t := &a.read.Config, &a.Targets
	add := func(name, query string, target float64) error { return c.AddTrigger(name, query, target) }
	var err error
	behavior := func(up, down machine.Time, ups, downs autoscaler.Policy) {
		c.Behavior = autoscaler.DefaultBehavior()
		c.Behavior.Up.Window, c.Behavior.Up.Policies = up, []autoscaler.Policy{ups}
		c.Behavior.Down.Window, c.Behavior.Down.Policies = down, []autoscaler.Policy{downs}
	}
	window, all := 300*machine.Second,
		autoscaler.Policy{Type: autoscaler.Percent, Value: 100, Period: 15 * machine.Second}
	behavior(window, window, all, all)
	one := func(period machine.Time) autoscaler.Policy {
		return autoscaler.Policy{Type: autoscaler.Pods, Value: 1, Period: period}
	}
	switch {
	case len(a.Triggers) > 0:
		c.Behavior = autoscaler.DefaultBehavior()
		for _, x := range a.Triggers {
			if err = add(x.Name, x.Query, x.Target); err != nil {
				return err
			}
			last := &c.Triggers[len(c.Triggers)-1]
			last.Kind, last.Activation = x.MetricType, x.Activation
		}
	case a.Signal == QueueSignal:
		err = cmp.Or(add("epp-queue-size", queueQuery, t.Queue), add("epp-running-requests", runningQuery, t.Running))
	case a.Signal == SaturationSignal:
		err = cmp.Or(add("pool-saturation", saturationQuery, t.Saturation),
			add("epp-running-requests", runningQuery, t.Running))
	case a.Signal == GuardSignal:
		behavior(0, window, all, all)
		c.Fallback = &autoscaler.Fallback{FailureThreshold: 3, Replicas: 1, Behavior: autoscaler.Static}
		err = cmp.Or(add("queue", queueQuery, 1), add("running", runningQuery, 1), add("pending", pendingQuery, 1),
			add("replicas", replicasQuery, 1),
			c.SetFormula(fmt.Sprintf(
				"let demand = max(queue / %s, running / %s);\ndemand <= replicas ? demand : max(demand - (pending ?? "+
					"0), replicas)", exact(t.Queue), exact(t.Running)), 1))
	case a.Signal == TokensSignal:
		behavior(0, window, one(180*machine.Second), one(window))
		err = add("prefill-backlog-seconds", fmt.Sprintf(tokensQuery, exact(t.PrefillThroughput)), t.Backlog.Seconds())
	case a.Signal == KVCacheSignal:
		behavior(0, window, one(180*machine.Second), one(window))
		err = add("kv-cache-usage", kvCacheQuery, t.KVCache)
	case a.Signal == LatencySignal:
		err = a.ofLatency(s, behavior, one(120*machine.Second))
	}
	a.ScaleUp.apply(&c.Behavior.Up)
	a.ScaleDown.apply(&c.Behavior.Down)
	return err
}

func (a *Autoscaling) ofLatency(s *Scenario, behavior func(up, down machine.Time, ups, downs autoscaler.Policy),
	down autoscaler.Policy) error {
	c := &a.read.Config
	behavior(0, 0, autoscaler.Policy{}, down)
	c.Behavior.Up.Policies = []autoscaler.Policy{{Type: autoscaler.Percent, Value: 100, Period: 60 * machine.Second},
		{Type: autoscaler.Pods, Value: 4, Period: 60 * machine.Second}}
	for _, x := range []struct {
		name, metric string
		objective    time.Duration
	}{
		{"ttft", "llm_d_epp_request_ttft_seconds", cmp.Or(a.Targets.TTFT, s.Workload.SLO.TTFT)},
		{"tpot", "llm_d_epp_request_streaming_tpot_seconds", cmp.Or(a.Targets.TPOT, s.Workload.SLO.TPOT)},
	} {
		query := "vector(0)" // without an objective, the latency is always good
		if x.objective > 0 {
			record := "pool:" + x.name + ":objective"
			if err := c.AddRule(record, fmt.Sprintf(latencyQuery, x.metric, exact(x.objective.Seconds()))); err != nil {
				return err
			}
			query = fmt.Sprintf("max(avg_over_time(%s[45s]))", record)
		}
		if err := c.AddTrigger(x.name, query, 1); err != nil {
			return err
		}
	}
	return cmp.Or(c.AddTrigger("replicas", replicasQuery, 1), c.AddTrigger("ready", readyQuery, 1),
		c.SetFormula(latencyFormula, 1))
}

// apply sets the fields that the scenario has of one direction.
func (r *ScalingRules) apply(to *autoscaler.Rules) {
	if r.given {
		to.Window = machine.FromDuration(r.StabilizationWindow)
	}
	if len(r.Policies) > 0 {
		to.Policies = nil
		for _, p := range r.Policies {
			to.Policies = append(to.Policies,
				autoscaler.Policy{Type: p.Type, Value: p.Value,
					Period: machine.FromDuration(p.Period)})
		}
	}
	to.SelectPolicy, to.Tolerance = r.SelectPolicy, r.Tolerance
}

// exact formats a number for PromQL and formulas.
func exact(x float64) string {
	if math.Trunc(x) == x && x < 1e15 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}
