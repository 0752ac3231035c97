package scenario

import (
	"cmp"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
)

// CachesPrefixes tells whether some of the simulated model servers find the
// beginnings of prompts in their KV caches.
func (s *Scenario) CachesPrefixes() bool {
	for i := range s.Pools {
		if p := &s.Pools[i]; len(p.Endpoints) == 0 && p.ModelServer.Batching != Independent &&
			p.ModelServer.PrefixCaching {
			return true
		}
	}
	return false
}

// Generator is the workload as the core makes it: the same requests for a live
// and a virtual run.
func (s *Scenario) Generator() *workload.Config {
	c := s.generator(&s.Workload)
	s.classes(c, s.generator)
	if s.recorded != nil {
		c.Recorded, c.Requests, c.Turns, c.Adapters, c.Leaving, c.Classes = s.recorded,
			min(len(s.recorded), s.Workload.Requests), nil, nil, workload.Leaving{}, nil
		if c.Untimed = s.untimed; !c.Untimed {
			c.Rate, c.Phases, c.Until = 1, nil, 0
		}
	}
	c.Describe()
	return c
}

// generator makes the requests of a workload of one class.
func (s *Scenario) generator(w *Workload) *workload.Config {
	c := &workload.Config{Seed: s.Seed, Model: cmp.Or(w.Model, s.Pools[0].Model), Stream: w.Stream,
		MaxTokens: w.MaxTokens,
		Text:      w.Prompt.Text, Path: w.Path, Host: w.Host}
	if w.class > 0 { // the record says which of several a request has
		c.SLO = w.SLO.String()
	}
	w.arrivals(s.Seed, c)
	if w.OutputTokens.Quantile(1) > 0 {
		c.Output = func(d *machine.Draw) int { return int(w.OutputTokens.Sample(d)) }
	}
	switch w.Prompt.Alphabet {
	case Unicode:
		c.Alphabet = workload.Unicode
	case BoundaryLike:
		c.Alphabet = workload.BoundaryLike
	}
	switch {
	case !w.Prompt.Bytes.IsZero():
		low, high := machine.Time(w.Prompt.Bytes.Low), machine.Time(w.Prompt.Bytes.High)
		c.Length = func(d *machine.Draw) int { return int(d.Between(low, high)) }
	case w.Prompt.Tokens.Quantile(1) > 0:
		c.Characters = true
		c.Length = func(d *machine.Draw) int { return charactersPerToken * int(w.Prompt.Tokens.Sample(d)) }
	case w.Prompt.Characters.Mean() > 0:
		c.Characters = true
		c.Length = func(d *machine.Draw) int { return int(w.Prompt.Characters.Sample(d)) }
	}
	w.conversations(c)
	c.Tokenizer = s.Pools[0].tokens().Tokenizer
	seed := s.Seed
	if w.class > 0 { // others than those of other classes
		d := machine.NewDraw(seed, "client", "class's prefixes", uint64(w.class))
		seed = d.Uint64()
	}
	c.Prefixes = workload.Prefixes(seed, w.Prompt.Shared.Groups, c.Alphabet, w.Prompt.Shared.Characters.Sample)
	return c
}

// charactersPerToken is what tokens.Packed makes a token of.
const charactersPerToken = 4
