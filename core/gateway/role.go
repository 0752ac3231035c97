package gateway

import (
	"path"
	"slices"
	"strings"
)

// Role is the program that a container seems to run.
type Role string

// The roles.
const (
	RoleServer Role = "model server"
	// RoleRenderer is vLLM's render server (`vllm launch render`): a model server without an engine.
	RoleRenderer  Role = "render server"
	RolePicker    Role = "endpoint picker"
	RoleSidecar   Role = "routing sidecar"
	RoleKVManager Role = "KV-Cache Manager"
	RoleRouter    Role = "body-based router"
	// RoleTrainer and RolePredictor are the servers of llm-d's latency predictor.
	RoleTrainer   Role = "latency predictor's training server"
	RolePredictor Role = "latency predictor's prediction server"
	// RoleProxy is a standalone gateway, Envoy or agentgateway.
	RoleProxy Role = "proxy"
	// RoleOther is a program that windtunnel does not simulate. A server that echoes requests stands in for it.
	RoleOther Role = "other"
)

// known maps words in programs, names and images to roles. The longest word in a text counts.
var known = map[string]Role{
	"routing-sidecar": RoleSidecar, "pd-sidecar": RoleSidecar, "disagg-sidecar": RoleSidecar,
	"routing-proxy": RoleSidecar,
	"bbr":           RoleRouter, "body-based-router": RoleRouter, "body-based-routing": RoleRouter,
	"payload-processor": RoleRouter, "payload-processing": RoleRouter,
	"epp": RolePicker, "lwepp": RolePicker, "endpoint-picker": RolePicker, "inference-scheduler": RolePicker,
	"llm-d-router":     RolePicker,
	"kv-cache-manager": RoleKVManager,
	"vllm-render":      RoleRenderer,
	"training-server":  RoleTrainer, "prediction-server": RolePredictor,
	"envoy": RoleProxy, "agentgateway": RoleProxy,
	"vllm": RoleServer, "sglang": RoleServer, "inference-sim": RoleServer,
	"llm-d-cuda": RoleServer, "llm-d-cpu": RoleServer, "llm-d-xpu": RoleServer, "llm-d-hpu": RoleServer,
	"llm-d-rocm": RoleServer, "llm-d-aws": RoleServer,
	"coordinator": RoleOther, "llm-d-router-coordinator": RoleOther, "uds-tokenizer": RoleOther,
	"llm-d-uds-tokenizer": RoleOther, "vllm-router": RoleOther, "dynamo-frontend": RoleOther,
}

// flagged maps flags that only one program has to roles.
var flagged = map[string]Role{
	"pool-name": RolePicker, "endpoint-selector": RolePicker,
	"vllm-port": RoleSidecar, "model-server-port": RoleSidecar, "kv-connector": RoleSidecar,
	"secure-proxy": RoleSidecar, "decoder-use-tls": RoleSidecar,
	"served-model-name": RoleServer, "max-model-len": RoleServer, "max-num-seqs": RoleServer,
	"tensor-parallel-size": RoleServer, "gpu-memory-utilization": RoleServer, "kv-transfer-config": RoleServer,
	"kv-events-config": RoleServer, "model-path": RoleServer, "time-to-first-token": RoleServer,
	"inter-token-latency": RoleServer,
}

// longest returns the role of the longest known word in a text, or "". Letters and digits must not adjoin the word.
func longest(text string) (r Role) {
	text = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(text))
	found := ""
	for w, role := range known {
		longer := len(w) > len(found) || len(w) == len(found) && w < found
		if longer && strings.Contains("-"+text+"-", "-"+w+"-") {
			found, r = w, role
		}
	}
	return r
}

// starters are programs that run the program in their arguments.
var starters = []string{"exec", "env", "nohup", "tini", "--", "-m", "python", "python3", "uvicorn", "sudo"}

// program returns the words before the first flag of a command line that name the program, without interpreters.
func program(line []string) []string {
	for len(line) > 0 && slices.Contains(starters, path.Base(line[0])) {
		line = line[1:]
	}
	if i := slices.IndexFunc(line, func(s string) bool { return strings.HasPrefix(s, "-") }); i >= 0 {
		line = line[:i]
	}
	return line
}

// Role returns the program that the container seems to run.
func (c *Container) Role() Role {
	r, _ := c.Taken()
	return r
}

// Taken returns the program that the container seems to run, and the reason: its command, its flags, its name or its
// image, whichever comes first.
func (c *Container) Taken() (r Role, by string) {
	words := program(c.Line())
	for i := range min(len(words), 2) { // an image may have "vllm" as its entry point
		if words[i] == "launch" && slices.Contains(words[i+1:], "render") {
			return RoleRenderer, "command"
		}
	}
	if len(words) > 0 && (path.IsAbs(words[0]) || !strings.Contains(words[0], "/")) { // and not a model's name
		if r := longest(path.Base(words[0])); r != "" {
			return r, "command"
		}
	}
	for _, name := range c.Named() {
		if r := flagged[name]; r != "" {
			return r, "flag --" + name
		}
	}
	if r := longest(c.Name); r != "" {
		return r, "name"
	}
	image, _, _ := strings.Cut(path.Base(c.Image), "@")
	image, _, _ = strings.Cut(image, ":")
	if r := longest(image); r != "" {
		return r, "image"
	}
	if image == "llm-d" {
		return RoleServer, "image"
	}
	return RoleOther, ""
}

// Simulator reports whether the container runs llm-d-inference-sim, whose defaults differ from vLLM's.
func (c *Container) Simulator() bool {
	return strings.Contains(c.Image, "inference-sim") || slices.ContainsFunc(program(c.Line()),
		func(w string) bool { return path.Base(w) == "llm-d-inference-sim" })
}

// Lightweight reports whether the container runs the picker of the Gateway API Inference Extension, which reads no
// EndpointPickerConfig.
func (c *Container) Lightweight() bool {
	return slices.ContainsFunc([]string{c.Image, c.Name, strings.Join(c.Command, " ")},
		func(text string) bool { return strings.Contains(text, "lwepp") })
}

// serving lists the roles of containers that answer requests at a pod's ports, by precedence.
var serving = []Role{RoleServer, RoleKVManager, RoleRenderer, RoleTrainer, RolePredictor, RoleOther, RoleProxy}

// Serves returns the container of a pod that answers requests, and its role. A pod with helper containers alone has
// none. Beside an endpoint picker or a body-based router, a RoleOther container does not count.
func (w *Workload) Serves() (*Container, Role) {
	for _, r := range serving {
		c := w.With(r)
		if r == RoleProxy && w.proxied {
			continue
		}
		if c != nil && (r == RoleOther || r == RoleProxy) && (w.With(RolePicker) != nil || w.With(RoleRouter) != nil) {
			break
		}
		if c != nil {
			return c, r
		}
	}
	return nil, RoleOther
}

// With returns the container of a role, or nil.
func (w *Workload) With(r Role) *Container {
	for i := range w.Containers {
		if w.Containers[i].Role() == r {
			return &w.Containers[i]
		}
	}
	return nil
}

// Named returns the names of the flags on the container's command line, without duplicates.
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

// Flag returns the value of a flag on the container's command line, written -name value, --name=value or with
// underscores. It returns the first value of several.
func (c *Container) Flag(name string) (value string, given bool) {
	all := c.Flags(name)
	if len(all) == 0 {
		return "", false
	}
	return all[0], true
}

// Flags returns all values of a flag.
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

// PickerOf returns the container behind the Service of a pool's endpoint picker, or nil.
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

// holds reports whether a pool's picker holds requests open (document 000).
func (s *Set) holds(b *Backend) bool {
	_, c := s.PickerOf(b)
	if c == nil {
		return false
	}
	v, given := c.Flag("hold")
	return given && v != "false"
}
