package objects

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Selection is the input of one pool's picker.
type Selection struct {
	// Found is false while the pool does not exist. The picker is then not serving, and has no endpoints.
	Found bool
	Pool  Pool

	// Endpoints are the ready pods' ports. An endpoint's name is "<pod>-rank-<index of the port>".
	Endpoints []*picker.Endpoint

	// Announced are document 002's metrics by endpoint ID.
	Announced map[string]*picker.Announced

	Objects picker.Objects

	// Priorities are the objectives' different priorities, highest first. Flow control has bands for them.
	Priorities []int
}

// Select returns the selection for the pool of a namespace and name.
func (s *Set) Select(namespace, name string) Selection {
	i := slices.IndexFunc(s.Pools, func(p Pool) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return Selection{}
	}
	out := Selection{Found: true, Pool: s.Pools[i]}
	out.Endpoints = s.Endpoints(namespace, out.Pool.Selector, out.Pool.Ports)
	out.targets()
	out.Objects.Objectives = map[string]int{}
	for _, o := range s.Objectives {
		if o.Namespace == namespace && o.Pool.means(&out.Pool) {
			out.Objects.Objectives[o.Name] = o.Priority
			out.Priorities = append(out.Priorities, o.Priority)
		}
	}
	rewrites := slices.DeleteFunc(slices.Clone(s.Rewrites), func(w Rewrite) bool {
		return w.Namespace != namespace || !w.Pool.means(&out.Pool)
	})
	machine.SortStableFunc(rewrites, func(a, b Rewrite) int { return Older(a.Meta, b.Meta) })
	for _, w := range rewrites {
		out.Objects.Rewrites = append(out.Objects.Rewrites, picker.Rewrite{Name: w.Name, Rules: w.Rules})
	}
	s.models(&out)
	return out
}

// models adds the pool's InferenceModels. The oldest one of a model name counts.
func (s *Set) models(out *Selection) {
	models := slices.DeleteFunc(slices.Clone(s.Models), func(m Model) bool {
		return m.Namespace != out.Pool.Namespace || !m.Pool.means(&out.Pool)
	})
	machine.SortStableFunc(models, func(a, b Model) int { return Older(a.Meta, b.Meta) })
	for _, m := range models {
		if _, known := out.Objects.Models[m.Name]; known {
			continue
		}
		if out.Objects.Models == nil {
			out.Objects.Models = map[string]int{}
		}
		out.Objects.Models[m.Name] = m.Priority
		out.Priorities = append(out.Priorities, m.Priority)
		if len(m.Targets) > 0 {
			out.Objects.Rewrites = append(out.Objects.Rewrites,
				picker.Rewrite{Name: m.Meta.Name,
					Rules: []picker.RewriteRule{{Models: []string{m.Name}, Targets: m.Targets}}})
		}
	}
	machine.SortFunc(out.Priorities, func(a, b int) int { return cmp.Compare(b, a) })
	out.Priorities = slices.Compact(out.Priorities)
}

// Endpoints returns the ports of the ready pods that a selector selects, in the order of namespace, pod and port. A
// picker without a pool (--endpoint-selector) uses only this; objectives and rewrites have no effect on it.
func (s *Set) Endpoints(namespace string, selector picker.Selector, ports []int) (out []*picker.Endpoint) {
	if len(selector) == 0 {
		return nil // a pool without a selector has no pods
	}
	pods := slices.Clone(s.Pods)
	machine.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range pods {
		if p.Namespace != namespace || !p.Ready || p.IP == "" || !selector.Matches(p.Labels) {
			continue
		}
		for _, i := range p.ports(ports) {
			e := picker.NewEndpoint(p.Namespace, picker.RankName(p.Name, i), p.IP, strconv.Itoa(ports[i]), p.Labels)
			e.Rank = i
			out = append(out, e)
		}
	}
	return out
}

// targets adds document 002's pods, which are listed in the pool. It adds unready ones, too: the document has a filter
// for readiness.
func (s *Selection) targets() {
	for _, t := range s.Pool.Targets {
		port := strconv.Itoa(cmp.Or(t.Port, s.Pool.Ports[0])) // a pool has a port
		e := picker.NewEndpoint(s.Pool.Namespace, t.Name, t.Address, port, nil)
		s.Endpoints = append(s.Endpoints, e)
		if s.Announced == nil {
			s.Announced = map[string]*picker.Announced{}
		}
		s.Announced[e.ID()] = &t.Announced
	}
}
