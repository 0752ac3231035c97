package scenario

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Overrides are values of a command line that replace the scenario's. Zero values leave the scenario as it is.
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

// Override changes the scenario. Mistakes name the flag. Values have the limits of their fields.
func (s *Scenario) Override(o Overrides) error {
	c := checker{Scenario: s}
	bad := func(flag, found, expected string) {
		c.add(Problem{Path: "--" + flag, Found: found, Expected: expected})
	}
	read := func(into any, flags map[string]any) bool {
		text, err := json.Marshal(flags)
		if err != nil {
			bad("rate", err.Error(), "a number") // JSON has neither NaN nor infinity
			return false
		}
		doc, err := strictyaml.Parse(text, strictyaml.Options{})
		if err != nil {
			panic(err) // it is JSON
		}
		problems := doc.Root().Decode(into)
		for _, p := range problems {
			found := strings.Replace(p.Found, "found the number", "found", 1) // a flag's value is a text
			c.add(Problem{Path: "--" + p.Path, Found: found, Expected: p.Expected, Hint: p.Hint})
		}
		return len(problems) == 0
	}
	if o.Seed != nil {
		s.Seed = *o.Seed
	}
	w := &s.Workload
	if o.Requests != nil && read(w, map[string]any{"requests": o.Requests}) {
		w.most = *o.Requests
	}
	if o.Concurrency != nil {
		read(w, map[string]any{"concurrency": o.Concurrency})
	}
	if o.Rate != nil && read(w, map[string]any{"rate": o.Rate}) {
		switch {
		case *o.Rate == 0:
			bad("rate", "found 0", "requests per second, above 0")
		case len(w.Stages) > 0:
			bad("rate", "the scenario's stages have rates of their own", "a scenario without stages")
		case s.recorded != nil && !s.untimed:
			if found, expected := s.pace(*o.Rate); found != "" {
				bad("rate", found, expected)
			}
		}
	}
	if o.Replicas != nil {
		read(new(Pool), map[string]any{"replicas": o.Replicas})
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
	var server ModelServer
	prefill := &server.Prefill
	if o.Prefill != "" && read(&server, map[string]any{"prefill": o.Prefill}) && s.batches() && !prefill.IsConstant() {
		bad("prefill", fmt.Sprintf("%q, but the scenario's model servers batch, so that requests share steps",
			o.Prefill), "one duration, such as 200ms")
	}
	if len(c.problems) == 0 {
		c.settle()
	}
	if len(c.problems) > 0 {
		return c.problems
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		p.each(func(m *ModelServer) {
			m.hardware.ready = false // the seed may have changed
			if o.Prefill != "" {
				m.Prefill, m.constant = *prefill, m.Batching != Independent
			}
			if o.Batching != "" && m.Batching != Independent {
				m.Batching = Batching(o.Batching)
			}
		})
		if o.Prefill != "" {
			// The limits of the file are for the file's prefill.
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
	return slices.ContainsFunc(s.Pools, func(p Pool) bool { return p.ModelServer.Batching != Independent })
}
