package program

import (
	"errors"
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/spans"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/otlp"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/trace"
)

// otlpFlags say where spans go, and which further parts send them.
type otlpFlags struct {
	spans.To
	Untraced bool      `name:"otlp-untraced-client" help:"Spans of a client without traceparent: the picker begins a trace."`
	Gateway  string    `name:"otlp-gateway" enum:"none,ingress,egress" default:"none" help:"Spans of a tracing Envoy: one for each request, or also one for each try."`
	Began    time.Time `name:"otlp-start" placeholder:"TIME" help:"When the spans begin (2026-01-02T15:04:05Z). The same record then sends the same bytes."`
}

// send begins to send a run's spans, if the flags or the environment name a collector.
func (f *otlpFlags) send(o *outside, start time.Time, live bool, shown *report.Options) (*spans.Sender, error) {
	if !f.Began.IsZero() {
		start = f.Began
	}
	options := otlp.Options{Start: start, Wait: !live, Live: live,
		Trace: trace.Options{UntracedClient: f.Untraced, Gateway: f.Gateway != "none", Egress: f.Gateway == "egress"}}
	s, err := f.Start(o, true, options)
	if s != nil {
		shown.Also = record.Tee(shown.Also, s.Exporter)
	}
	return s, err
}

// traceCmd converts a recording for other tools.
type traceCmd struct {
	File    string `arg:"" name:"recording" help:"A recording, or - for standard input."`
	Output  string `short:"o" enum:"perfetto,chrome,mermaid" default:"perfetto" help:"The form to write."`
	Request string `placeholder:"N" help:"Only this request, by its number or its x-request-id."`
	Max     int    `name:"requests" default:"10000" placeholder:"N" help:"Only the first N requests."`
	Gateway bool   `help:"With Envoy's spans."`
}

func (traceCmd) Help() string {
	return `perfetto is for ui.perfetto.dev, chrome is JSON for chrome://tracing, and mermaid shows one request as a
sequence diagram. Pods, picker, sidecars and the client are tracks, with a lane for each request that one has
at a time. Pods have counters (waiting, running, KV cache) as the picker scraped them. Incidents have a track.

Examples:
  windtunnel sim --record yesterday.ndjson.gz
  windtunnel trace yesterday.ndjson.gz > yesterday.pftrace                       # open it in ui.perfetto.dev
  windtunnel trace yesterday.ndjson.gz --output chrome > yesterday.json
  windtunnel trace yesterday.ndjson.gz --output mermaid --request 7              # paste it into an issue`
}

// Run reads the recording and writes it to standard output.
func (c *traceCmd) Run(o *outside) error {
	if c.Max < 1 {
		return exit.Errorf(exit.Usage, "--requests: found %d; expected 1 or more", c.Max)
	}
	byRequest, order, cut := map[string][]record.Event{}, []string{}, map[string]bool{}
	var around trace.Around
	_, err := readRecording(o, c.File, func(e record.Event) error {
		around.Event(e)
		if e.Request == "" || c.Request != "" && !record.Named(c.Request, e.Request) {
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
		return recording.InputError(err)
	}
	if len(order) == 0 {
		if c.Request != "" {
			return exit.Errorf(exit.Input, "%s has no request %s", c.File, c.Request)
		}
		return exit.Errorf(exit.Input, "%s has no request", c.File)
	}
	if c.Output == "mermaid" {
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
	if err := c.metrics(o, &around, until); err != nil {
		return err
	}
	if n := around.Cut(); n > 0 {
		fmt.Fprintf(o.Stderr, "windtunnel: %d figures of pods and incidents are left out, since there are too many\n",
			n)
	}
	if c.Output == "chrome" {
		return trace.WriteChrome(o.Stdout, spans, &around)
	}
	return trace.WritePerfetto(o.Stdout, spans, &around)
}

// metrics adds the states of endpoints that pickers knew, from the recording's log of inputs, up to a time, or to the
// end for 0. It reads the recording again, so standard input has none.
func (c *traceCmd) metrics(o *outside, around *trace.Around, until machine.Time) error {
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
	var line *recording.LineError
	err := recording.ReadInputsFile(c.File, p.Line)
	if errors.Is(err, inputlog.ErrEnough) {
		return nil
	}
	if errors.As(err, &line) { // the spans are complete
		fmt.Fprintf(o.Stderr, "windtunnel: counters of the pods are not whole: %v\n", err)
		return nil
	}
	return recording.InputError(err)
}
