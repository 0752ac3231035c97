package scenario

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/gateway/bbr"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Models are the names by which requests may ask for the pool's model itself.
func (p *Pool) Models() []string { return append([]string{p.Model}, p.ServedModelNames...) }

// routes says to which pool each model and each adapter leads. A single pool gets
// every request, whatever it asks for.
func (s *Scenario) routes() bbr.Table {
	t := bbr.Table{}
	for i := range s.Pools {
		p := &s.Pools[i]
		for _, name := range append(p.Models(), p.ModelServer.LoRAAdapters...) {
			t[name] = bbr.Target{Pool: i, Base: p.Model}
		}
	}
	return t
}

// checkRoutes tells models that lead to several pools.
func (s *Scenario) checkRoutes() Problems {
	if s.gateway != nil {
		return nil // routes say where requests go
	}
	var out Problems
	of := map[string]int{}
	for i := range s.Pools {
		p := &s.Pools[i]
		own := map[string]bool{}
		claim := func(field, name string) {
			at := fmt.Sprintf("pools[%d].%s", i, field)
			switch other, taken := of[name]; {
			case name == "":
				out = append(out, s.problem(at, "it is empty", "the name of a model"))
			case own[name] && field != "model":
				out = append(out, s.problem(at, fmt.Sprintf("%q is there twice", name), "each name once"))
			case taken && !own[name]:
				found := fmt.Sprintf("%q also leads to pools[%d], %s", name, other, s.Pools[other].Name)
				if !s.written(at) {
					found = "left out, and " + found
				}
				out = append(out, s.problem(at, found,
					"a name of its own: a request finds its pool by the model that it asks for"))
			}
			if own[name] = true; name != "" {
				if _, taken := of[name]; !taken {
					of[name] = i
				}
			}
		}
		claim("model", p.Model)
		for k, name := range p.ServedModelNames {
			claim(fmt.Sprintf("servedModelNames[%d]", k), name)
		}
		if len(s.Pools) == 1 {
			continue // its engines know how to take an adapter twice
		}
		for k, name := range p.ModelServer.LoRAAdapters {
			if !own[name] {
				claim(fmt.Sprintf("modelServer.loraAdapters[%d]", k), name)
			}
		}
	}
	return out
}

// served says whether somebody serves a model, as far as it can be known, and what is served.
func (s *Scenario) served(model string) (known []string, ok bool) {
	if s.gateway != nil && slices.ContainsFunc(s.Pools,
		func(p Pool) bool { return p.EPP.objects != nil && len(p.EPP.objects.Objects.Rewrites) > 0 }) ||
		slices.ContainsFunc(s.Pools, func(p Pool) bool { return len(p.Endpoints) > 0 }) {
		return nil, true
	}
	for i := range s.Pools {
		known = append(append(known, s.Pools[i].Models()...), s.Pools[i].ModelServer.LoRAAdapters...)
	}
	return known, slices.Contains(known, model)
}

// checkModel tells a model that a workload, or a class of it, asks for and nobody
// serves.
func (s *Scenario) checkModel(w *Workload, where string) Problems {
	known, ok := s.served(w.Model)
	if ok || w.Model == "" {
		return nil
	}
	p := s.problem(where+".model", fmt.Sprintf("found %q", w.Model), "the model of a pool, or an adapter")
	p.Hint = strictyaml.DidYouMean(w.Model, known)
	return Problems{p}
}
