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

// Target is one group of Prometheus' targets, in the form of file_sd_configs.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// The jobs: document 003's, and windtunnel's own for further parts.
const (
	Sidecars   = "llm-d-sidecar"
	Pickers    = "llm-d-epp"
	Servers    = "vllm-workers"
	Envoys     = "envoy"
	KVManagers = "kv-cache-manager"
)

// Jobs lists the jobs.
func Jobs() []string { return []string{Sidecars, Pickers, Servers, Envoys, KVManagers} }

// maxTargets bounds the pickers and pods.
const maxTargets = 65_536

// addresses are the output of run --addresses-file and of up --output json.
type addresses struct {
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

// defaultNamespace is the namespace of a run's parts, which have none.
const defaultNamespace = "default"

// ReadTargets returns targets by job, from the output of run --addresses-file or up --output json. They have the labels
// that dashboards use: pod (with prefill or decode in it where the pod has this role), namespace, instance, and
// inference_pool where it is known. Errors do not name the file.
func ReadTargets(text []byte) (map[string][]Target, error) {
	var a addresses
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("%w; expected the output of run --addresses-file or of up --output json", err)
	}
	if a.EnvoyAdmin == "" {
		return nil, errors.New("envoyAdmin is missing; expected the output of run --addresses-file or of up " +
			"--output json")
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
		if p.Metrics != "" { // an external picker has only an ext_proc address
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

// podName returns the name with the role in it, which dashboards look for.
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
