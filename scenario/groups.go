package scenario

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// ServerGroup is some of a pool's model servers, which are unlike the others.
type ServerGroup struct {
	// What the group is called in the names of its servers and in the report.
	Name string `json:"name"`
	// How many servers it has.
	Replicas int `json:"replicas" min:"1" max:"16384"`
	// What they do: decode (and all of it, where no others prefill), or only prefill.
	Role ServerRole `json:"role"`
	// What is other than the pool's modelServer says: the accelerator and all that times and memory depend on. What
	// requests see is the same in the whole pool.
	ModelServer ModelServer `json:"modelServer"`
	// What changes the number of replicas while requests are under way.
	Autoscaling Autoscaling `json:"autoscaling"`
	// What the group's accelerators cost; left out, what the pool's do.
	Price Price `json:"price"`
}

func (g *ServerGroup) defaults() { g.Replicas, g.Role = 1, DecodeRole }

// ServerRole is what a group of servers does.
type ServerRole string

// The roles.
const (
	DecodeRole  ServerRole = "decode"
	PrefillRole ServerRole = "prefill"
)

func (ServerRole) Values() []string { return []string{string(DecodeRole), string(PrefillRole)} }

// ofPool are the fields of a modelServer that a pool's groups have in common.
var ofPool = []string{"batching", "prefixCaching", "blockSize", "outputTokens", "tokenizer", "chatTemplate",
	"storeResponses", "engineSteps", "loraAdapters", "kvEvents", "faults"}

// GroupName is what the group of the server with this index is called, "" where the
// pool has no groups.
func (p *Pool) GroupName(index int) string {
	if d := p.DeploymentOf(index); d != nil {
		return d.Group
	}
	return ""
}

// Server is how the simulated server with this index behaves.
func (p *Pool) Server(index int) *ModelServer {
	if d := p.DeploymentOf(index); d != nil {
		return d.server
	}
	return &p.ModelServer
}

// kinds are the ways in which the pool's servers behave, each with the path of what
// the file says of it and of what it says where that says nothing.
func (p *Pool) kinds(path string) []kind {
	own := kind{m: &p.ModelServer, path: path + ".modelServer"}
	if len(p.Groups) == 0 {
		return []kind{own}
	}
	out := make([]kind, len(p.Groups))
	for i := range p.Groups {
		out[i] = kind{&p.Groups[i].ModelServer, fmt.Sprintf("%s.groups[%d].modelServer", path, i), own.path}
	}
	return out
}

type kind struct {
	m               *ModelServer
	path, otherwise string
}

// written says whether the file has a field of it.
func (k *kind) written(s *Scenario, field string) bool {
	return s.written(k.path+"."+field) || k.otherwise != "" && s.written(k.otherwise+"."+field)
}

// problem is a mistake in a field, which the file has here or there.
func (k *kind) problem(s *Scenario, field, found, expected string) Problem {
	if field != "" {
		field = "." + field
	}
	if k.otherwise != "" && !s.written(k.path+field) && s.written(k.otherwise+field) {
		return s.problem(k.otherwise+field, found, expected)
	}
	return s.problem(k.path+field, found, expected)
}

// checkGroups tells what is wrong with a pool's groups, and works out what their
// servers are.
func (s *Scenario) checkGroups(p *Pool, path string) Problems {
	var out Problems
	add := func(field, found, expected string) { out = append(out, s.problem(path+"."+field, found, expected)) }
	if len(p.Groups) == 0 {
		return nil
	}
	for _, field := range []string{"replicas", "endpoints", "disaggregation.prefillReplicas"} {
		if s.written(path + "." + field) {
			add(field, "given beside groups", "one of them: groups have replicas and roles of their own")
		}
	}
	p.Replicas, p.Disaggregation.PrefillReplicas = 0, 0
	names := map[string]bool{}
	for i := range p.Groups {
		g, at := &p.Groups[i], fmt.Sprintf("groups[%d]", i)
		if g.Name == "" || names[g.Name] {
			add(at+".name", found(g.Name), "a name of its own for the group")
		}
		names[g.Name] = true
		if g.Role == PrefillRole {
			p.Disaggregation.PrefillReplicas += g.Replicas
		} else {
			p.Replicas += g.Replicas
		}
		for _, field := range ofPool {
			if s.written(path + "." + at + ".modelServer." + field) {
				add(at+".modelServer."+field, "given for a group", "the same for all, in the pool's modelServer")
			}
		}
		merged := p.ModelServer
		s.merge(reflect.ValueOf(&merged).Elem(), reflect.ValueOf(&g.ModelServer).Elem(), path+"."+at+".modelServer")
		g.ModelServer = merged
	}
	switch {
	case p.Replicas == 0:
		add("groups", "all of them only prefill", "a group with role: decode")
	case p.Disaggregation.PrefillReplicas > 0 && p.Sidecar == NoSidecar:
		add("groups", "one has role prefill, and there are no sidecars", "sidecar: routing beside it")
	}
	return out
}

// merge writes what the file says of a section into another one.
func (s *Scenario) merge(into, from reflect.Value, path string) {
	for _, f := range strictyaml.Fields(into.Type()) {
		at := path + "." + f.Name
		if !s.written(at) {
			continue
		}
		if IsSection(f.Type) {
			s.merge(into.FieldByIndex(f.Index), from.FieldByIndex(f.Index), at)
			continue
		}
		into.FieldByIndex(f.Index).Set(from.FieldByIndex(f.Index))
	}
}

// each calls f with every way in which the pool's servers behave.
func (p *Pool) each(f func(m *ModelServer)) {
	f(&p.ModelServer)
	for i := range p.Groups {
		f(&p.Groups[i].ModelServer)
	}
}

// longestPrefill is the longest that a prefill of the pool's may be drawn to take, in
// nanoseconds.
func (p *Pool) longestPrefill() (longest int64) {
	p.each(func(m *ModelServer) { longest = max(longest, m.Prefill.Quantile(1)) })
	return longest
}

// once leaves out problems that are told already: groups have much in common.
func once(list Problems) Problems {
	var out Problems
	for _, p := range list {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
