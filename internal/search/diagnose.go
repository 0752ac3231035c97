package search

import (
	"context"
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/diagnosis"
	"github.com/windtunnel/windtunnel/scenario"
)

// Diagnose plays a scenario, walks the trees, and with try plays the remedies of their leaves, from the same seed.
// The first leaf of the tree of high latency whose remedy helps takes the place of the tree's own.
func (p *Player) Diagnose(ctx context.Context, v *Variant, try bool) (*diagnose.Diagnosis, error) {
	was, s, err := p.facts(ctx, v)
	if err != nil {
		return nil, err
	}
	d := diagnose.Of(was)
	if !try {
		return d, nil
	}
	return d, d.Try(was, func(l diagnose.Leaf) (list []diagnose.Trial, err error) {
		for _, change := range remedies(s, l) {
			w := v.With(change...)
			if _, err := w.Scenario(0); err != nil {
				continue // this scenario does not allow the remedy
			}
			is, _, err := p.facts(ctx, &w)
			if err != nil {
				return nil, err
			}
			list = append(list, diagnose.Compare(w.Name, was, is))
			if list[len(list)-1].Helps {
				break
			}
		}
		return list, nil
	})
}

// facts plays a variant once, and returns what it shows.
func (p *Player) facts(ctx context.Context, v *Variant) (*diagnose.Facts, *scenario.Scenario, error) {
	s, err := v.Scenario(0)
	if err != nil {
		return nil, nil, err
	}
	o := report.Options{Requests: s.Workload.Requests, InFlight: s.Workload.Requests, SLO: s.Workload.SLO,
		PrefixCache: s.CachesPrefixes(), Scenario: s.Name, Seed: s.Seed,
		Judge: report.JudgeBy(s.Expectations.Check)}
	if s.Workload.Uncounted() {
		o.Requests, o.InFlight = 0, s.Workload.Concurrency
	}
	r, err := diagnosis.Start(o)
	if err != nil {
		return nil, nil, err
	}
	r.Pools(Pools(s, Virtual(s)))
	if err := p.Record(ctx, s, r, r, nil); err != nil {
		return nil, nil, err
	}
	f, sum, err := r.Facts(false)
	if err != nil {
		return nil, nil, err
	}
	f.Conversational = s.Workload.Conversations.Turns.Quantile(1) > 1
	if sum.Failed() > 0 {
		err = memory(v, f)
	}
	return f, s, err
}

// memory adds the arithmetic of servers that do not fit into their memory.
func memory(v *Variant, f *diagnose.Facts) error {
	s, err := v.Scenario(0)
	if err != nil {
		return err
	}
	p, err := s.Plan()
	if err != nil {
		return exit.With(exit.Input, err)
	}
	said := map[string]bool{}
	for i := range p.Pools {
		for j := range p.Pools[i].Servers {
			if oom := p.Pools[i].Servers[j].OutOfMemory; oom != nil && !said[oom.Error()] {
				said[oom.Error()] = true
				f.Complaints = append(f.Complaints, diagnose.Complaint{Text: "pool " + p.Pools[i].Name + ": " +
					oom.Error()})
			}
		}
	}
	return nil
}

// remedies returns the changes of a scenario that may remove a leaf's cause, the first choice first.
func remedies(s *scenario.Scenario, l diagnose.Leaf) (out [][]scenario.Setting) {
	one := func(set ...scenario.Setting) {
		if len(set) > 0 {
			out = append(out, set)
		}
	}
	all := func(field, value string) scenario.Setting {
		return scenario.Setting{Path: "pools[*]." + field, Value: value}
	}
	// each sets a field of every pool to a value that depends on the pool; "" leaves the pool as it is.
	each := func(value func(p *scenario.Pool) string, field string) (set []scenario.Setting) {
		for i := range s.Pools {
			if v := value(&s.Pools[i]); v != "" {
				set = append(set, scenario.Setting{Path: fmt.Sprintf("pools[%d].%s", i, field), Value: v})
			}
		}
		return set
	}
	times := func(factor int, of func(p *scenario.Pool) int, field string) []scenario.Setting {
		return each(func(p *scenario.Pool) string {
			if n := of(p); n > 0 {
				return fmt.Sprint(n * factor)
			}
			return ""
		}, field)
	}
	parallel := func(p *scenario.Pool) int { return max(1, p.ModelServer.TensorParallelSize) }
	const defaults = "null"
	switch l {
	case diagnose.ScaleUp, diagnose.MoreGPUs:
		one(servers(s, 2)...)
		one(servers(s, 4)...)
		one(servers(s, 8)...)
	case diagnose.MaxNumSeqs:
		one(times(8, func(p *scenario.Pool) int { return p.ModelServer.MaxNumSeqs }, "modelServer.maxNumSeqs")...)
	case diagnose.ScorerWeights:
		one(all("epp.config", defaults))
	case diagnose.CacheWeight:
		one(all("epp.config", scoredBy("prefix-cache-scorer")))
		one(all("epp.config", defaults))
	case diagnose.SessionAffinity:
		one(all("epp.config", scoredBy("session-sticky-scorer")))
	case diagnose.Disaggregate:
		for _, part := range []int{2, 4} {
			prefill := func(p *scenario.Pool) int { return p.Replicas / part }
			set := times(1, prefill, "disaggregation.prefillReplicas")
			set = append(set, times(1, func(p *scenario.Pool) int {
				if n := prefill(p); n > 0 {
					return p.Replicas - n
				}
				return 0
			}, "replicas")...)
			if len(set) > 0 {
				one(append(set, all("sidecar", "routing"))...)
			}
		}
		one(all("modelServer.maxNumBatchedTokens", "1024"))
	case diagnose.RDMA:
		one(all("disaggregation.tcpOnly", defaults), all("disaggregation.nic", "infiniband-400"))
	case diagnose.Network:
		one(scenario.Setting{Path: "hops", Value: defaults})
	case diagnose.EPPTime:
		one(times(8, func(p *scenario.Pool) int { return max(1, p.EPP.Workers) }, "epp.workers")...)
		one(all("epp.serviceTime", defaults), all("epp.workers", defaults))
	case diagnose.ModelTooLarge, diagnose.KVTooSmall:
		if l == diagnose.KVTooSmall {
			one(all("modelServer.maxModelLen", "auto"))
		}
		for _, factor := range []int{2, 4, 8} {
			one(times(factor, parallel, "modelServer.tensorParallelSize")...)
		}
	case diagnose.BatchTooLarge:
		one(all("modelServer.maxNumSeqs", "128"), all("modelServer.maxNumBatchedTokens", "2048"))
	case diagnose.HostMemory:
		one(all("modelServer.memoryLimit", defaults))
	case diagnose.PrefillerForgot:
		one(all("disaggregation.holdBlocks", defaults))
	case diagnose.RequestTimeout:
		longer := func(d time.Duration) string {
			if d <= 0 {
				return ""
			}
			return (4 * d).String()
		}
		set := each(func(p *scenario.Pool) string { return longer(p.EPP.HoldLimit) }, "epp.holdLimit")
		if v := longer(s.Workload.Timeout); v != "" {
			set = append(set, scenario.Setting{Path: "workload.timeout", Value: v})
		}
		one(set...)
	}
	return out
}

// scoredBy returns a picker's configuration in which a scorer counts ten times as much as the queue.
func scoredBy(scorer string) string {
	return fmt.Sprintf("{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, "+
		"plugins: [{type: %[1]s}, {type: queue-scorer}], schedulingProfiles: [{name: default, "+
		"plugins: [{pluginRef: %[1]s, weight: 10}, {pluginRef: queue-scorer, weight: 1}]}]}", scorer)
}

// servers returns settings that multiply the servers of all pools.
func servers(s *scenario.Scenario, factor int) (set []scenario.Setting) {
	for i := range s.Pools {
		p := &s.Pools[i]
		more := func(field string, n int) {
			if n > 0 {
				set = append(set, scenario.Setting{Path: fmt.Sprintf("pools[%d].%s", i, field),
					Value: fmt.Sprint(factor * n)})
			}
		}
		for j := range p.Groups {
			more(fmt.Sprintf("groups[%d].replicas", j), p.Groups[j].Replicas)
		}
		if len(p.Groups) == 0 && len(p.Endpoints) == 0 {
			more("replicas", p.Replicas)
			more("disaggregation.prefillReplicas", p.Disaggregation.PrefillReplicas)
		}
	}
	return set
}
