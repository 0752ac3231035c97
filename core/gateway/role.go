package gateway

import (
	"slices"
	"strings"
)

// Role holds what a container is taken for, by its image, its command and its name.
type Role string

// The roles.
const (
	RoleServer    Role = "model server"
	RolePicker    Role = "endpoint picker"
	RoleSidecar   Role = "routing sidecar"
	RoleKVManager Role = "KV-Cache Manager"
	RoleRouter    Role = "body-based router"
	// RoleOther holds what nothing here simulates. It is answered for by a server that
	// says what it was asked.
	RoleOther Role = "other"
)

// known are the roles by words, the first that fits counts.
var known = []struct {
	role  Role
	words []string
}{
	{RoleSidecar, []string{"routing-sidecar", "pd-sidecar"}},
	{RoleRouter, []string{"bbr:", "bbr@", "body-based-rout", "payload-process"}},
	{RolePicker, []string{"endpoint-picker", "inference-scheduler", "router-endpoint", "llm-d-router",
		"gateway-api-inference-extension/epp", "/epp:", "epp-server"}},
	{RoleKVManager, []string{"kv-cache-manager"}},
	{RoleServer, []string{"vllm", "llm-d-inference-sim", "llm-d/llm-d:", "llm-d/llm-d@", "sglang"}},
}

// Role returns what the container is taken for.
func (c *Container) Role() Role {
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
	if _, given := c.Flag("pool-name"); given {
		return RolePicker
	}
	return RoleOther
}

// Serves is the container of a pod that answers requests, and what it is: a model
// server, a KV-Cache Manager, or what nothing here knows. A pod of other parts alone has none.
func (w *Workload) Serves() (*Container, Role) {
	var unknown *Container
	for i := range w.Containers {
		c := &w.Containers[i]
		switch r := c.Role(); r {
		case RoleServer, RoleKVManager:
			return c, r
		case RoleOther:
			if unknown == nil {
				unknown = c
			}
		}
	}
	return unknown, RoleOther
}

// With is the container of a role, or nil.
func (w *Workload) With(r Role) *Container {
	for i := range w.Containers {
		if w.Containers[i].Role() == r {
			return &w.Containers[i]
		}
	}
	return nil
}

// Named are the names of the flags on the container's command line, each once.
func (c *Container) Named() (out []string) {
	for _, arg := range c.Line() {
		if !strings.HasPrefix(arg, "-") || strings.Trim(arg, "-0123456789.") == "" {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name = strings.ReplaceAll(name, "_", "-"); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Flag is the value of a flag on the container's command line, written -name value,
// --name=value or with underscores; of several the first.
func (c *Container) Flag(name string) (value string, given bool) {
	all := c.Flags(name)
	if len(all) == 0 {
		return "", false
	}
	return all[0], true
}

// Flags are all values of a flag.
func (c *Container) Flags(name string) (values []string) {
	line := c.Line()
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
		values = append(values, v)
	}
	return values
}

// PickerOf is the container behind the Service of a pool's endpoint picker, nil where
// there is none.
func (s *Set) PickerOf(b *Backend) (*Workload, *Container) {
	if b.Picker == nil {
		return nil, nil
	}
	service := s.Service(b.Picker.Namespace, b.Picker.Name)
	if service == nil {
		return nil, nil
	}
	for _, w := range s.Selected(b.Picker.Namespace, service.Selector) {
		if c := w.With(RolePicker); c != nil {
			return w, c
		}
	}
	return nil, nil
}

// holds says whether a pool's picker holds requests open (document 000).
func (s *Set) holds(b *Backend) bool {
	_, c := s.PickerOf(b)
	if c == nil {
		return false
	}
	v, given := c.Flag("hold")
	return given && v != "false"
}
