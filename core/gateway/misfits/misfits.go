// Package misfits finds parts of manifests that do not find each other, though each is valid: ports on which nothing
// listens, names that nothing has, and labels that no pod has. They are causes that document 003's troubleshooting
// guide looks for. Begin with Of.
package misfits

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
)

// Of returns a note for each misfit of manifests that have been built, with file and line.
func Of(s *gateway.Set) []string {
	f := &finder{Set: s}
	for i := range s.Pools {
		p := &s.Pools[i]
		at := fmt.Sprintf("%s:%d: InferencePool %s/%s", p.File, p.Line, p.Namespace, p.Name)
		if r := p.Picker; r != nil && r.Port > 0 {
			f.unreached(at, p.Namespace, r.Name, r.Port)
		}
		f.unlistened(p, at)
		f.unprefilled(p, at)
	}
	for i := range s.Extensions {
		x := &s.Extensions[i]
		for j := range x.ExtProc {
			if list := x.ExtProc[j].Backends; len(list) > 0 && list[0].Port > 0 {
				f.unreached(fmt.Sprintf("%s:%d: EnvoyExtensionPolicy %s/%s", x.File, x.Line, x.Namespace, x.Name),
					cmp.Or(list[0].Namespace, x.Namespace), list[0].Name, list[0].Port)
			}
		}
	}
	publishes, last := false, ""
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if c := w.With(gateway.RoleSidecar); c != nil {
			f.unpooled(w, c)
		}
		if c, role := w.Serves(); role == gateway.RoleServer {
			publishes, last = publishes || c.KVEvents() != nil, w.Where(c)
			f.unheard(w, c)
		}
	}
	if last != "" && !publishes && s.RunsKVManager() {
		f.note("%s: no model server sends KV events, and a KV-Cache Manager waits for them; expected "+
			"--enable-kv-events or --kv-events-config", last)
	}
	return f.notes
}

type finder struct {
	*gateway.Set
	notes []string
}

func (f *finder) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// unreached reports a Service of an endpoint picker that leads nowhere.
func (f *finder) unreached(at, namespace, name string, port int) {
	s := f.Service(namespace, name)
	switch {
	case s == nil: // windtunnel's own picker takes its place
	case !slices.ContainsFunc(s.Ports, func(p gateway.ServicePort) bool { return p.Number == port }):
		f.note("%s: the endpoint picker's Service %s/%s has no port %d; expected one of its ports; Envoy does not "+
			"reach the picker (ext_proc)", at, namespace, name, port)
	case len(s.Selector) > 0 && len(f.Selected(namespace, s.Selector)) == 0:
		f.note("%s: the endpoint picker's Service %s/%s selects no pods; expected its Deployment's labels; Envoy does "+
			"not reach the picker (ext_proc)", at, namespace, name)
	}
}

// listens returns the ports of a workload's pods, as far as their manifests say.
func listens(w *gateway.Workload) (ports []int) {
	for i := range w.Containers {
		c := &w.Containers[i]
		for _, p := range c.Ports {
			ports = append(ports, p.Number)
		}
		usual := map[gateway.Role]int{gateway.RoleServer: objects.DefaultPort,
			gateway.RoleSidecar: objects.DefaultPort}[c.Role()]
		port, _ := c.Flag("port")
		if n, err := strconv.Atoi(port); err == nil {
			usual = n
		}
		ports = append(ports, usual)
	}
	return ports
}

// unlistened reports a target port on which no pod of the pool listens.
func (f *finder) unlistened(p *objects.Pool, at string) {
	if len(p.Ports) == 0 {
		return
	}
	for _, w := range f.Selected(p.Namespace, p.Selector) {
		ports := listens(w)
		if _, role := w.Serves(); role == gateway.RoleServer &&
			!slices.ContainsFunc(p.Ports, func(n int) bool { return slices.Contains(ports, n) }) {
			f.note("%s: targetPorts are %v, and nothing in the pods of %s listens there; expected one of %v",
				at, p.Ports, w.Key(), ports)
		}
	}
}

// unprefilled reports a pool with sidecars and without a prefill server.
func (f *finder) unprefilled(p *objects.Pool, at string) {
	sidecars, prefills := false, false
	for _, w := range f.Selected(p.Namespace, p.Selector) {
		sidecars = sidecars || w.With(gateway.RoleSidecar) != nil
		role := w.Pods["llm-d.ai/role"]
		if k := p.KServe; k != nil && k.Disaggregation.Enabled {
			prefills = prefills || len(k.Disaggregation.Prefill) == 0 || k.Disaggregation.Prefill.Matches(w.Pods)
		} else {
			prefills = prefills || strings.Contains(role, "prefill") || role == "both"
		}
	}
	if sidecars && !prefills {
		f.note("%s: its pods have sidecars, and none has the label of a prefill pod; expected pods with "+
			"llm-d.ai/role: prefill (or as prefillSelector says); every prompt is prefilled where it is decoded", at)
	}
}

// unpooled reports a sidecar with SSRF protection whose pool does not exist.
func (f *finder) unpooled(w *gateway.Workload, c *gateway.Container) {
	if on, given := c.Flag("enable-ssrf-protection"); !given || on == "false" {
		return
	}
	setting := func(flag, variable string) string {
		fromEnv, _ := c.Variable(variable)
		v, _ := c.Flag(flag)
		return cmp.Or(v, fromEnv)
	}
	namespace, name, both := strings.Cut(setting("inference-pool", "INFERENCE_POOL"), "/")
	if !both {
		namespace = setting("inference-pool-namespace", "INFERENCE_POOL_NAMESPACE")
		name = setting("inference-pool-name", "INFERENCE_POOL_NAME")
	}
	namespace = cmp.Or(namespace, w.Namespace)
	if name == "" {
		return
	}
	var there []string
	for i := range f.Pools {
		if p := &f.Pools[i]; p.Namespace == namespace {
			there = append(there, p.Name)
		}
	}
	if !slices.Contains(there, name) {
		f.note("%s: INFERENCE_POOL_NAME is %q, and there is no such InferencePool in namespace %s; expected "+
			"one of %q; the sidecar blocks every prefiller (403)", w.Where(c), name, namespace, there)
	}
}

// unheard reports a model server whose KV events go to a Service that does not exist, or to a port that it lacks.
func (f *finder) unheard(w *gateway.Workload, c *gateway.Container) {
	if c.KVEvents() == nil {
		return
	}
	to, _ := c.Variable("VLLM_KV_EVENT_ZMQ_ENDPOINT")
	var config struct{ Endpoint string }
	if text, _ := c.Flag("kv-events-config"); json.Unmarshal([]byte(text), &config) == nil {
		to = cmp.Or(config.Endpoint, to)
	}
	u, err := url.Parse(to)
	if err != nil || u.Hostname() == "" || strings.ContainsAny(u.Host, "*$") ||
		strings.Trim(u.Hostname(), "0123456789.:") == "" {
		return // it binds, or names an address
	}
	labels := strings.Split(u.Hostname(), ".")
	namespace := w.Namespace
	if len(labels) > 1 {
		namespace = labels[1]
	}
	port, _ := strconv.Atoi(u.Port())
	s := f.Service(namespace, labels[0])
	if s == nil || !slices.ContainsFunc(s.Ports, func(p gateway.ServicePort) bool { return p.Number == port }) {
		f.note("%s: KV events go to %s, and there is no Service %s/%s with port %d; expected one that leads "+
			"to the KV index; nobody receives the events", w.Where(c), to, namespace, labels[0], port)
	}
}
