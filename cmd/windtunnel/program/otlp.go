package program

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/core/tracing"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/otlp"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/trace"
)

// otlpFlags say where spans go, and who traces besides the parts that always do.
type otlpFlags struct {
	otlpTo
	Untraced bool      `name:"otlp-untraced-client" help:"Spans as they are when the client sends no traceparent: the picker begins each trace."`
	Gateway  string    `name:"otlp-gateway" enum:"none,ingress,egress" default:"none" placeholder:"none|ingress|egress" help:"Spans as they are when Envoy traces, too: with its ingress span alone, or with one for each try (spawn_upstream_span)."`
	Began    time.Time `name:"otlp-start" placeholder:"TIME" help:"When the run began, by the spans: 2026-01-02T15:04:05Z. Given, the same record sends the same bytes. Left out: when a live run did, else now."`
}

// otlpTo says where spans go.
type otlpTo struct {
	OTLP string `name:"otlp" placeholder:"URL" help:"Send OpenTelemetry spans of every request to a collector: http://127.0.0.1:4318 (OTLP over HTTP), or grpc://127.0.0.1:4317. docs/traces.md has their names; OTEL_TRACES_EXPORTER=otlp and OTEL_EXPORTER_OTLP_ENDPOINT do the same."`
}

// sender is an exporter of a run's spans; nil sends none.
type sender struct {
	*otlp.Exporter
	to  otlp.Target
	ids *tracing.IDs
}

// recorder is the sender as who takes events; nil where there is none.
func (s *sender) recorder() flow.Recorder {
	if s == nil {
		return nil
	}
	return s.Exporter
}

// trace makes the ids of spans and of what goes on in their name; nil where nobody traces.
func (s *sender) trace() *tracing.IDs {
	if s == nil {
		return nil
	}
	return s.ids
}

// send begins to send a run's spans, if the flags or the environment say where to.
func (f *otlpFlags) send(o *outside, start time.Time, live bool, shown *report.Options) (*sender, error) {
	if !f.Began.IsZero() {
		start = f.Began
	}
	options := otlp.Options{Start: start, Wait: !live, Live: live, Trace: trace.Options{UntracedClient: f.Untraced, Gateway: f.Gateway != "none", Egress: f.Gateway == "egress"}}
	s, err := f.begin(o, true, options)
	if s != nil {
		shown.Also = flow.Tee(shown.Also, s.Exporter)
	}
	return s, err
}

// alone begins to send the spans of a part that runs alone, or of several without a client,
// whose time begins at start: where the flag says or, if the part is to trace as the real
// one's own flag has it, where the environment does.
func (f *otlpTo) alone(o *outside, traces bool, start time.Time) (*sender, error) {
	return f.begin(o, traces, otlp.Options{Start: start, Live: true})
}

// environment looks variables up: the first that is set, and its name.
func environment(o *outside, names ...string) (value, name string) {
	for _, n := range names {
		if v, _ := o.Env(n); v != "" {
			return v, n
		}
	}
	return "", ""
}

// byProtocol is a target of the environment's, or of vLLM's flag, as otlp.ParseTarget reads
// it: the protocol stands in a variable of its own, and is gRPC without it.
func byProtocol(o *outside, target string, base bool) (string, error) {
	protocol, name := environment(o, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch protocol {
	case "", "grpc": // as the real parts do
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
	return "", exit.With(exit.Usage, fmt.Errorf("%s: found %q; expected grpc or http/protobuf", name, protocol))
}

// begin starts the exporter. Of options the target, the share and what goes along come from
// flag and environment.
func (f *otlpTo) begin(o *outside, traces bool, options otlp.Options) (*sender, error) {
	target, from := f.OTLP, "--otlp"
	if kind, _ := environment(o, "OTEL_TRACES_EXPORTER"); target == "" && kind == "otlp" && traces {
		target, from = environment(o, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
		if target == "" {
			target, from = "http://localhost:4317", "OTEL_TRACES_EXPORTER=otlp"
		}
		var err error
		if target, err = byProtocol(o, target, from == "OTEL_EXPORTER_OTLP_ENDPOINT"); err != nil {
			return nil, err
		}
	}
	if target == "" {
		return nil, nil
	}
	to, err := otlp.ParseTarget(target)
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("%s: %w", from, err))
	}
	options.To, options.Share = to, 1
	options.Trace.Salt = uint64(options.Start.UnixNano()) //nolint:gosec // any number keeps runs apart
	if share, name := environment(o, "OTEL_TRACES_SAMPLER_ARG"); share != "" {
		if options.Share, err = strconv.ParseFloat(share, 64); err != nil || !(options.Share >= 0 && options.Share <= 1) {
			return nil, exit.With(exit.Usage, fmt.Errorf("%s: found %q; expected a share of the traces from 0 to 1", name, share))
		}
	}
	for name, into := range map[string]*[][2]string{"OTEL_EXPORTER_OTLP_HEADERS": &options.Headers, "OTEL_RESOURCE_ATTRIBUTES": &options.Attributes} {
		list, _ := environment(o, name)
		for pair := range strings.SplitSeq(list, ",") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if pair != "" && (!ok || key == "") {
				return nil, exit.With(exit.Usage, fmt.Errorf("%s: found %q; expected KEY=VALUE, further ones after a comma", name, pair))
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
	return &sender{x, to, &tracing.IDs{Salt: options.Trace.Salt, Share: options.Share}}, nil
}

// end sends the rest and says what came of all spans.
func (s *sender) end(o *outside) {
	if s == nil {
		return
	}
	stats := s.Close()
	fmt.Fprintf(o.Stderr, "windtunnel: %d spans sent to %s\n", stats.Sent, s.to)
	if stats.Failed > 0 {
		fmt.Fprintf(o.Stderr, "windtunnel: %d spans were not taken: %v\n", stats.Failed, stats.Err)
	}
	if stats.Dropped > 0 {
		fmt.Fprintf(o.Stderr, "windtunnel: the spans of %d requests were dropped, since the collector is slower than the run\n", stats.Dropped)
	}
}

// traceCmd writes a recording as other tools read it.
type traceCmd struct {
	File    string `arg:"" name:"recording" help:"A recording, or - for standard input."`
	Format  string `enum:"perfetto,chrome,mermaid" default:"perfetto" placeholder:"perfetto|chrome|mermaid" help:"perfetto: its native tracks, for ui.perfetto.dev; chrome: JSON for chrome://tracing; mermaid: one request as a sequence diagram."`
	Request string `name:"request" placeholder:"N" help:"This request alone, by its number or its x-request-id; mermaid needs one, and takes the first."`
	Max     int    `name:"requests" default:"10000" placeholder:"N" help:"The first N requests only."`
	Gateway bool   `name:"gateway" help:"With Envoy's spans."`
}

func (traceCmd) Help() string {
	return `Pods, picker, sidecars and the client are tracks, with a lane for each request that one has at a time. Pods have counters
(waiting, running, KV cache) as the picker scraped them, and incidents are a track of their own.

Examples:
  windtunnel sim --record yesterday.ndjson.gz
  windtunnel trace yesterday.ndjson.gz > yesterday.pftrace                       # open it in ui.perfetto.dev
  windtunnel trace yesterday.ndjson.gz --format chrome > yesterday.json
  windtunnel trace yesterday.ndjson.gz --format mermaid --request 7              # paste it into an issue`
}

// Run reads the recording and writes it to standard output.
func (c *traceCmd) Run(o *outside) error {
	if c.Max < 1 {
		return exit.With(exit.Usage, fmt.Errorf("--requests: found %d; expected 1 or more", c.Max))
	}
	byRequest, order, cut := map[string][]flow.Event{}, []string{}, map[string]bool{}
	var around trace.Around
	_, err := (&replayCmd{Files: []string{c.File}}).read(o, func(e flow.Event) error {
		around.Event(e)
		if e.Request == "" || c.Request != "" && !flow.Named(c.Request, e.Request) {
			return nil
		}
		if _, known := byRequest[e.Request]; !known {
			if len(order) >= c.Max {
				if len(cut) < trace.MaxOpen {
					cut[e.Request] = true
				}
				return nil
			}
			order = append(order, e.Request)
		}
		if len(byRequest[e.Request]) < trace.MaxEvents {
			byRequest[e.Request] = append(byRequest[e.Request], e)
		}
		return nil
	})
	if err != nil {
		return inputError(err)
	}
	if len(order) == 0 {
		if c.Request != "" {
			return exit.With(exit.Input, fmt.Errorf("%s has no request %s", c.File, c.Request))
		}
		return exit.With(exit.Input, errors.New(c.File+" has no request"))
	}
	if c.Format == "mermaid" {
		return trace.WriteMermaid(o.Stdout, byRequest[order[0]])
	}
	if len(cut) > 0 {
		fmt.Fprintf(o.Stderr, "windtunnel: %d further requests are left out; --requests N takes more\n", len(cut))
	}
	var spans []trace.Span
	for _, id := range order {
		spans = append(spans, trace.Of(byRequest[id], trace.Options{Gateway: c.Gateway, Egress: c.Gateway})...)
	}
	until := machine.Time(0)
	if c.Request != "" || len(cut) > 0 {
		for i := range spans {
			until = max(until, spans[i].End)
		}
		around.Until(until)
	}
	if err := c.figures(o, &around, until); err != nil {
		return err
	}
	if n := around.Cut(); n > 0 {
		fmt.Fprintf(o.Stderr, "windtunnel: %d figures of pods and incidents are left out, since there are too many\n", n)
	}
	if c.Format == "chrome" {
		return trace.WriteChrome(o.Stdout, spans, &around)
	}
	return trace.WritePerfetto(o.Stdout, spans, &around)
}

// figures adds what pickers knew of their endpoints, up to a time or, where it is 0, to the
// end, by the recording's log of inputs. It reads the recording again, which standard input
// does not let it.
func (c *traceCmd) figures(o *outside, around *trace.Around, until machine.Time) error {
	if c.File == "-" {
		fmt.Fprintln(o.Stderr, "windtunnel: without counters of the pods, for which a recording has to be a file")
		return nil
	}
	p := &inputlog.Player{Registry: plugins.Builtin(), Until: until}
	p.Scraped = func(now machine.Time, endpoint string, v *picker.View) {
		if i := v.Find(endpoint); i >= 0 {
			s := &v.States[i]
			around.Sample(now, s.HostPort(), s.Waiting, s.Running, s.KVUsage)
		}
	}
	var line *report.LineError
	err := report.ReadInputsFile(c.File, p.Line)
	if errors.Is(err, inputlog.ErrEnough) {
		return nil
	}
	if errors.As(err, &line) { // spans are there nevertheless
		fmt.Fprintf(o.Stderr, "windtunnel: counters of the pods are not whole: %v\n", err)
		return nil
	}
	return inputError(err)
}
