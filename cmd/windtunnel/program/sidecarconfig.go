package program

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/picker/strict"
	"github.com/windtunnel/windtunnel/internal/files"
)

// The sidecar's configuration file (pd-sidecar --configuration-file, or inline
// as --configuration): YAML whose keys are flags. A flag on the command line
// goes before the file, and the file before the environment.

// configKeys are the keys, by what their values are.
var configKeys = map[string]string{
	"port": "int", "model-server-port": "int", "vllm-port": "int", "mooncake-bootstrap-port": "int", "p2p-connector-port": "int",
	"data-parallel-size": "int", "max-idle-conns-per-host": "int", "prefill-max-retries": "int", "decode-chunk-size": "int", "metrics-port": "int",
	"kv-connector": "str", "ec-connector": "str", "cert-path": "str", "inference-pool": "str", "pool-group": "str", "prefill-retry-backoff": "str",
	"enable-ssrf-protection": "bool", "enable-prefiller-sampling": "bool", "enable-p2p-pull": "bool", "secure-proxy": "bool", "tracing": "bool",
	"enable-tls": "list", "tls-insecure-skip-verify": "list",
}

// configText and configPath are flags that bring other flags.
type (
	configText string
	configPath string
)

// BeforeResolve fills the flags that the command line leaves open.
func (configText) BeforeResolve(ctx *kong.Context, trace *kong.Path, o *outside) error {
	text, _ := ctx.FlagValue(trace.Flag).(configText)
	return addConfiguration(ctx, o, []byte(text), "--configuration")
}

// BeforeResolve does so from a file.
func (configPath) BeforeResolve(ctx *kong.Context, trace *kong.Path, o *outside) error {
	path, _ := ctx.FlagValue(trace.Flag).(configPath)
	text, err := files.Read(string(path), strict.MaxBytes)
	if err != nil {
		return fmt.Errorf("--configuration-file: %w", err)
	}
	return addConfiguration(ctx, o, text, string(path))
}

func addConfiguration(ctx *kong.Context, o *outside, text []byte, from string) error {
	flags, err := configFlags(text, o.Stderr)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if v, ok := flags[flag.Name]; ok {
			return v, nil
		}
		return nil, nil
	}))
	return nil
}

// configFlags are a configuration's keys as flags. As the real sidecar does, 0
// and nothing stand for the default.
func configFlags(text []byte, warn io.Writer) (map[string]string, error) {
	if len(text) > strict.MaxBytes {
		return nil, fmt.Errorf("%d bytes are more than the %d allowed", len(text), strict.MaxBytes)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, strict.At(root, "", "expected keys and values such as port: 8085")
	}
	seen := map[string]bool{}
	flags := map[string]string{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i].Value, root.Content[i+1]
		kind, known := configKeys[key]
		switch {
		case !known:
			return nil, strict.At(root.Content[i], key, "no such key; expected one of %s", strings.Join(slices.Sorted(maps.Keys(configKeys)), ", "))
		case seen[key]:
			return nil, strict.At(root.Content[i], key, "the key is there twice")
		}
		seen[key] = true
		value, err := configValue(node, key, kind)
		if err != nil {
			return nil, err
		}
		if value != "" {
			flags[key] = value
		}
	}
	if old, ok := flags["vllm-port"]; ok && flags["model-server-port"] == "" {
		flags["model-server-port"] = old
	}
	if b, ok := flags["prefill-retry-backoff"]; ok {
		if _, err := time.ParseDuration(b); err != nil {
			fmt.Fprintf(warn, "notice: prefill-retry-backoff %q is no span of time such as 200ms; the default is used\n", b)
			delete(flags, "prefill-retry-backoff")
		}
	}
	return flags, nil
}

// configValue is a value as a flag's text; none is the default.
func configValue(n *yaml.Node, key, kind string) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", nil
	case kind == "list":
		if n.Kind != yaml.SequenceNode {
			return "", strict.At(n, key, "expected a list such as [prefiller, decoder]")
		}
		var out []string
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode || e.Tag != "!!str" {
				return "", strict.At(e, key, "expected names such as prefiller")
			}
			out = append(out, e.Value)
		}
		return strings.Join(out, ","), nil
	case n.Kind != yaml.ScalarNode || n.Tag != "!!"+kind:
		return "", strict.At(n, key, "expected %s", map[string]string{"int": "a whole number", "str": "a text", "bool": "true or false"}[kind])
	case kind == "int":
		i, err := strconv.Atoi(n.Value)
		if err != nil {
			return "", strict.At(n, key, "expected a whole number")
		}
		if i == 0 && key != "prefill-max-retries" {
			return "", nil
		}
	case kind == "bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return "", strict.At(n, key, "expected true or false")
		}
		return strconv.FormatBool(b), nil
	}
	return n.Value, nil
}
