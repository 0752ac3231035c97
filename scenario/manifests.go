package scenario

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/manifests"
	"github.com/windtunnel/windtunnel/scenario/commandline"
)

// Gateway is the way from the client to the pools that a scenario's manifests define.
type Gateway = plan.Front

// upstream returns the backend of the pool with an index. It is nil if no policy concerns the pool or routes to it, so
// that Envoy only sends requests where the picker says.
func (s *Scenario) upstream(pool int) *gateway.Backend {
	if s.gateway == nil {
		return nil
	}
	for _, h := range s.gateway.Port.Table.Hosts {
		for _, r := range h.Routes {
			for i := range r.Shares {
				b := r.Shares[i].Backend
				if n, ours := s.gateway.Pools[key(b)]; ours && n == pool &&
					(b.Limits != nil || b.Health != nil || r.Timeout != nil || r.Try != nil || r.Retrying != nil) {
					return b
				}
			}
		}
	}
	return nil
}

// key returns a backend's key, "" for one that cannot be used.
func key(b *gateway.Backend) string {
	if b == nil {
		return ""
	}
	return b.Key
}

// Gateway returns the manifests' Gateway, nil in a scenario without manifests.
func (s *Scenario) Gateway() *Gateway { return s.gateway }

// readGateway makes the pools of the manifests. The scenario's own pools of the same names override their fields.
func (s *checker) readGateway(dir string) {
	if s.Manifests == "" {
		if s.written("manifests") {
			s.bad("manifests", "it is empty",
				"a file or directory of Kubernetes manifests, from the scenario's own directory")
		}
		return
	}
	path := beside(dir, s.Manifests)
	set, err := manifests.Load([]string{path}, nil)
	if err != nil {
		s.badManifests(err)
		return
	}
	s.read = append(s.read, manifests.Files(path)...)
	program := gateway.Build(set, gateway.Options{Supply: true, Scenario: true})
	if program.Mistakes != nil {
		s.badManifests(program.Mistakes)
		return
	}
	g := &Gateway{Program: program, Pools: map[string]int{}}
	for _, x := range program.Gateways {
		for _, p := range x.Ports {
			if p.Table != nil && g.Port == nil {
				g.Served, g.Port = x, p
			}
		}
	}
	if g.Port == nil {
		s.bad("manifests", fmt.Sprintf("none of %d Gateways has a listener with protocol HTTP", len(program.Gateways)),
			"a Gateway whose listener takes the workload's requests")
		return
	}
	_, scaling := set.Scalings()
	s.assume(slices.Concat(set.Warnings, program.Notes, scaling)...)
	s.gateway, s.said = g, map[string]strictyaml.Value{}
	s.checkLeads(g)
	names := poolNames(program)
	for _, b := range program.Backends {
		if b.Pool == nil {
			continue
		}
		name := names[b.Key]
		i := slices.IndexFunc(s.Pools, func(p Pool) bool { return p.Name == name })
		if i < 0 {
			p := Pool{Name: name}
			SetDefaults(reflect.ValueOf(&p).Elem())
			i, s.Pools = len(s.Pools), append(s.Pools, p)
		}
		g.Pools[b.Key] = i
		m := fromManifests{s: s, set: set, backend: b, pool: &s.Pools[i], path: fmt.Sprintf("pools[%d]", i)}
		m.fill()
	}
	s.warnOfTries(g)
	known := slices.Sorted(maps.Values(names))
	for i := range s.Pools {
		if p := &s.Pools[i]; !slices.Contains(known, p.Name) {
			s.unknown(fmt.Sprintf("pools[%d].name", i), p.Name,
				"the name of an InferencePool of the manifests that a route leads to, "+strings.Join(known, ", ")+
					": pools beside manifests add fields to these", known)
		}
	}
	if len(g.Pools) == 0 && len(s.problems) == 0 {
		s.bad("manifests", "no route of them leads to an InferencePool",
			"an HTTPRoute with backendRefs of kind InferencePool")
	}
}

// badManifests reports the mistakes of the manifests, at the field if they have no place of their own.
func (s *checker) badManifests(err error) {
	var list Problems
	if !errors.As(err, &list) {
		s.bad("manifests", err.Error(), "manifests without mistakes; `windtunnel manifests check` prints the details")
	}
	s.add(list...)
}

// poolNames returns the names of pools in the scenario, by their backends' keys: their own, with the namespace if two
// share a name.
func poolNames(p *gateway.Program) map[string]string {
	many, out := map[string]int{}, map[string]string{}
	for _, b := range p.Backends {
		if b.Pool != nil {
			many[b.Name]++
		}
	}
	for _, b := range p.Backends {
		switch {
		case b.Pool == nil:
		case many[b.Name] > 1:
			out[b.Key] = b.Namespace + "-" + b.Name
		default:
			out[b.Key] = b.Name
		}
	}
	return out
}

// warnOfTries warns of routes whose limit of one attempt may end before the prefill. Envoy cuts such an attempt, and
// retries it elsewhere as often as the policy allows.
func (s *Scenario) warnOfTries(g *Gateway) {
	for _, h := range g.Port.Table.Hosts {
		for _, r := range h.Routes {
			for i := range r.Shares {
				n, ours := g.Pools[key(r.Shares[i].Backend)]
				try := r.Attempts().Try
				if !ours || try == 0 {
					continue
				}
				p, longest := &s.Pools[n], time.Duration(0)
				for _, k := range p.kinds("") {
					if k.m.Batching == Independent { // otherwise it depends on the prompts
						longest = max(longest, time.Duration(k.m.Prefill.Quantile(1)))
					}
				}
				if longest > try {
					s.assume(r.Rule.At.Problem(
						fmt.Sprintf("each attempt may take %s, and prefill in pool %s takes up to %s", try, p.Name,
							longest), "", "Envoy cuts longer attempts and retries them, or answers with 504").Error())
				}
			}
		}
	}
}

// checkLeads reports routes that lead to anything but pools.
func (s *checker) checkLeads(g *Gateway) {
	for _, h := range g.Port.Table.Hosts {
		for _, r := range h.Routes {
			var other *gateway.Backend
			for i := range r.Shares {
				if b := r.Shares[i].Backend; b != nil && b.Pool == nil {
					other = cmp.Or(other, b)
				}
			}
			switch {
			case other != nil:
				s.add(r.Rule.At.Get("backendRefs").Problem("it leads to Service "+other.Namespace+"/"+other.Name,
					"InferencePools: a scenario plays model servers behind endpoint pickers",
					"windtunnel up serves Services, too"))
			case len(r.Mirrors) > 0:
				s.add(r.Rule.At.Get("filters").Problem("a RequestMirror to "+r.Mirrors[0].Backend.Key,
					"no mirrors: the requests of a scenario have one answer each", "windtunnel up mirrors"))
			}
		}
	}
}

// fromManifests sets the fields of one pool from the manifests.
type fromManifests struct {
	s       *checker
	set     *gateway.Set
	backend *gateway.Backend
	pool    *Pool
	path    string
}

// bad reports a mistake at the InferencePool.
func (m *fromManifests) bad(found, expected string) {
	m.s.add(Problem{File: m.backend.Pool.File, Line: m.backend.Pool.Line, Column: 1, Found: found, Expected: expected})
}

// say sets a field from the manifests, unless the scenario sets it.
func (m *fromManifests) say(field string, at strictyaml.Value, set func()) {
	path := m.path + "." + field
	if m.s.written(path) {
		return
	}
	m.s.said[path] = at.Named(path)
	set()
}

func (m *fromManifests) fill() {
	p, b := m.pool, m.backend
	if b.FailOpen {
		m.say("failureMode", strictyaml.Value{}, func() { p.FailureMode = FailOpen })
	}
	if b.HTTP2 {
		m.say("upstream", strictyaml.Value{}, func() { p.Upstream = HTTP2 })
	}
	m.picker()
	if len(p.Endpoints) > 0 || len(p.Groups) > 0 {
		return // the scenario says which servers there are
	}
	var all []*gateway.Workload
	others := false
	for _, w := range m.set.Selected(b.Namespace, b.Pool.Selector) {
		switch c, role := w.Serves(); {
		case c == nil, w.Replicas == 0:
		case role != gateway.RoleServer:
			others = true
			m.s.add(c.At.Problem(
				fmt.Sprintf("a scenario cannot simulate container %s of InferencePool %s", c.Name, b.Name),
				"a model server such as vllm/vllm-openai",
				"windtunnel up plays such pods as servers that echo requests"))
		default:
			all = append(all, w)
		}
	}
	if len(all) == 0 {
		if !others {
			m.bad(fmt.Sprintf("InferencePool %s/%s selects the pods of no Deployment", b.Namespace, b.Name),
				"a Deployment whose pods have the selector's labels, or pools in the scenario with this name and "+
					"endpoints")
		}
		return
	}
	// Prefill servers come last in a pool.
	decodes := slices.ContainsFunc(all, func(w *gateway.Workload) bool { return w.With(gateway.RoleSidecar) != nil })
	prefills := func(w *gateway.Workload) bool { return decodes && w.With(gateway.RoleSidecar) == nil }
	slices.SortStableFunc(all, func(a, b *gateway.Workload) int {
		return countTrue(prefills(a)) - countTrue(prefills(b))
	})
	first, _ := all[0].Serves()
	m.models(first)
	if decodes {
		m.say("sidecar", all[0].At, func() { p.Sidecar = RoutingSidecar })
		m.connector(all[0])
	}
	ours := !m.s.written(m.path + ".replicas")
	same := true
	for _, w := range all[1:] {
		c, _ := w.Serves()
		same = same && commandline.Same(c, first)
	}
	m.server(first, "modelServer", &p.ModelServer)
	if p.ModelServer.KVEvents.Format == JSONKV && m.set.RunsKVManager() {
		m.say("kvManager", first.At, func() { p.KVManager = true })
	}
	if !same {
		for _, w := range all {
			c, _ := w.Serves()
			g := ServerGroup{Name: w.Name, Replicas: w.Replicas, Role: DecodeRole, ModelServer: p.ModelServer}
			if prefills(w) {
				g.Role = PrefillRole
			}
			p.Groups = append(p.Groups, g)
			x := &p.Groups[len(p.Groups)-1]
			m.scaling(w, fmt.Sprintf("groups[%d].autoscaling", len(p.Groups)-1), &x.Autoscaling)
			m.server(c, fmt.Sprintf("groups[%d].modelServer", len(p.Groups)-1), &x.ModelServer)
		}
	} else {
		replicas, prefill := 0, 0
		for _, w := range all {
			if prefills(w) {
				prefill += w.Replicas
			} else {
				replicas += w.Replicas
			}
		}
		m.say("replicas", all[0].At, func() { p.Replicas = replicas })
		m.scaling(all[0], "autoscaling", &p.Autoscaling)
		if prefill > 0 {
			m.say("disaggregation.prefillReplicas", all[0].At, func() { p.Disaggregation.PrefillReplicas = prefill })
		}
	}
	if ours {
		for _, w := range all {
			c, _ := w.Serves()
			for range w.Replicas * commandline.Ranks(c) {
				p.labels = append(p.labels, w.Pods)
			}
		}
	}
}

// scaling sets the autoscaling of a workload: from an autoscaler among the manifests, or from document 003's pool.
func (m *fromManifests) scaling(w *gateway.Workload, field string, a *Autoscaling) {
	x := m.set.ScalingOf(w)
	switch {
	case x == nil:
		return
	case x.Pool == nil:
		m.say(field, x.At, func() { a.Manifest = Manifest{File: x.File, Text: x.Text, targets: true} })
		return
	}
	k := x.Pool.KServe
	m.say(field, w.At, func() {
		read, err := x.Read()
		if err != nil {
			m.s.badManifests(err)
			return
		}
		m.s.assume(read.Notes...)
		a.MinReplicas, a.MaxReplicas = read.Config.Min, read.Config.Max
		for _, kind := range slices.Sorted(maps.Keys(k.ScaleTargets)) {
			if query := autoscaler.OfHint(kind); query != "" {
				a.Triggers = append(a.Triggers,
					ScalingTrigger{Name: kind, Query: query, Target: k.ScaleTargets[kind],
						MetricType: autoscaler.AverageValue})
			}
		}
	})
}

// picker sets the pool's endpoint picker.
func (m *fromManifests) picker() {
	p, b := m.pool, m.backend
	_, asked := m.set.PickerReplicas(b)
	if asked == 0 {
		m.bad(fmt.Sprintf("the endpoint picker of InferencePool %s/%s has no replica", b.Namespace, b.Name),
			"at least one")
		return
	}
	m.say("epp.replicas", strictyaml.Value{}, func() { p.EPP.Replicas = asked })
	if _, c := m.set.PickerOf(b); c != nil {
		if v, given := c.Flag("hold"); given && v != "false" {
			m.say("flow", c.At, func() { p.Flow = Held })
		}
	}
	text, from, note, err := m.set.PickerConfig(b)
	if err != nil {
		m.s.badManifests(err)
		return
	}
	if note != "" {
		m.s.assume(note)
	}
	if text != nil {
		m.say("epp.config", strictyaml.Value{}, func() { p.EPP.Config = PickerConfig{File: from, Text: text} })
	}
	if o := m.set.Select(b.Namespace, b.Pool.Name); !m.s.written(m.path+".epp.objectives") &&
		(len(o.Objects.Objectives) > 0 || len(o.Objects.Rewrites) > 0) {
		p.EPP.objects = &objects.Selection{Found: true, Pool: o.Pool, Objects: o.Objects, Priorities: o.Priorities}
	}
}

// models sets the models that the pool serves.
func (m *fromManifests) models(c *gateway.Container) {
	p := m.pool
	model, names := commandline.Models(c)
	if model == "" {
		m.s.add(c.At.Problem(fmt.Sprintf("container %s names no model", c.Name),
			"--model=NAME among its arguments", ""))
		return
	}
	m.say("model", c.At, func() { p.Model = names[0] })
	m.say("servedModelNames", c.At, func() { p.ServedModelNames = names[1:] })
	if !c.Simulator() {
		m.say("modelServer.model", c.At, func() { p.ModelServer.Model = model })
	}
}

// connector sets how KV caches travel.
func (m *fromManifests) connector(w *gateway.Workload) {
	c := w.With(gateway.RoleSidecar)
	for _, flag := range []string{"kv-connector", "connector"} {
		if v, given := c.Flag(flag); given {
			m.decode(c, "disaggregation", &m.pool.Disaggregation, map[string]any{"connector": v})
			break
		}
	}
	server, _ := w.Serves()
	values, t := map[string]any{}, server.KVTransfer()
	for field, on := range map[string]bool{"compressINT8": t.Compress, "tcpOnly": t.TCPOnly} {
		if on {
			values[field] = true
		}
	}
	if t.SideChannel != 0 {
		values["sideChannelPort"] = t.SideChannel
	}
	m.decode(server, "disaggregation", &m.pool.Disaggregation, values)
}

// server sets the behaviour of a model server.
func (m *fromManifests) server(c *gateway.Container, field string, to *ModelServer) {
	values, idle := commandline.Server(c)
	for _, name := range idle {
		m.s.assume(c.At.Problem("--"+name, "", "it has no effect in a scenario").Error())
	}
	if !c.Simulator() {
		values["batching"], values["profile"] = string(Continuous), string(VLLMProfile)
		if version := hardware.ImageVersion(c.Image); version != "" {
			values["version"] = version
		}
	}
	if e := c.KVEvents(); e != nil {
		format, events := MsgpackKV, map[string]any{}
		if e.Document {
			format = JSONKV
		}
		if events["format"] = string(format); e.IntervalMillis != "" {
			events["interval"] = e.IntervalMillis + "ms"
		}
		values["kvEvents"] = events
	}
	m.decode(c, field, to, values)
}

// decode sets fields of a section, as the scenario's own reader does. Mistakes name the container.
func (m *fromManifests) decode(c *gateway.Container, field string, to any, values map[string]any) {
	for name := range values {
		path := m.path + "." + field + "." + name
		if m.s.written(path) {
			delete(values, name)
		} else {
			m.s.said[path] = c.At.Named(path)
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // texts, numbers and lists of them
	}
	doc, err := strictyaml.Parse(text, strictyaml.Options{File: c.At.File()})
	if err != nil {
		m.s.add(c.At.ProblemsOf(err)...)
		return
	}
	for _, p := range doc.Root().Decode(to) {
		at := c.At.Problem("", "", "")
		p.Line, p.Column, p.Path = at.Line, at.Column, "container "+c.Name+": "+p.Path
		m.s.add(p)
	}
}

// checkWhere checks the path and the host of requests.
func (s *checker) checkWhere(w *Workload, where string) {
	for _, x := range []struct {
		field, value,
		expected string
	}{{"path", w.Path, "a path such as /default/my-llm/v1/chat/completions"},
		{"host", w.Host, "a host name such as llm.example.com, with a port or without"}} {
		if x.value == "" {
			continue
		}
		_, err := url.ParseRequestURI("http://" + w.Host + w.Path)
		switch at := where + "." + x.field; {
		case !headerValue(x.value), x.field == "path" && (x.value[0] != '/' || strings.ContainsAny(x.value, " #")),
			x.field == "host" && strings.ContainsAny(x.value, " /?#@"), err != nil:
			s.bad(at, found(x.value), x.expected)
		case s.gateway == nil:
			s.bad(at, "there are no manifests", "manifests: with routes that look at it")
		case w.grpc() && x.field == "path":
			s.bad(at, fmt.Sprintf("given with api: %s", w.API), "the path of the gRPC method, which is the API's own")
		}
	}
}
