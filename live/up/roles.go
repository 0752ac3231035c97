package up

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// role is what a container is taken for, by its image, its command and its name.
type role string

const (
	modelServer role = "model server"
	picker      role = "endpoint picker"
	sidecarRole role = "routing sidecar"
	kvManager   role = "KV-Cache Manager"
	// other is what nothing here simulates. It is answered for by a server that
	// says what it was asked.
	other role = "other"
)

// known are the roles by words, the first that fits counts.
var known = []struct {
	role  role
	words []string
}{
	{sidecarRole, []string{"routing-sidecar", "pd-sidecar"}},
	{picker, []string{"endpoint-picker", "inference-scheduler", "router-endpoint", "llm-d-router", "gateway-api-inference-extension/epp", "/epp:", "epp-server"}},
	{kvManager, []string{"kv-cache-manager"}},
	{modelServer, []string{"vllm", "llm-d-inference-sim", "llm-d/llm-d:", "llm-d/llm-d@", "sglang"}},
}

func roleOf(c *gateway.Container) role {
	line := c.Line()
	first := ""
	if len(line) > 0 {
		first = line[0]
	}
	for _, text := range []string{c.Image, first, c.Name} {
		for _, k := range known {
			for _, w := range k.words {
				if strings.Contains(text+":", w) {
					return k.role
				}
			}
		}
	}
	if _, given := flag(line, "pool-name"); given {
		return picker
	}
	return other
}

// serves is the container of a pod that answers requests, and what it is: a model
// server, or what nothing here knows. A pod of other parts alone has none.
func serves(w *gateway.Workload) (*gateway.Container, role) {
	var unknown *gateway.Container
	for i := range w.Containers {
		c := &w.Containers[i]
		switch r := roleOf(c); r {
		case modelServer:
			return c, r
		case other:
			if unknown == nil {
				unknown = c
			}
		}
	}
	return unknown, other
}

// has is the container of a role, or nil.
func has(w *gateway.Workload, r role) *gateway.Container {
	for i := range w.Containers {
		if roleOf(&w.Containers[i]) == r {
			return &w.Containers[i]
		}
	}
	return nil
}

// flag is the value of a flag on a command line, written -name value, --name=value
// or with underscores.
func flag(line []string, name string) (value string, given bool) {
	for i, arg := range line {
		text, dashed := strings.CutPrefix(arg, "-")
		if !dashed {
			continue
		}
		key, v, has := strings.Cut(strings.TrimPrefix(text, "-"), "=")
		if strings.ReplaceAll(key, "_", "-") != name {
			continue
		}
		if !has && i+1 < len(line) {
			v = line[i+1]
		}
		return v, true
	}
	return "", false
}
