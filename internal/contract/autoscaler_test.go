package contract

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
)

func deployments(t *rapid.T) Kind[deployment.Message, *machine.Effects[deployment.Effect]] {
	second := rapid.SampledFrom([]machine.Time{1, machine.Second, 30 * machine.Second})
	c := deployment.Config{Name: "x", Seed: rapid.Uint64Range(0, 3).Draw(t, "seed"),
		Replicas: rapid.IntRange(0, 4).Draw(t, "replicas"), Places: rapid.IntRange(1, 8).Draw(t, "places"),
		Startup: dist.Between(machine.Second, second.Draw(t, "startup")+machine.Second),
		PreStop: second.Draw(t, "preStop"), Grace: second.Draw(t, "grace")}
	return Kind[deployment.Message, *machine.Effects[deployment.Effect]]{
		Make: func() Instance[deployment.Message, *machine.Effects[deployment.Effect]] {
			d := deployment.New(c)
			return Instance[deployment.Message, *machine.Effects[deployment.Effect]]{Machine: d,
				Effects: new(machine.Effects[deployment.Effect]), Say: Plainly[deployment.Effect],
				State: func() string { return fmt.Sprint(d.Status()) }}
		},
		Message: func(t *rapid.T, _ machine.Time) deployment.Message {
			pod := rapid.IntRange(-1, 9).Draw(t, "pod")
			switch rapid.IntRange(0, 2).Draw(t, "message") {
			case 0:
				return deployment.Evict{Pod: pod, Replace: rapid.Bool().Draw(t, "replace"),
					Grace: rapid.SampledFrom([]machine.Time{0, 1, machine.Second}).Draw(t, "grace")}
			case 1:
				return deployment.Idle{Pod: pod}
			}
			return deployment.Scale{Replicas: rapid.IntRange(-1, 9).Draw(t, "replicas")}
		},
		Spans: []machine.Time{machine.Second, 7 * machine.Second, 30 * machine.Second},
		Rest:  100 * machine.Second,
	}
}

func autoscalers(t *rapid.T) Kind[autoscaler.Message, *machine.Effects[autoscaler.Effect]] {
	c := autoscaler.Config{Name: "x", Seed: rapid.Uint64Range(0, 3).Draw(t, "seed"), KEDA: rapid.Bool().Draw(t, "keda"),
		Min: rapid.IntRange(0, 2).Draw(t, "min"), Max: rapid.IntRange(2, 9).Draw(t, "max"),
		Behavior: autoscaler.DefaultBehavior(), Scrape: 15 * machine.Second, Sync: 15 * machine.Second,
		Poll: 10 * machine.Second, Cooldown: 60 * machine.Second}
	rule := "load:recorded"
	for _, err := range []error{c.AddTrigger("load", "sum(load) or vector(0)", 2), c.AddTrigger("recorded", rule, 1),
		c.AddRule(rule, "sum(rate(load[1m]))")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.Rules[0].Interval = 15 * machine.Second
	if rapid.Bool().Draw(t, "formula") {
		if err := c.SetFormula("max(load, recorded ?? 0)", 3); err != nil {
			t.Fatal(err)
		}
		c.Fallback = &autoscaler.Fallback{FailureThreshold: 2, Replicas: 1}
	}
	status := deployment.Status{Wanted: rapid.IntRange(0, 9).Draw(t, "wanted")}
	return Kind[autoscaler.Message, *machine.Effects[autoscaler.Effect]]{
		Make: func() Instance[autoscaler.Message, *machine.Effects[autoscaler.Effect]] {
			m := autoscaler.New(c, status)
			return Instance[autoscaler.Message, *machine.Effects[autoscaler.Effect]]{Machine: m,
				Effects: new(machine.Effects[autoscaler.Effect]), Say: Plainly[autoscaler.Effect],
				State: func() string { return fmt.Sprint(m.Recommended(), m.Failure()) }}
		},
		Message: func(t *rapid.T, _ machine.Time) autoscaler.Message {
			if rapid.IntRange(0, 3).Draw(t, "message") == 0 {
				n := rapid.IntRange(0, 9).Draw(t, "wanted")
				return autoscaler.Status{Wanted: n, Replicas: n, Ready: rapid.IntRange(0, n).Draw(t, "ready")}
			}
			s := autoscaler.Scraped{Target: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "target"),
				Failed: rapid.IntRange(0, 5).Draw(t, "failed") == 0}
			for range rapid.IntRange(0, 2).Draw(t, "samples") {
				s.Samples = append(s.Samples,
					promql.Sample{Name: "load", Value: float64(rapid.IntRange(0, 40).Draw(t, "load"))})
			}
			return s
		},
		Spans: []machine.Time{machine.Second, 5 * machine.Second, 15 * machine.Second},
		Rest:  400 * machine.Second,
	}
}
