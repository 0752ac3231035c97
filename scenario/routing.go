package scenario

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/gateway/bbr"
)

// Models returns the names of the pool's model in requests.
func (p *Pool) Models() []string { return append([]string{p.Model}, p.ServedModelNames...) }

// routes returns the pool of each model and adapter. A single pool gets every request.
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

// checkRoutes reports models that lead to several pools.
func (s *checker) checkRoutes() {
	if s.gateway != nil {
		return // the routes of manifests decide
	}
	of := map[string]int{}
	for i := range s.Pools {
		p := &s.Pools[i]
		own := map[string]bool{}
		claim := func(field, name string) {
			at := fmt.Sprintf("pools[%d].%s", i, field)
			switch other, taken := of[name]; {
			case name == "":
				s.bad(at, "it is empty", "the name of a model")
			case own[name] && field != "model":
				s.bad(at, fmt.Sprintf("%q is there twice", name), "each name once")
			case taken && !own[name]:
				found := fmt.Sprintf("%q also leads to pools[%d], %s", name, other, s.Pools[other].Name)
				if !s.written(at) {
					found = "left out, and " + found
				}
				s.bad(at, found, "a name of its own: a request finds its pool by the model that it asks for")
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
			continue // an engine may list an adapter twice
		}
		for k, name := range p.ModelServer.LoRAAdapters {
			if !own[name] {
				claim(fmt.Sprintf("modelServer.loraAdapters[%d]", k), name)
			}
		}
	}
}

// served reports whether a pool serves a model, as far as the scenario determines it, and returns all served names.
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

// checkModel checks that a pool serves the model of a workload, or of a class of it.
func (s *checker) checkModel(w *Workload, where string) {
	if known, ok := s.served(w.Model); !ok && w.Model != "" {
		s.unknown(where+".model", w.Model, "the model of a pool, or an adapter", known)
	}
}
