package gateway

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway/llmservice"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// proxy is an Envoy or agentgateway in the manifests, with the Gateway and the routes made from its configuration.
type proxy struct {
	*builder
	w       *Workload
	gateway Gateway
	routes  []HTTPRoute
}

// standalone adds Gateways and HTTPRoutes for proxies whose configuration is in a ConfigMap.
func (b *builder) standalone() {
	for i := range b.Workloads {
		w := &b.Workloads[i]
		c := w.With(RoleProxy)
		if c == nil || b.o.Controller != "" {
			continue
		}
		path := "/etc/envoy/envoy.yaml"
		for _, name := range []string{"f", "file", "config-path", "c"} {
			if v, given := c.Flag(name); given {
				path = v
			}
		}
		text, from, found := b.Mounted(w, c, path)
		if !found {
			continue
		}
		doc, err := strictyaml.Parse([]byte(text), strictyaml.Options{File: from, Kubernetes: true})
		if err != nil {
			b.mistake(err)
			continue
		}
		p := proxy{builder: b, w: w, gateway: Gateway{Meta: w.Meta, At: doc.Root(), made: true}}
		if binds := doc.Root().Get("binds"); binds.Given() {
			p.agentgateway(binds)
		} else {
			p.envoy(doc.Root().Get("static_resources").Mapping())
		}
		if err := doc.Problems().Err(); err != nil {
			b.mistake(err)
			continue
		}
		if w.proxied = len(p.routes) > 0; w.proxied {
			b.Gateways, b.Routes = append(b.Gateways, p.gateway), append(b.Routes, p.routes...)
			b.note(p.gateway.At.Problem(fmt.Sprintf("the configuration of container %s of %s %s/%s", c.Name, w.Kind,
				w.Namespace, w.Name), "", "it is read as a Gateway with its listeners and routes").Error())
		}
	}
}

// llmServices adds the objects that KServe's controller would make of LLMInferenceServices.
func (b *builder) llmServices() {
	for i := range b.LLMServices {
		x, err := b.LLMServices[i].Resolve(func(name string) strictyaml.Value {
			if c := find(b.LLMConfigs, b.LLMServices[i].Namespace, name); c != nil {
				return c.At
			}
			return strictyaml.Value{}
		}, b.note)
		if err != nil {
			b.mistake(err)
			continue
		}
		from := fmt.Sprintf("%s:%d: LLMInferenceService %s/%s", x.File, x.Line, x.Namespace, x.Name)
		text, err := x.Objects(find(b.Gateways, llmservice.DefaultNamespace, llmservice.DefaultGateway) != nil)
		if err == nil {
			err = b.Add(from, text)
		}
		if err != nil {
			b.mistake(err)
			continue
		}
		b.note(from + ": it is read as the objects that KServe's presets for llm-d make of it")
		if !x.Routed() {
			b.note(from + ": without a router no route leads to it")
		}
	}
}

// listen adds a listener, and routes for its virtual hosts.
func (p *proxy) listen(at strictyaml.Value, name string, port int, routes []HTTPRoute) {
	if len(routes) == 0 {
		return // such as a listener for metrics
	}
	name = cmp.Or(name, "port-"+strconv.Itoa(port))
	p.gateway.Listeners = append(p.gateway.Listeners, Listener{Name: name, Port: port, Protocol: "HTTP", At: at})
	for _, r := range routes {
		r.Meta, r.made = p.w.Meta, true
		r.Name = fmt.Sprintf("%s-%d", p.w.Name, len(p.routes))
		r.Parents = []ParentRef{{ObjectRef: ObjectRef{Name: p.w.Name, At: at}, Section: name}}
		p.routes = append(p.routes, r)
	}
}

// envoy reads the static resources in an Envoy's configuration.
func (p *proxy) envoy(v strictyaml.Value) {
	clusters := map[string]strictyaml.Value{}
	for _, c := range v.Get("clusters").List() {
		clusters[c.Mapping().Get("name").Text()] = c
	}
	for _, l := range v.Get("listeners").List() {
		var routes []HTTPRoute
		for _, chain := range l.Mapping().Get("filter_chains").List() {
			if t := chain.Mapping().Get("transport_socket"); t.Given() {
				p.note(t.Problem("TLS is left out", "", "the listener serves HTTP").Error())
			}
			for _, f := range chain.Get("filters").List() {
				manager := f.Mapping().Get("typed_config").Mapping()
				asked := ""
				for _, x := range manager.Get("http_filters").List() {
					asked = cmp.Or(asked, extProc(x.Mapping().Get("typed_config").Mapping()))
				}
				for _, h := range manager.Get("route_config").Mapping().Get("virtual_hosts").List() {
					r := HTTPRoute{At: h}
					for _, d := range h.Mapping().Get("domains").TextList() {
						if d != "*" {
							r.Hostnames = append(r.Hostnames, d)
						}
					}
					for _, x := range h.Get("routes").List() {
						if rule, ok := p.envoyRoute(x.Mapping(), clusters, asked); ok {
							r.Rules = append(r.Rules, rule)
						}
					}
					if len(r.Rules) > 0 {
						routes = append(routes, r)
					}
				}
			}
		}
		at := l.Get("address").Mapping().Get("socket_address").Mapping().Get("port_value")
		p.listen(l, l.Get("name").Text(), int(at.Int(1, 65535, 0)), routes)
	}
}

// extProc returns the cluster of the ext_proc server in a filter, or in a route's override of it.
func extProc(v strictyaml.Value) string {
	return v.Get("grpc_service").Mapping().Get("envoy_grpc").Mapping().Get("cluster_name").Text()
}

// envoyTimeout is Envoy's default timeout of a route.
const envoyTimeout = 15 * time.Second

// envoyRoute reads a route. asked is the ext_proc server's cluster, or "".
func (p *proxy) envoyRoute(v strictyaml.Value, clusters map[string]strictyaml.Value, asked string) (Rule, bool) {
	action, limit := v.Get("route").Mapping(), Duration(envoyTimeout)
	if t := action.Get("timeout"); t.Given() {
		d, err := time.ParseDuration(t.Text())
		if err != nil {
			t.Fail(t.Found(), "a duration such as 15s", "")
		}
		limit = Duration(d)
	}
	r := Rule{At: v, Timeouts: &Timeouts{Request: &limit, At: v}}
	over := v.Get("typed_per_filter_config").Mapping().Get("envoy.filters.http.ext_proc").Mapping()
	if asked = cmp.Or(extProc(over.Get("overrides").Mapping()), asked); over.Get("disabled").Bool() {
		asked = ""
	}
	match := Match{At: v}
	m := v.Get("match").Mapping()
	if x := m.Get("safe_regex"); x.Given() {
		match.Path = &PathMatch{Type: Regex, Value: x.Mapping().Get("regex").Text(), At: x}
	} else {
		match.Path = pathOf(m, "path", "prefix", "")
	}
	ok := match.Path != nil
	for _, h := range m.Get("headers").List() {
		exact := h.Mapping().Get("string_match").Mapping().Get("exact")
		ok = ok && exact.Given()
		match.Headers = append(match.Headers, ValueMatch{Name: h.Get("name").Text(), Value: exact.Text(), At: h})
	}
	r.Matches = []Match{match}
	weighted := action.Get("weighted_clusters").Mapping().Get("clusters").List()
	if x := action.Get("cluster"); x.Given() {
		weighted = []strictyaml.Value{action}
	}
	if !ok || len(weighted) == 0 {
		p.note(v.Problem("a route by something else than path and exact headers, or to no cluster", "",
			"it serves nothing here").Error())
		return r, false
	}
	for _, x := range weighted {
		to := clusters[cmp.Or(x.Mapping().Get("cluster").Text(), x.Get("name").Text())]
		weight := int(x.Get("weight").Int(0, 1_000_000, 1))
		ref := BackendRef{Weight: &weight, ObjectRef: ObjectRef{At: x}}
		picked := to.Get("type").Text() == "ORIGINAL_DST"
		if picked {
			to = clusters[asked]
		}
		if host, port := socketOf(to); p.lead(&ref, host, port, picked) {
			r.Backends = append(r.Backends, ref)
		}
	}
	return r, len(r.Backends) > 0
}

// pathOf returns the condition for a path from fields with these names, or nil where none is given.
func pathOf(v strictyaml.Value, exact, prefix, regex string) *PathMatch {
	for _, x := range [][2]string{{exact, Exact}, {prefix, PathPrefix}, {regex, Regex}} {
		if at := v.Get(x[0]); at.Given() {
			p := &PathMatch{Type: x[1], Value: at.Text(), At: at}
			p.check()
			return p
		}
	}
	return nil
}

// socketOf returns the first address of a cluster.
func socketOf(cluster strictyaml.Value) (host string, port int) {
	for _, x := range cluster.Get("load_assignment").Mapping().Get("endpoints").List() {
		for _, e := range x.Mapping().Get("lb_endpoints").List() {
			at := e.Mapping().Get("endpoint").Mapping().Get("address").Mapping().Get("socket_address").Mapping()
			return at.Get("address").Text(), int(at.Get("port_value").Int(1, 65535, 0))
		}
	}
	return "", 0
}

// agentgateway reads the binds of an agentgateway's configuration.
func (p *proxy) agentgateway(binds strictyaml.Value) {
	for _, bind := range binds.List() {
		for _, l := range bind.Mapping().Get("listeners").List() {
			var routes []HTTPRoute
			for _, x := range l.Mapping().Get("routes").List() {
				r := HTTPRoute{At: x, Hostnames: x.Mapping().Get("hostnames").TextList()}
				if h := l.Get("hostname").Text(); h != "" && h != "*" && len(r.Hostnames) == 0 {
					r.Hostnames = []string{h}
				}
				rule := Rule{At: x}
				for _, m := range x.Get("matches").List() {
					path := m.Mapping().Get("path").Mapping()
					match := Match{At: m, Method: m.Get("method").Text(),
						Path: pathOf(path, "exact", "pathPrefix", "regex")}
					for _, h := range m.Get("headers").List() {
						match.Headers = append(match.Headers, ValueMatch{Name: h.Mapping().Get("name").Text(),
							Value: h.Get("value").Mapping().Get("exact").Text(), At: h})
					}
					rule.Matches = append(rule.Matches, match)
				}
				for _, to := range x.Get("backends").List() {
					weight := int(to.Mapping().Get("weight").Int(0, 1_000_000, 1))
					ref := BackendRef{Weight: &weight, ObjectRef: ObjectRef{At: to}}
					service := to.Get("service").Mapping()
					namespace, name, _ := strings.Cut(service.Get("name").Text(), "/")
					host, picked := name+"."+namespace, false
					port := int(service.Get("port").Int(1, 65535, 0))
					for _, from := range []strictyaml.Value{x, to} {
						inference := from.Get("policies").Mapping().Get("inferenceRouting").Mapping()
						if at := inference.Get("endpointPicker").Mapping().Get("host"); at.Given() {
							text := at.Text()
							colon := strings.LastIndexByte(text, ':')
							host, picked = text[:max(colon, 0)], true
							port, _ = strconv.Atoi(text[colon+1:])
						}
					}
					if p.lead(&ref, host, port, picked) {
						rule.Backends = append(rule.Backends, ref)
					}
				}
				if r.Rules = []Rule{rule}; len(rule.Backends) > 0 {
					routes = append(routes, r)
				}
			}
			p.listen(l, l.Get("name").Text(), int(bind.Get("port").Int(1, 65535, 0)), routes)
		}
	}
}

// lead points a reference to the Service at an address or, if the proxy asks an endpoint picker there, to the picker's
// pool. A loopback address is the proxy's own pod.
func (p *proxy) lead(ref *BackendRef, host string, port int, picked bool) bool {
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		return picked && p.toPool(ref, p.w, nil)
	}
	name, rest, _ := strings.Cut(host, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	ref.Namespace, ref.Name, ref.Port = cmp.Or(namespace, p.w.Namespace), name, port
	s := p.Service(ref.Namespace, name)
	if s == nil {
		p.note(ref.At.Problem(fmt.Sprintf("it leads to %q, port %d", host, port), "a Service among the objects",
			"it serves nothing here").Error())
		return false
	}
	return !picked || slices.ContainsFunc(p.Selected(s.Namespace, s.Selector),
		func(w *Workload) bool { return p.toPool(ref, w, s) })
}

// toPool points a reference to the pool of a workload's endpoint picker, whose Service is s or another one. It is the
// pool that the picker's flags name, or a pool made of the pods that they select.
func (p *proxy) toPool(ref *BackendRef, w *Workload, s *Service) bool {
	c := w.With(RolePicker)
	if c == nil {
		return false
	}
	for i := range p.Services {
		x := &p.Services[i]
		if s == nil && x.Namespace == w.Namespace && len(x.Selector) > 0 && x.Selector.Matches(w.Pods) {
			s = x
		}
	}
	if s == nil {
		p.Services = append(p.Services, Service{Meta: w.Meta, Selector: picker.SelectLabels(w.Pods), At: w.At})
		s = &p.Services[len(p.Services)-1]
	}
	name, named := c.Flag("pool-name")
	namespace, _ := c.Flag("pool-namespace")
	if namespace = cmp.Or(namespace, w.Namespace); !named {
		name = w.Name
	}
	pool := p.Pool(namespace, name)
	if text, given := c.Flag("endpoint-selector"); pool == nil && given {
		made := objects.Pool{Meta: w.Meta, Group: objects.GroupV1, AppProtocol: "http"}
		var err error
		if made.Selector, err = picker.ParseSelector(text); err != nil {
			p.mistake(c.At.Problem("--endpoint-selector", "", err.Error()))
		}
		ports, _ := c.Flag("endpoint-target-ports")
		for _, x := range strings.Split(cmp.Or(ports, strconv.Itoa(objects.DefaultPort)), ",") {
			n, err := strconv.Atoi(strings.TrimSpace(x))
			if err != nil || n < 1 || n > 65535 || len(made.Ports) == 8 {
				p.mistake(c.At.Problem(fmt.Sprintf("--endpoint-target-ports %q", ports), "1 to 8 ports", ""))
				break
			}
			made.Ports = append(made.Ports, n)
		}
		p.Pools = append(p.Pools, made)
		pool = &p.Pools[len(p.Pools)-1]
	}
	if pool == nil {
		p.note(c.At.Problem(fmt.Sprintf("container %s: there is no InferencePool %s/%s", c.Name, namespace, name),
			"the picker's", "requests are answered with 500").Error())
		return false
	}
	pool.Picker = cmp.Or(pool.Picker, &objects.PickerRef{Kind: "Service", Name: s.Name})
	group := pool.Group
	ref.Group, ref.Kind, ref.Name, ref.Namespace, ref.Port = &group, "InferencePool", pool.Name, pool.Namespace, 0
	return true
}

// unmade removes the status of Gateways and routes that are not in any manifest.
func (b *builder) unmade(list []Status) []Status {
	return slices.DeleteFunc(list, func(s Status) bool {
		return s.Kind == "Gateway" && slices.ContainsFunc(b.Gateways, func(g Gateway) bool {
			return g.made && g.Namespace == s.Namespace && g.Name == s.Name
		}) || s.Kind == "HTTPRoute" && slices.ContainsFunc(b.Routes, func(r HTTPRoute) bool {
			return r.made && r.Namespace == s.Namespace && r.Name == s.Name
		})
	})
}
