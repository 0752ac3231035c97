package parts

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/files"
)

// The sidecar's configuration file (pd-sidecar --configuration-file, or inline as --configuration) is YAML whose keys
// are flags. The command line takes precedence over the file, and the file over the environment.

// configKeys are the keys, with the type of their values.
var configKeys = map[string]string{
	"port": "int", "model-server-port": "int", "vllm-port": "int", "mooncake-bootstrap-port": "int",
	"p2p-connector-port": "int",
	"data-parallel-size": "int", "max-idle-conns-per-host": "int", "prefill-max-retries": "int",
	"decode-chunk-size": "int", "metrics-port": "int",
	"kv-connector": "str", "ec-connector": "str", "cert-path": "str", "inference-pool": "str", "pool-group": "str",
	"prefill-retry-backoff":  "str",
	"enable-ssrf-protection": "bool", "enable-prefiller-sampling": "bool", "enable-p2p-pull": "bool",
	"secure-proxy": "bool", "tracing": "bool",
	"enable-tls": "list", "tls-insecure-skip-verify": "list",
}

// configText and configPath are flags that set other flags.
type (
	configText string
	configPath string
)

// BeforeResolve sets the flags that the command line does not set.
func (configText) BeforeResolve(ctx *kong.Context, trace *kong.Path, o *console.Console) error {
	text, _ := ctx.FlagValue(trace.Flag).(configText)
	return addConfiguration(ctx, o, []byte(text), "--configuration")
}

// BeforeResolve sets such flags from a file.
func (configPath) BeforeResolve(ctx *kong.Context, trace *kong.Path, o *console.Console) error {
	path, _ := ctx.FlagValue(trace.Flag).(configPath)
	text, err := files.Read(string(path), strictyaml.MaxBytes)
	if err != nil {
		return fmt.Errorf("--configuration-file: %w", err)
	}
	return addConfiguration(ctx, o, text, string(path))
}

func addConfiguration(ctx *kong.Context, o *console.Console, text []byte, from string) error {
	flags, err := configFlags(from, text, o.Stderr)
	if err != nil {
		return err
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if v, ok := flags[flag.Name]; ok {
			return v, nil
		}
		return nil, nil
	}))
	return nil
}

// configFlags returns a configuration's keys as flags. As in the real sidecar, 0 and an empty value stand for the
// default.
func configFlags(from string, text []byte, warn io.Writer) (map[string]string, error) {
	doc, err := strictyaml.Parse(text, strictyaml.Options{File: from, Kubernetes: true})
	if err != nil {
		return nil, err
	}
	flags := map[string]string{}
	known := map[string]func(strictyaml.Value){}
	for key, kind := range configKeys {
		known[key] = func(v strictyaml.Value) {
			if text := configValue(v, key, kind); text != "" {
				flags[key] = text
			}
		}
	}
	doc.Root().CheckKeys()
	doc.Root().Fields(known)
	if err := doc.Problems().Err(); err != nil {
		return nil, err
	}
	for _, w := range doc.Warnings() {
		fmt.Fprintf(warn, "notice: %s\n", w)
	}
	if old, ok := flags["vllm-port"]; ok && flags["model-server-port"] == "" {
		flags["model-server-port"] = old
	}
	if b, ok := flags["prefill-retry-backoff"]; ok {
		if _, err := time.ParseDuration(b); err != nil {
			fmt.Fprintf(warn, "notice: prefill-retry-backoff %q is not a duration such as 200ms; the default is "+
				"used\n", b)
			delete(flags, "prefill-retry-backoff")
		}
	}
	return flags, nil
}

// configValue returns a value as a flag's text, "" for the default.
func configValue(v strictyaml.Value, key, kind string) string {
	switch kind {
	case "list":
		return strings.Join(v.TextList(), ",")
	case "bool":
		if b := v.Bool(); v.Given() {
			return strconv.FormatBool(b)
		}
	case "int":
		if i := v.Int(math.MinInt32, math.MaxInt32, 0); v.Given() && (i != 0 || key == "prefill-max-retries") {
			return strconv.FormatInt(i, 10)
		}
	case "str":
		return v.Text()
	}
	return ""
}
