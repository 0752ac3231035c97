package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/live/up"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/web"

	"github.com/tidwall/gjson"
)

// partState returns the state of a part of a stack. It reads pages that the part serves to anyone. The ids epp and
// sidecar may have a pool's name after them.
func partState(ctx context.Context, st *stack.Stack, s *scenario.Scenario, id string) (web.Part, error) {
	part, pool, _ := strings.Cut(id, " ")
	of := func(name string) bool { return pool == "" || name == pool }
	switch part {
	case "client":
		w := &s.Workload
		return web.Part{Facts: [][2]string{{"requests of the scenario", fmt.Sprint(w.Requests)},
			{"at once at most", fmt.Sprint(w.Concurrency)}, {"gateway", "http://" + st.Gateway.Addr}}}, nil
	case "envoy":
		return envoyState(ctx, st.Gateway.Process)
	case "bbr":
		var r web.Part
		for i := range s.Pools {
			r.Facts = append(r.Facts, [2]string{"pool " + s.Pools[i].Name, strings.Join(s.Pools[i].Models(), ", ")})
		}
		return r, nil
	case "epp":
		var r web.Part
		var texts []string
		for i, p := range st.Pools {
			if !of(p.Name()) {
				continue
			}
			for _, at := range p.ExtProc() {
				r.Facts = append(r.Facts, [2]string{"pool " + p.Name(), at})
			}
			if text := st.Config(i); text != "" {
				texts = append(texts, text)
			}
		}
		r.Config = strings.Join(texts, "\n---\n")
		return r, nil
	case "sidecar":
		var r web.Part
		for i := range s.Pools {
			if p := &s.Pools[i]; p.Sidecar != scenario.NoSidecar && of(p.Name) {
				d := &p.Disaggregation
				r.Facts = append(r.Facts,
					[2]string{"pool " + p.Name,
						fmt.Sprintf("connector %s, %d prefill servers, %s", d.Connector, p.Servers()-p.Decoders(),
							d.NIC)})
			}
		}
		var text strings.Builder
		for _, p := range st.Pools {
			for _, x := range p.Pods {
				if x.Sidecar != nil && of(p.Name()) {
					fmt.Fprintf(&text, "# %s\n%s\n", x.PodName, strings.Join(x.Sidecar.Flags(), "\n"))
				}
			}
		}
		for _, x := range st.Addresses().Servers {
			if x.Sidecar != "" && !x.Absent && of(x.Pool) {
				r.Facts = append(r.Facts, [2]string{x.Sidecar, "before " + x.Address})
			}
		}
		r.Config = bounded(text.String())
		return r, nil
	case "kv":
		return managerState(ctx, st)
	}
	address, ok := strings.CutPrefix(id, "pod ")
	for _, x := range st.Addresses().Servers {
		if ok && (x.Sidecar == address || x.Address == address) {
			return serverState(ctx, x)
		}
	}
	return web.Part{}, fmt.Errorf("there is no part %q", id)
}

// upPartState returns the state of a part of manifests.
func upPartState(ctx context.Context, u *up.Up, id string) (r web.Part, err error) {
	a := u.Addresses()
	switch id {
	case "client":
		for _, l := range a.Listeners {
			r.Facts = append(r.Facts, [2]string{"Gateway " + l.Gateway, l.URL})
		}
		return r, nil
	case "envoy":
		return envoyState(ctx, u.Envoy.Process)
	case "epp":
		for _, p := range a.Pickers {
			r.Facts = append(r.Facts, [2]string{"pool " + p.Pool, p.ExtProc})
		}
		return r, nil
	}
	for _, p := range a.Pods {
		for _, at := range p.Ports {
			if id == "pod "+at {
				return serverState(ctx, stack.ServerAddress{Name: p.Namespace + "/" + p.Name, Address: at})
			}
		}
	}
	return r, fmt.Errorf("there is no part %q", id)
}

// serverState returns a model server's flags and times in force, by llm-d-inference-sim's names. An external server may
// not serve them.
func serverState(ctx context.Context, x stack.ServerAddress) (web.Part, error) {
	r := web.Part{Facts: [][2]string{{"name", x.Name}}}
	if x.Sidecar != "" {
		r.Facts = append(r.Facts, [2]string{"behind its sidecar", x.Address})
	}
	var now map[string]any
	if err := partJSON(ctx, "http://"+x.Address+"/admin/config", &now); err != nil {
		return r, err
	}
	text, err := yaml.Marshal(now)
	r.Config = string(text)
	return r, err
}

// managerState returns the state of the first KV-Cache Manager, by document 003's names.
func managerState(ctx context.Context, st *stack.Stack) (r web.Part, err error) {
	a := st.Addresses()
	if a.KVManager == "" {
		return r, fmt.Errorf("there is no KV-Cache Manager")
	}
	add := func(prefix, path string, only ...string) error {
		var now map[string]any
		if err := partJSON(ctx, a.KVManager+path, &now); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if len(only) == 0 || slices.Contains(only, name) {
				r.Facts = append(r.Facts, [2]string{prefix + strings.ReplaceAll(name, "_", " "), fmt.Sprint(now[name])})
			}
		}
		return nil
	}
	if err := add("", "/api/v1/cache/state"); err != nil {
		return r, err
	}
	there := slices.DeleteFunc(a.Servers, func(x stack.ServerAddress) bool { return x.Absent })
	for _, x := range there[:min(len(there), 32)] {
		if err := add(x.Name+": ", "/api/v1/cache/pod/"+url.PathEscape(x.Name), "blocks_cached",
			"hit_rate"); err != nil {
			r.Facts = append(r.Facts, [2]string{x.Name, "unknown to the manager"})
		}
	}
	return r, nil
}

// counted are Envoy's counters of failures, and of its reactions.
var counted = []struct{ suffix, what string }{
	{".downstream_rq_2xx", "answers 2xx"}, {".downstream_rq_4xx", "answers 4xx"}, {".downstream_rq_5xx", "answers 5xx"},
	{".upstream_rq_retry", "retries"},
	{".upstream_rq_timeout", "upstream timeouts"}, {".upstream_rq_pending_overflow", "refused by a circuit breaker"},
	{".upstream_cx_connect_fail", "connections that failed"},
	{".outlier_detection.ejections_active", "endpoints ejected"}, {".update_rejected", "configuration refused"},
}

// envoyState returns Envoy's counters, and its configuration in force.
func envoyState(ctx context.Context, p *envoy.Process) (r web.Part, err error) {
	stats, err := p.Stats(ctx, "")
	if err != nil {
		return r, err
	}
	active, err := p.Active(ctx)
	if err != nil {
		return r, err
	}
	r.Facts = [][2]string{{"requests under way", fmt.Sprint(active.Requests)},
		{"attempts under way", fmt.Sprint(active.Upstream)}, {"ext_proc streams", fmt.Sprint(active.Streams)},
		{"its own pages", "http://" + p.AdminAddr}}
	for _, c := range counted {
		n := uint64(0)
		for name, v := range stats {
			if strings.HasSuffix(name, c.suffix) && !strings.HasPrefix(name, "http.admin") {
				n += v
			}
		}
		if n > 0 || strings.HasPrefix(c.what, "answers 2") {
			r.Facts = append(r.Facts, [2]string{c.what, fmt.Sprint(n)})
		}
	}
	dump, err := p.ConfigDump(ctx)
	if err != nil {
		return r, err
	}
	r.Config, err = inForce(dump)
	return r, err
}

// maxPartConfig bounds the text of a configuration on the page.
const maxPartConfig = 256 << 10

// inForceFields are the parts of a /config_dump that say how requests are treated, by kind.
var inForceFields = [][2]string{{"listeners", "static_listeners.#.listener"},
	{"listeners", "dynamic_listeners.#.active_state.listener"}, {"routes", "dynamic_route_configs.#.route_config"},
	{"clusters", "static_clusters.#.cluster"}, {"clusters", "dynamic_active_clusters.#.cluster"}}

// inForce returns the parts of a /config_dump that say how requests are treated, as YAML without types and versions.
func inForce(dump []byte) (string, error) {
	if !gjson.ValidBytes(dump) {
		return "", errors.New("Envoy's /config_dump is not JSON")
	}
	out := map[string][]any{}
	for _, config := range gjson.GetBytes(dump, "configs").Array() {
		for _, f := range inForceFields {
			for _, x := range config.Get(f[1]).Array() {
				out[f[0]] = append(out[f[0]], plain(x.Value()))
			}
		}
	}
	text, err := yaml.Marshal(out)
	return bounded(string(text)), err
}

// bounded cuts a long text.
func bounded(text string) string {
	if len(text) > maxPartConfig {
		text = text[:maxPartConfig] + "\n# and more\n"
	}
	return strings.ToValidUTF8(text, "")
}

// plain removes the types from JSON of Envoy.
func plain(x any) any {
	switch x := x.(type) {
	case map[string]any:
		delete(x, "@type")
		for k, v := range x {
			x[k] = plain(v)
		}
	case []any:
		for i := range x {
			x[i] = plain(x[i])
		}
	}
	return x
}

// partJSON reads a page of a part on this machine, which must not hold the page up.
func partJSON(ctx context.Context, address string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return serve.FetchJSON(ctx, http.DefaultClient, http.MethodGet, address, nil, maxPage, into)
}
