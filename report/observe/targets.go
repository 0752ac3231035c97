package observe

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
)

// Target is one group of Prometheus' targets, as its file_sd_configs reads them.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// The jobs: document 003's, and ours of parts for which it has none.
const (
	Sidecars   = "llm-d-sidecar"
	Pickers    = "llm-d-epp"
	Servers    = "vllm-workers"
	Envoys     = "envoy"
	KVManagers = "kv-cache-manager"
)

// Jobs lists them.
func Jobs() []string { return []string{Sidecars, Pickers, Servers, Envoys, KVManagers} }

// maxTargets bounds how many parts are told of.
const maxTargets = 65_536

// told is what a run writes with --addresses-file, and up prints with --output json.
type told struct {
	EnvoyAdmin string `json:"envoyAdmin"`
	Pickers    []struct {
		Name    string `json:"name"`
		Pool    string `json:"pool"` // of up: namespace/name
		Metrics string `json:"metrics"`
	} `json:"pickers"`
	Servers []struct {
		Name    string `json:"name"`
		Pool    string `json:"pool"`
		Address string `json:"address"`
		Sidecar string `json:"sidecar"`
		Prefill bool   `json:"prefill"`
	} `json:"servers"`
	Pods []struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Role      string            `json:"role"`
		Model     string            `json:"model"`
		Sidecar   string            `json:"sidecar"`
		Ports     map[string]string `json:"ports"`
	} `json:"pods"`
	KVManager string `json:"kvManager"`
}

// defaultNamespace is that of a run's parts, which have none.
const defaultNamespace = "default"

// ReadTargets makes targets by job of what run --addresses-file wrote or up --output
// json printed. They have the labels that dashboards go by: pod (with prefill or decode
// in it where a pod is one of them), namespace, instance, and inference_pool where it is
// known. Errors do not name the file.
func ReadTargets(text []byte) (map[string][]Target, error) {
	var a told
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("%w; expected what run --addresses-file writes, or up --output json prints", err)
	}
	if a.EnvoyAdmin == "" {
		return nil, errors.New("envoyAdmin is missing; expected what run --addresses-file writes, or up --output " +
			"json prints")
	}
	if n := len(a.Pickers) + len(a.Servers) + len(a.Pods); n > maxTargets {
		return nil, fmt.Errorf("found %d pickers and pods; expected at most %d", n, maxTargets)
	}
	t := targets{of: map[string][]Target{}}
	t.add(Envoys, "envoyAdmin", a.EnvoyAdmin, "envoy", defaultNamespace, "")
	for i, p := range a.Pickers {
		namespace, pool, found := strings.Cut(p.Pool, "/")
		if !found {
			namespace, pool = defaultNamespace, p.Pool
		}
		if p.Metrics != "" { // else somebody else's, of whom only ext_proc is known
			t.add(Pickers, fmt.Sprintf("pickers[%d].metrics", i), p.Metrics, p.Name, namespace, pool)
		}
	}
	apart := false
	for _, s := range a.Servers {
		apart = apart || s.Prefill
	}
	for i, s := range a.Servers {
		role := ""
		if apart {
			role = "decode"
		}
		if s.Prefill {
			role = "prefill"
		}
		t.add(Servers, fmt.Sprintf("servers[%d].address", i), s.Address, podName(s.Name, role), defaultNamespace,
			s.Pool)
		if s.Sidecar != "" {
			t.add(Sidecars, fmt.Sprintf("servers[%d].sidecar", i), s.Sidecar, podName(s.Name, role), defaultNamespace,
				s.Pool)
		}
	}
	for i, p := range a.Pods {
		if p.Model == "" {
			continue // no model server
		}
		for _, number := range slices.Sorted(maps.Keys(p.Ports)) {
			at, job := p.Ports[number], Servers
			if at == p.Sidecar {
				job = Sidecars
			}
			t.add(job, fmt.Sprintf("pods[%d].ports[%q]", i, number), at, p.Name, cmp.Or(p.Namespace, defaultNamespace),
				"")
		}
	}
	if a.KVManager != "" {
		t.add(KVManagers, "kvManager", a.KVManager, "kv-cache-manager", defaultNamespace, "")
	}
	return t.of, t.err
}

// podName has the role that dashboards look for in it.
func podName(name, role string) string {
	if role == "" || strings.Contains(name, role) {
		return name
	}
	return name + "-" + role
}

type targets struct {
	of  map[string][]Target
	err error
}

func (t *targets) add(job, field, address, name, namespace, pool string) {
	at := strings.TrimPrefix(address, "http://")
	if _, _, err := net.SplitHostPort(at); err != nil && t.err == nil {
		t.err = fmt.Errorf("%s: found %q; expected an address such as 127.0.0.1:9090", field, address)
	}
	labels := map[string]string{"instance": name, "pod": name, "namespace": namespace}
	if pool != "" {
		labels["inference_pool"] = pool
	}
	t.of[job] = append(t.of[job], Target{[]string{at}, labels})
}
