package scenario

import (
	"fmt"
	"reflect"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// ServerGroup is a group of equal model servers of a pool, which differ from the others.
type ServerGroup struct {
	// The group's name in the names of its servers and in the report.
	Name string `json:"name"`
	// How many servers it has.
	Replicas int `json:"replicas" min:"1" max:"16384" default:"1"`
	// What they do: decode (and prefill, where no other group does), or only prefill.
	Role ServerRole `json:"role" oneof:"decode,prefill" default:"decode"`
	// What differs from the pool's modelServer: the accelerator, and everything that times and memory depend on. What
	// requests see is the same in the whole pool.
	ModelServer ModelServer `json:"modelServer"`
	// What changes the number of replicas while requests are under way.
	Autoscaling Autoscaling `json:"autoscaling"`
	// The price of the group's accelerators. Left out: the pool's.
	Price Price `json:"price"`
}

// ServerRole is the role of a group of servers.
type ServerRole string

// The roles.
const (
	DecodeRole  ServerRole = "decode"
	PrefillRole ServerRole = "prefill"
)

// ofPool are the fields of a modelServer that all groups of a pool share.
var ofPool = []string{"batching", "prefixCaching", "blockSize", "outputTokens", "tokenizer", "chatTemplate",
	"storeResponses", "engineSteps", "loraAdapters", "kvEvents", "faults"}

// Server returns the behaviour of the simulated server with this index.
func (p *Pool) Server(index int) *ModelServer {
	if d := p.DeploymentOf(index); d != nil {
		return d.server
	}
	return &p.ModelServer
}

// kinds returns the different behaviours of the pool's servers, each with its path in the file and the path of the
// section that it inherits from.
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
	path, otherwise string // otherwise: "" without groups
}

// written reports whether the file has a field of it, or of the section that it inherits from.
func (k *kind) written(s *checker, field string) bool {
	return s.written(k.path+"."+field) || k.otherwise != "" && s.written(k.otherwise+"."+field)
}

// at returns the path at which the file has a field of it.
func (k *kind) at(s *checker, field string) string {
	if field != "" {
		field = "." + field
	}
	if k.otherwise != "" && !s.written(k.path+field) && s.written(k.otherwise+field) {
		return k.otherwise + field
	}
	return k.path + field
}

// checkGroups checks a pool's groups, and completes their modelServers by the pool's.
func (s *checker) checkGroups(p *Pool, path string) {
	add := func(field, found, expected string) { s.bad(path+"."+field, found, expected) }
	if len(p.Groups) == 0 {
		return
	}
	s.refuse(path, []string{"replicas", "endpoints", "disaggregation.prefillReplicas"}, "given beside groups",
		"one of them: groups have replicas and roles of their own")
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
		s.refuse(path+"."+at+".modelServer", ofPool, "given for a group", "the same for all, in the pool's modelServer")
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
}

// merge copies the fields that the file has of a section into another one.
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

// each calls f with every different behaviour of the pool's servers.
func (p *Pool) each(f func(m *ModelServer)) {
	f(&p.ModelServer)
	for i := range p.Groups {
		f(&p.Groups[i].ModelServer)
	}
}

// longestPrefill returns the longest prefill that the pool's servers may draw, in nanoseconds.
func (p *Pool) longestPrefill() (longest int64) {
	p.each(func(m *ModelServer) { longest = max(longest, m.Prefill.Quantile(1)) })
	return longest
}
