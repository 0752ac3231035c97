// Package spans sends the OpenTelemetry spans of commands to the collector that their flags or the environment name.
package spans

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/otlp"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// To says where spans go.
type To struct {
	OTLP string `placeholder:"URL" help:"Send OpenTelemetry spans to a collector: http://127.0.0.1:4318, or grpc://127.0.0.1:4317 (docs/traces.md)."`
}

// Sender is an exporter of a run's spans; nil sends none.
type Sender struct {
	*otlp.Exporter
	to  otlp.Target
	ids *tracing.IDs
}

// Recorder returns the recorder of the sender; nil for a nil Sender.
func (s *Sender) Recorder() record.Recorder {
	if s == nil {
		return nil
	}
	return s.Exporter
}

// Trace returns the generator of span ids and of their context; nil for a nil Sender.
func (s *Sender) Trace() *tracing.IDs {
	if s == nil {
		return nil
	}
	return s.ids
}

// Alone begins to send the spans of a part that runs alone, or of several without a client, whose time begins at start.
// The flag names the collector, or the environment if traces is true, which the real part's own flag sets.
func (f *To) Alone(o *console.Console, traces bool, start time.Time) (*Sender, error) {
	return f.Start(o, traces, otlp.Options{Start: start, Live: true})
}

// environment returns the first of these variables that is set, and its name.
func environment(o *console.Console, names ...string) (value, name string) {
	for _, n := range names {
		if v, _ := o.Env(n); v != "" {
			return v, n
		}
	}
	return "", ""
}

// ByProtocol returns a target of the environment, or of vLLM's flag, in the form of otlp.ParseTarget. Another variable
// has the protocol, gRPC by default. base says that the target has no path yet.
func ByProtocol(o *console.Console, target string, base bool) (string, error) {
	protocol, name := environment(o, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch protocol {
	case "", "grpc": // the real parts' default
		if !strings.Contains(target, "://") {
			target = "http://" + target
		}
		if strings.HasPrefix(target, "http") {
			target = "grpc" + strings.TrimPrefix(target, "http")
		}
		return strings.TrimSuffix(target, "/"), nil
	case "http/protobuf":
		if base { // by OpenTelemetry's specification
			target = strings.TrimSuffix(target, "/") + "/v1/traces"
		}
		return target, nil
	}
	return "", exit.Errorf(exit.Usage, "%s: found %q; expected grpc or http/protobuf", name, protocol)
}

// Start starts the exporter. The target, the share, the headers and the attributes of options come from flag and
// environment.
func (f *To) Start(o *console.Console, traces bool, options otlp.Options) (*Sender, error) {
	target, from := f.OTLP, "--otlp"
	if kind, _ := environment(o, "OTEL_TRACES_EXPORTER"); target == "" && kind == "otlp" && traces {
		target, from = environment(o, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
		if target == "" {
			target, from = "http://localhost:4317", "OTEL_TRACES_EXPORTER=otlp"
		}
		var err error
		if target, err = ByProtocol(o, target, from == "OTEL_EXPORTER_OTLP_ENDPOINT"); err != nil {
			return nil, err
		}
	}
	if target == "" {
		return nil, nil
	}
	to, err := otlp.ParseTarget(target)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "%s: %w", from, err)
	}
	options.To, options.Share = to, 1
	options.Trace.Salt = uint64(options.Start.UnixNano()) //nolint:gosec // any number keeps runs apart
	if share, name := environment(o, "OTEL_TRACES_SAMPLER_ARG"); share != "" {
		if options.Share, err = strconv.ParseFloat(share, 64); err != nil ||
			!(options.Share >= 0 && options.Share <= 1) {
			return nil, exit.Errorf(exit.Usage, "%s: found %q; expected a share of the traces from 0 to 1", name, share)
		}
	}
	for name, into := range map[string]*[][2]string{"OTEL_EXPORTER_OTLP_HEADERS": &options.Headers,
		"OTEL_RESOURCE_ATTRIBUTES": &options.Attributes} {
		list, _ := environment(o, name)
		for pair := range strings.SplitSeq(list, ",") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if pair != "" && (!ok || key == "") {
				return nil, exit.Errorf(exit.Usage, "%s: found %q; expected KEY=VALUE, further ones after a comma",
					name, pair)
			}
			if ok {
				*into = append(*into, [2]string{key, value})
			}
		}
	}
	x, err := otlp.New(options)
	if err != nil {
		return nil, exit.With(exit.Environment, err)
	}
	return &Sender{x, to, &tracing.IDs{Salt: options.Trace.Salt, Share: options.Share}}, nil
}

// End sends the remaining spans and prints how many were sent.
func (s *Sender) End(o *console.Console) {
	if s == nil {
		return
	}
	stats := s.Close()
	fmt.Fprintf(o.Stderr, "windtunnel: %s sent to %s\n", terminal.Counted(stats.Sent, "span"), s.to)
	if stats.Failed > 0 {
		fmt.Fprintf(o.Stderr, "windtunnel: %s not taken: %v\n", terminal.Counted(stats.Failed, "span"), stats.Err)
	}
	if stats.Dropped > 0 {
		fmt.Fprintf(o.Stderr, "windtunnel: the spans of %s were dropped, since the collector is slower than "+
			"the run\n", terminal.Counted(stats.Dropped, "request"))
	}
}
