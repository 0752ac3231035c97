package scenario

import (
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/latency/dist"
	"github.com/windtunnel/windtunnel/core/strictyaml"
)

// Overrides are what a command line says instead of the scenario. Zero values
// leave the scenario as it is.
type Overrides struct {
	Seed        *uint64
	Requests    *int
	Concurrency *int
	Rate        *float64
	Prefill     string   // as ModelServer.Prefill; for every pool
	Batching    string   // of every pool whose model servers batch: continuous, static or none
	Replicas    *int     // for every pool of simulated model servers
	Endpoints   []string // instead of the first pool's model servers
}

// Override changes the scenario. A mistake is told by the flag's name.
func (s *Scenario) Override(o Overrides) error {
	var out Problems
	bad := func(flag, found, expected string) {
		out = append(out, Problem{Path: "--" + flag, Found: found, Expected: expected})
	}
	if o.Seed != nil {
		s.Seed = *o.Seed
	}
	if o.Requests != nil {
		s.Workload.most = *o.Requests
		if s.Workload.Requests = *o.Requests; *o.Requests < 1 || *o.Requests > 100_000_000 {
			bad("requests", fmt.Sprintf("found %d", *o.Requests), "a whole number, from 1 to 100000000")
		}
	}
	if o.Concurrency != nil {
		if s.Workload.Concurrency = *o.Concurrency; *o.Concurrency < 1 || *o.Concurrency > 1_000_000 {
			bad("concurrency", fmt.Sprintf("found %d", *o.Concurrency), "a whole number, from 1 to 1000000")
		}
	}
	if o.Rate != nil {
		if s.Workload.Rate = *o.Rate; !(*o.Rate > 0 && *o.Rate <= 10_000_000) {
			bad("rate", fmt.Sprintf("found %v", *o.Rate), "requests per second, above 0 and at most 10000000")
		} else if len(s.Workload.Stages) > 0 {
			bad("rate", "the scenario's stages have rates of their own", "a scenario without stages")
		} else if s.recorded != nil && !s.untimed {
			if found, expected := s.pace(*o.Rate); found != "" {
				bad("rate", found, expected)
			}
		}
	}
	if o.Replicas != nil && (*o.Replicas < 1 || *o.Replicas > 16384) {
		bad("replicas", fmt.Sprintf("found %d", *o.Replicas), "a whole number, from 1 to 16384")
	}
	for i := range s.Pools {
		if o.Replicas != nil && len(s.Pools[i].Groups) > 0 {
			bad("replicas", fmt.Sprintf("given, and pool %s has groups of servers", s.Pools[i].Name),
				"pools without groups; --set changes the replicas of one where there is such a flag")
		}
	}
	switch b := Batching(o.Batching); {
	case b == "":
	case b != Continuous && b != Static && b != NoBatching:
		bad("batching", fmt.Sprintf("found %q", o.Batching), "continuous, static or none")
	case !s.batches():
		bad("batching", fmt.Sprintf("found %q, but no pool of the scenario batches", o.Batching),
			"a scenario with modelServer.batching: continuous")
	}
	for _, e := range o.Endpoints {
		if err := CheckEndpoint(e); err != nil {
			bad("endpoint", err.Error(), "HOST:PORT such as 127.0.0.1:8000")
		}
	}
	var prefill dist.Dist
	if o.Prefill != "" {
		if problems := strictyaml.Text(o.Prefill).Named("--prefill").Decode(&prefill); len(problems) > 0 {
			out = append(out, problems...)
		} else if s.batches() && !prefill.IsConstant() {
			bad("prefill", fmt.Sprintf("%q, but the scenario's model servers batch, so that requests share steps",
				o.Prefill), "one duration, such as 200ms")
		} else if prefill.Quantile(0) < 1 {
			bad("prefill", fmt.Sprintf("%q can be zero", o.Prefill),
				"a duration or distribution above zero, such as 100ms..30s")
		}
	}
	if len(out) == 0 {
		out = s.settle()
	}
	if len(out) > 0 {
		return out
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		p.each(func(m *ModelServer) {
			m.hardware.ready = false // the seed may be another
			if o.Prefill != "" {
				m.Prefill, m.constant = prefill, m.Batching != Independent
			}
			if o.Batching != "" && m.Batching != Independent {
				m.Batching = Batching(o.Batching)
			}
		})
		if o.Prefill != "" {
			// A prefill asked for on the command line is not cut by a limit
			// that was written for another one.
			longest := time.Duration(prefill.Quantile(1))
			p.EPP.HoldLimit = max(p.EPP.HoldLimit, 2*longest)
			s.Workload.Timeout = max(s.Workload.Timeout, 2*longest)
		}
		if o.Replicas != nil && len(p.Endpoints) == 0 {
			p.Replicas = *o.Replicas
		}
	}
	if w := &s.Workload; w.peak() > 0 && o.Concurrency == nil && !s.written("workload.concurrency") {
		w.Concurrency = s.openLoop()
	}
	if len(o.Endpoints) > 0 {
		s.Pools[0].Endpoints, s.Pools[0].Replicas = o.Endpoints, 0
	}
	return nil
}

// batches reports whether requests share steps in some pool.
func (s *Scenario) batches() bool {
	for i := range s.Pools {
		if s.Pools[i].ModelServer.Batching != Independent {
			return true
		}
	}
	return false
}
