package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway/bbr"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// BodyRouter is a body-based router ahead of the routes of Gateways: the inference extension's bbr, today llm-d's
// payload processor.
type BodyRouter struct {
	// Key is router/<namespace>/<name>.
	Key      string
	Workload *Workload
	// Router is the router's configuration.
	Router bbr.Router
}

// Insertion inserts an external processor into the filters of Gateways: an EnvoyFilter of Istio, or a
// GCPRoutingExtension of GKE.
type Insertion struct {
	objects.Meta
	Kind string
	// Gateways are names in the object's namespace. An empty list stands for all Gateways there.
	Gateways []string
	// Services are the processors' Services, as namespace/name.
	Services []string

	At strictyaml.Value
}

func readEnvoyFilter(v strictyaml.Value, m objects.Meta) Insertion {
	x := Insertion{Meta: m, Kind: "EnvoyFilter", At: v}
	spec := v.Get("spec").Mapping()
	for _, t := range spec.Get("targetRefs").List() {
		if t.Mapping().Get("kind").Text() == "Gateway" {
			x.Gateways = append(x.Gateways, t.Get("name").Text())
		}
	}
	for _, p := range spec.Get("configPatches").List() {
		cluster := p.Mapping().Get("patch").Get("value").Get("typed_config").Get("grpc_service").Get("envoy_grpc").Get(
			"cluster_name").Scalar()
		// outbound|<port>||<service>.<namespace>.svc.cluster.local
		if parts := strings.Split(cluster, "|"); len(parts) == 4 {
			host := strings.SplitN(parts[3]+"..", ".", 3)
			x.Services = append(x.Services, cmp.Or(host[1], m.Namespace)+"/"+host[0])
		}
	}
	return x
}

func readRoutingExtension(v strictyaml.Value, m objects.Meta) Insertion {
	x := Insertion{Meta: m, Kind: "GCPRoutingExtension", At: v}
	spec := v.Get("spec").Mapping()
	for _, g := range spec.Get("gatewayRefs").List() {
		x.Gateways = append(x.Gateways, g.Mapping().Get("name").Text())
	}
	for _, c := range spec.Get("extensionChains").List() {
		for _, e := range c.Mapping().Get("extensions").List() {
			if ref := e.Mapping().Get("backendRef").Mapping(); ref.Given() {
				x.Services = append(x.Services, m.Namespace+"/"+ref.Get("name").Text())
			}
		}
	}
	return x
}

// routers finds the body-based routers and puts them in front of Gateways' routes: where an Insertion says so,
// otherwise in front of the routes in their namespaces, otherwise in front of all.
func (b *builder) routers() {
	for i := range b.Workloads {
		w := &b.Workloads[i]
		if w.With(RoleRouter) == nil {
			continue
		}
		r := &BodyRouter{Key: "router/" + w.Namespace + "/" + w.Name, Workload: w}
		var err error
		if r.Router, err = b.configured(w); err != nil {
			b.mistake(err)
			continue
		}
		b.p.Routers = append(b.p.Routers, r)
	}
	slices.SortFunc(b.p.Routers, func(x, y *BodyRouter) int { return strings.Compare(x.Key, y.Key) })
	for _, r := range b.p.Routers {
		b.insert(r)
	}
	for _, g := range b.p.Gateways {
		if g.Router != nil && g.Keys() != nil {
			b.note(fmt.Sprintf("%s:%d: Gateway %s/%s: which route a request takes is not known before its body is "+
				"read; every request needs an API key of one of the routes that ask for one", g.File, g.Line,
				g.Namespace, g.Name))
		}
	}
	for i := range b.Insertions {
		if x := &b.Insertions[i]; !slices.ContainsFunc(b.p.Routers,
			func(r *BodyRouter) bool { return b.inserts(x, r) }) {
			b.note(x.At.Problem(x.Kind+" "+x.Name, "a body-based router's Service in it",
				"it has no effect here").Error())
		}
	}
}

// inserts reports whether an Insertion refers to a router's Service.
func (b *builder) inserts(x *Insertion, r *BodyRouter) bool {
	return slices.ContainsFunc(x.Services, func(name string) bool {
		namespace, name, _ := strings.Cut(name, "/")
		s := b.Service(namespace, name)
		return s != nil && namespace == r.Workload.Namespace && len(s.Selector) > 0 &&
			s.Selector.Matches(r.Workload.Pods)
	})
}

func (b *builder) insert(r *BodyRouter) {
	w := r.Workload
	put := func(want func(*Served) bool) (found bool) {
		for _, g := range b.p.Gateways {
			if !want(g) {
				continue
			}
			found = true
			if g.Router != nil && g.Router != r {
				b.note(fmt.Sprintf("%s:%d: %s %s/%s: Gateway %s/%s has the body-based router %s already; this one "+
					"does not see its requests", w.File, w.Line, w.Kind, w.Namespace, w.Name, g.Namespace, g.Name,
					g.Router.Workload.Name))
				continue
			}
			g.Router = r
		}
		return found
	}
	named := false
	for i := range b.Insertions {
		if x := &b.Insertions[i]; b.inserts(x, r) {
			named = true
			put(func(g *Served) bool {
				return g.Namespace == x.Namespace && (len(x.Gateways) == 0 || slices.Contains(x.Gateways, g.Name))
			})
		}
	}
	if !named && !put(func(g *Served) bool { return g.Namespace == w.Namespace }) {
		put(func(*Served) bool { return true })
	}
}

// managed are the labels of ConfigMaps with a base model and its adapters: today's label and the older one.
var managed = []string{"inference.llm-d.ai/ipp-managed", "inference.networking.k8s.io/bbr-managed"}

// bases maps the models in the body-based routers' ConfigMaps to their base models.
func (b *builder) bases() map[string]string {
	out := map[string]string{}
	for i := range b.ConfigMaps {
		m := &b.ConfigMaps[i]
		if !slices.ContainsFunc(managed, func(label string) bool { return m.Labels[label] == "true" }) {
			continue
		}
		base := strings.TrimSpace(m.Data["baseModel"])
		if base == "" {
			b.note(fmt.Sprintf("%s:%d: ConfigMap %s/%s: no data.baseModel; expected the model that its adapters "+
				"belong to; the map has no effect", m.File, m.Line, m.Namespace, m.Name))
			continue
		}
		names := []string{base}
		if text := m.Data["adapters"]; strings.TrimSpace(text) != "" {
			doc, err := strictyaml.Parse([]byte(text), strictyaml.Options{File: m.File})
			if err == nil {
				names = append(names, doc.Root().TextList()...)
				err = doc.Problems().Err()
			}
			if err != nil {
				b.note(m.Values["adapters"].Problem("ConfigMap "+m.Name+": adapters is no list",
					"the adapters' names, one a line: \"- name\"", "only its base model is known").Error())
				names = names[:1]
			}
		}
		for _, name := range names {
			if other, taken := out[name]; taken && other != base {
				b.note(fmt.Sprintf("%s:%d: ConfigMap %s/%s: %s belongs to %s already; expected each name under one "+
					"base model", m.File, m.Line, m.Namespace, m.Name, name, other))
				continue
			}
			out[name] = base
		}
	}
	return out
}

// The plug-ins of a payload processor that windtunnel simulates.
const (
	fieldToHeader = "body-field-to-header"
	baseToHeader  = "base-model-to-header"
)

// routerPlugin is one plug-in, from a flag or a configuration file.
type routerPlugin struct {
	Type       string    `json:"type"`
	Name       string    `json:"name"`
	Parameters bbr.Field `json:"parameters"`

	At strictyaml.Value `json:"."`
}

type routerConfig struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Plugins    []routerPlugin `json:"plugins" max:"64"`
	Profiles   []struct {
		Name    string `json:"name"`
		Plugins struct {
			Request  []pluginRef `json:"request" max:"64"`
			Response []pluginRef `json:"response" max:"64"`
		} `json:"plugins"`
	} `json:"profiles" max:"16"`
}

type pluginRef struct {
	Ref string           `json:"pluginRef"`
	At  strictyaml.Value `json:"."`
}

// configured returns the router that a container's command line configures, by one --plugin for each plug-in or by a
// --config-file. Without either, the router sets both headers.
func (b *builder) configured(w *Workload) (bbr.Router, error) {
	c := w.With(RoleRouter)
	bases := b.bases()
	find := func(model string) (bbr.Target, bool) {
		base, ok := bases[model]
		return bbr.Target{Base: base}, ok
	}
	out := bbr.Router{Find: find, Strict: true}
	where := fmt.Sprintf("%s:%d: %s %s/%s: container %s", w.File, c.At.Line(), w.Kind, w.Namespace, w.Name, c.Name)
	var plugins []routerPlugin
	if path, given := c.Flag("config-file"); given {
		text, from, found := b.Mounted(w, c, path)
		if !found {
			return out, fmt.Errorf("%s: --config-file %s is in no ConfigMap that is mounted; expected a volume with "+
				"a ConfigMap among the objects", where, path)
		}
		var err error
		if plugins, err = b.routerConfig(text, from); err != nil {
			return out, err
		}
	}
	for _, flag := range c.Flags("plugin") {
		kind, rest, _ := strings.Cut(flag, ":")
		name, parameters, _ := strings.Cut(rest, ":")
		p := routerPlugin{Type: kind, Name: name}
		doc, err := strictyaml.Parse([]byte(cmp.Or(parameters, "{}")),
			strictyaml.Options{File: where + ": --plugin " + kind})
		if err == nil {
			p.At = doc.Root()
			err = errors.Join(doc.Root().Decode(&p.Parameters).Err(), doc.Problems().Err())
		}
		if err != nil {
			return out, err
		}
		plugins = append(plugins, p)
	}
	if len(plugins) == 0 {
		plugins = []routerPlugin{{Type: fieldToHeader, Parameters: bbr.Field{Name: "model", Header: bbr.HeaderModel}},
			{Type: baseToHeader}}
	}
	for i := range plugins {
		switch p := &plugins[i]; p.Type {
		case fieldToHeader:
			if p.Parameters.Name == "" || !headerForm.MatchString(p.Parameters.Header) {
				return out, fmt.Errorf("%s: plug-in %s has fieldName %q and headerName %q; expected the name of a "+
					"field of the body and that of a header", where, p.Type, p.Parameters.Name, p.Parameters.Header)
			}
			out.Fields = append(out.Fields, p.Parameters)
		case baseToHeader:
			out.Base = bbr.HeaderBaseModel
		default:
			b.note(fmt.Sprintf("%s: plug-in %s is not known here; %s and %s are played", where, p.Type, fieldToHeader,
				baseToHeader))
		}
	}
	return out, nil
}

// routerConfig returns the plug-ins that a PayloadProcessorConfig's profiles run on requests, or all where it has no
// profiles.
func (b *builder) routerConfig(text, from string) ([]routerPlugin, error) {
	doc, err := strictyaml.Parse([]byte(text), strictyaml.Options{File: from, Kubernetes: true, WarnUnknown: true})
	if err != nil {
		return nil, err
	}
	var c routerConfig
	root := doc.Root()
	root.Note(root.Decode(&c))
	if c.Kind != "PayloadProcessorConfig" {
		root.Get("kind").Fail(root.Get("kind").Found(), "PayloadProcessorConfig", "")
	}
	byName := map[string]routerPlugin{}
	for _, p := range c.Plugins {
		byName[cmp.Or(p.Name, p.Type)] = p
	}
	var out []routerPlugin
	for i := range c.Profiles {
		for _, ref := range c.Profiles[i].Plugins.Request {
			p, known := byName[ref.Ref]
			if !known {
				ref.At.Get("pluginRef").Fail(ref.At.Get("pluginRef").Found(), "the name of one of plugins",
					strictyaml.DidYouMean(ref.Ref, slices.Sorted(maps.Keys(byName))))
				continue
			}
			out = append(out, p)
		}
	}
	if len(c.Profiles) == 0 {
		out = c.Plugins
	}
	for _, w := range doc.Warnings() {
		b.note(w)
	}
	return out, doc.Problems().Err()
}
