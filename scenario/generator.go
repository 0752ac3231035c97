package scenario

import (
	"cmp"
	"slices"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
)

// CachesPrefixes reports whether some simulated model servers cache the beginnings of prompts.
func (s *Scenario) CachesPrefixes() bool {
	return slices.ContainsFunc(s.Pools, func(p Pool) bool {
		return len(p.Endpoints) == 0 && p.ModelServer.Batching != Independent && p.ModelServer.PrefixCaching
	})
}

// Generator compiles the workload. A live and a virtual run send the same requests.
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

// generator compiles a workload of one class.
func (s *Scenario) generator(w *Workload) *workload.Config {
	c := &workload.Config{Seed: s.Seed, Model: cmp.Or(w.Model, s.Pools[0].Model), Stream: w.Stream,
		MaxTokens: w.MaxTokens,
		Prompts:   workload.Prompts{Text: w.Prompt.Text}, Path: w.Path, Host: w.Host}
	if w.class > 0 { // the record names the objectives of a class
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
	if w.class > 0 { // classes have different prefixes
		d := machine.NewDraw(seed, "client", "class's prefixes", uint64(w.class))
		seed = d.Uint64()
	}
	c.Prefixes = workload.Prefixes(seed, w.Prompt.Shared.Groups, c.Alphabet, w.Prompt.Shared.Characters.Sample)
	return c
}

// charactersPerToken is the size of a token of tokens.Packed.
const charactersPerToken = 4
