package program

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/ports"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/internal/cachedir"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/live/client"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/live/up"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/web"
)

type runCmd struct {
	loadFlags
	outputFlags
	pageFlags
	setFlag
	Endpoints   []string      `name:"endpoint" sep:"none" placeholder:"HOST:PORT" help:"A model server that runs already, instead of simulated ones. Repeatable."`
	EPP         string        `placeholder:"HOST:PORT" help:"An external endpoint picker. The run waits until it answers."`
	Command     string        `name:"epp-command" placeholder:"COMMAND" help:"A shell command that starts another endpoint picker, which ends with the run."`
	Discovery   string        `name:"endpoints-file" placeholder:"FILE" help:"Where to write the endpoints for its file-discovery. Left out: endpoints.yaml in windtunnel's cache."`
	Wait        time.Duration `name:"epp-wait" default:"1m" help:"How long to wait for it."`
	Keep        bool          `help:"Leave everything up after the requests, on the well-known ports, until Ctrl-C."`
	Port        *int          `placeholder:"N" help:"Port of the gateway, 0 for a free one (--keep: 8081)."`
	GRPCPort    *int          `placeholder:"N" help:"Port of the endpoint picker (9002 or a free one)."`
	HealthPort  *int          `name:"grpc-health-port" placeholder:"N" help:"Port of its gRPC health (9003 or a free one)."`
	MetricsPort *int          `placeholder:"N" help:"Port of its metrics (9090 or a free one)."`

	AdminPort *int   `placeholder:"N" help:"Port of Envoy's own pages, 0 for a free one (--keep: 19000)."`
	Addresses string `name:"addresses-file" placeholder:"FILE" help:"Write where everything listens to FILE, as JSON."`
	envoyFlag
	TraceParent bool `name:"traceparent" help:"Send a sampled traceparent with each request."`

	also record.Recorder // of the run's events, may be nil

	Hops bool `help:"After the run, print how long it took from part to part, as the hops: section of a scenario."`
	verboseFlag
}

func (c *runCmd) Help() string {
	return `Starts a real Envoy, the endpoint picker and simulated model servers, sends requests, and shows what happens
to each of them, step by step. The picker's configuration, in its file or in the scenario, may be edited
during the run: a valid one is applied without losing a request, an invalid one is refused and reported.

--epp-command finds ENDPOINTS_FILE, GRPC_PORT, GRPC_HEALTH_PORT and METRICS_PORT in its environment.
In the file of --addresses-file, .targets has the form of Prometheus' file_sd_configs.

Examples:
  windtunnel run                                        # the embedded scenario (docs/documents.md#document-000)
  windtunnel run examples/held.yaml                     # 100 ms to 30 s of prefill each
  windtunnel run -n 200 -c 50 --prefill 100ms..500ms    # more of them, faster
  windtunnel run --keep                                 # stays up, and prints a curl line
  windtunnel run --ui                                   # stays up, and shows everything on a page
  windtunnel run --record yesterday.ndjson.gz           # windtunnel replay shows it again
  windtunnel run --keep --addresses-file at.json        # where everything listens, for programs
  windtunnel run --otlp http://127.0.0.1:4318           # spans of every request, to a collector or to Jaeger
  windtunnel run --output json | jq 'select(.hop == "epp")'
  windtunnel run mine.yaml --hops                       # for windtunnel sim to take as long
  windtunnel run --endpoint 127.0.0.1:8000              # in front of a real vLLM, with the model that it serves
  windtunnel run --epp 127.0.0.1:9002                   # with an endpoint picker that may start later
  windtunnel run --epp-command 'windtunnel epp --pool-name p --secure-serving=false --config-text
      "$(windtunnel config --picker --endpoints-file $ENDPOINTS_FILE)" --grpc-port $GRPC_PORT
      --grpc-health-port $GRPC_HEALTH_PORT --metrics-port $METRICS_PORT'   # or one that it starts`
}

func (c *runCmd) Run(o *outside) error {
	flags := c.loadFlags
	if len(c.Endpoints) > 0 {
		flags.Model = "" // need not be in the catalogue
	} else if c.EPPConfig != "" && (c.EPP != "" || c.Command != "") {
		return exit.Errorf(exit.Usage, "--epp-config is for windtunnel's own endpoint picker; expected it without "+
			"--epp and --epp-command")
	}
	if err := ports.Check(map[string]*int{"--port": c.Port, "--grpc-port": c.GRPCPort, "--admin-port": c.AdminPort,
		"--grpc-health-port": c.HealthPort, "--metrics-port": c.MetricsPort, "--ui-port": &c.UIPort}); err != nil {
		return err
	}
	s, err := flags.scenarioWith(o, c.Set, func(x *scenario.Overrides) { x.Endpoints = c.Endpoints })
	if err != nil {
		return err
	}
	if err := s.CheckLive(); err != nil {
		return exit.With(exit.Input, err)
	}
	if err := c.check(o, s, append(c.inputs(s), c.EnvoyPath), [2]string{"--addresses-file", c.Addresses}); err != nil {
		return err
	}
	if c.TraceParent && c.Untraced {
		return exit.Errorf(exit.Usage, "--traceparent and --otlp-untraced-client exclude each other: give one of them")
	}
	elsewhere, err := c.elsewhere(o)
	if err != nil {
		return err
	}
	if len(c.Endpoints) > 0 && c.File == "" {
		// A server that waits for the whole body would never answer, and the EPP would wait for its first token.
		s.Pools[0].Flow = scenario.Plain
		fmt.Fprintln(c.notes(o),
			"requests are sent whole (flow: plain), not held: most model servers wait for the end of a request "+
				"before they answer")
	}
	ctx, stop := o.Context()
	defer stop()
	if err := c.model(ctx, o, &s.Pools[0]); err != nil {
		return err
	}
	if c.UI { // the page can add servers
		s.ReservePlaces()
	}
	fit, end := fitter(ctx, o, s)
	defer end()
	origin := time.Now()
	// The run sends nothing before the stack is up, so the readers open late, and a failed start leaves no empty
	// summary.
	var readers atomic.Pointer[report.Session]
	tokenGaps := gaps.New()
	shown := c.options(o, s, runClock(origin))
	shown.Gaps, shown.Also = tokenGaps, c.also
	page, err := c.pageFlags.start(&shown,
		web.Meta{Mode: "live", File: c.file(), Own: true, Envoy: true, BBR: len(s.Pools) > 1})
	if err != nil {
		return err
	}
	defer page.stop()
	sender, err := c.send(o, origin, true, &shown)
	if err != nil {
		return err
	}
	defer sender.End(o)
	ids, ofClient := sender.Trace(), sender.Trace()
	switch {
	case c.Untraced:
		ofClient = nil
	case c.TraceParent && ofClient == nil:
		ofClient = &tracing.IDs{Salt: uint64(origin.UnixNano()), Share: 1} //nolint:gosec // any number keeps runs apart
	}
	st, err := stack.Start(ctx,
		stack.Options{Scenario: s, Trace: ids, ClientTrace: ofClient, Gaps: tokenGaps, Fit: fit, Origin: origin,
			Keep: c.Keep, Stay: c.UI,
			Ports: stack.Ports{Gateway: port(c.Port), ExtProc: port(c.GRPCPort), Health: port(c.HealthPort),
				Metrics: port(c.MetricsPort), Admin: port(c.AdminPort)}, EPP: elsewhere,
			Report:    func(what string) { fmt.Fprintf(o.Stderr, "windtunnel: %s\n", what) },
			EnvoyPath: c.EnvoyPath, Log: c.log(o), Reloaded: reloaded(o),
			Describe: c.Record != "" || c.UI, Explain: shown.Explained(),
			Scraped: func(took time.Duration) {
				if session := readers.Load(); session != nil {
					session.Scraped(took)
				}
			},
			Recorder: record.Func(func(e record.Event) {
				// With --keep a user may send requests to the well-known port
				// while the stack still starts.
				if session := readers.Load(); session != nil {
					session.Record(e)
				}
			})})
	if err != nil {
		return startError(ctx, err)
	}
	session, err := report.Start(shown)
	if err != nil {
		return errors.Join(exit.With(exit.Input, err), ended(st.Stop))
	}
	page.measure(session)
	session.Pools(search.Pools(s, func(pool int) []string { return st.Pools[pool].Endpoints }))
	readers.Store(session)
	var inputs *epp.InputLog
	if x := session.Inputs(); x != nil {
		inputs = epp.NewInputLog(epp.InputLogOptions{Inputs: *x, Log: c.log(o)})
		st.Record(inputs)
	}
	if err := c.writeAddresses(st); err != nil {
		return errors.Join(err, ended(st.Stop))
	}
	c.ready(o, st, s)
	page.live(ctx, st, s)
	page.printLink(c.notes(o))
	loadErr := c.load(ctx, st)
	stay := c.Keep || c.UI
	if stay && ctx.Err() == nil {
		session.SetIndexes(st.CheckKV(ctx))
		session.SetLoads(st.Loads())
		if err := session.Loaded(
			func(sum report.Summary) bool {
				return sum.Hops[record.Envoy][record.Logged] >= sum.Requests
			}); err != nil {
			return errors.Join(err, ended(st.Stop))
		}
		fmt.Fprint(c.notes(o), c.kept(st, s))
		page.printLink(c.notes(o))
		select {
		case <-ctx.Done():
		case <-st.Gateway.Done(): // Stop returns the error
		}
	}
	interrupted := ctx.Err() != nil && !stay || errors.Is(loadErr, context.Canceled)
	checks := st.CheckKV(context.WithoutCancel(ctx)) // also after Ctrl-C
	session.SetLoads(st.Loads())
	stopErr := errors.Join(ended(st.Stop), inputs.Close())
	session.SetIndexes(checks)
	summary, endErr := session.End(interrupted)
	for _, err := range []error{stopErr, endErr} {
		if err != nil {
			return err
		}
	}
	if h := summary.HopTimes; h != nil && c.Hops {
		if err := h.Write(c.notes(o)); err != nil {
			return err
		}
	}
	if loadErr != nil && ctx.Err() == nil {
		return loadErr
	}
	if own := session.Settled(); own != nil && !summary.Interrupted { // requests by hand do not count
		summary.Outcomes, summary.Requests, summary.Expectations = own.Outcomes, own.Requests, own.Expectations
	}
	if c.file() == "" && len(c.Endpoints) == 0 && c.Output == "text" && o.Terminal && !stay {
		fmt.Fprint(o.Stdout, next)
	}
	return verdict(summary)
}

// next are commands to type after a first run.
const next = `
next: windtunnel run --ui                                       the same on a page, step by step
      windtunnel sim --model llama-3.1-8b --accelerator H100    llm-d's default picker and vLLM, in virtual time
      windtunnel scenario new plain -o mine.yaml                a commented scenario to change
`

// port returns a flag's port in a stack's form.
func port(flag *int) int {
	switch {
	case flag == nil:
		return 0
	case *flag == 0:
		return stack.AnyPort
	default:
		return *flag
	}
}

// reloaded returns a function that reports the result of editing the picker configuration.
func reloaded(o *outside) func(file string, err error) {
	return func(file string, err error) {
		if err != nil {
			fmt.Fprintf(o.Stderr, "windtunnel: %s was changed and is not used; the old picker configuration stays: "+
				"%v\n", file, err)
			return
		}
		fmt.Fprintf(o.Stderr, "windtunnel: the picker configuration in %s was changed and is in force\n", file)
	}
}

// elsewhere returns the external endpoint picker.
func (c *runCmd) elsewhere(o *outside) (x stack.Elsewhere, err error) {
	if err := checkEPP(c.EPP); err != nil {
		return x, err
	}
	if c.EPP == "" && c.Command == "" {
		if c.Discovery != "" {
			return x, exit.Errorf(exit.Usage, "--endpoints-file is for an endpoint picker that runs already; "+
				"expected --epp or --epp-command beside it")
		}
		return x, nil
	}
	x = stack.Elsewhere{Address: c.EPP, Command: c.Command, EndpointsFile: c.Discovery, Wait: c.Wait}
	if x.EndpointsFile == "" {
		cache, err := cachedir.Dir(o.Getenv)
		if err != nil {
			return x, exit.With(exit.Environment, err)
		}
		x.EndpointsFile = filepath.Join(cache, "endpoints.yaml")
	}
	return x, nil
}

// model sets a model that the external server serves.
func (c *runCmd) model(ctx context.Context, o *outside, p *scenario.Pool) error {
	if c.Model != "" {
		p.Model = c.Model
		return nil
	}
	if len(p.Endpoints) == 0 {
		return nil
	}
	server := p.Endpoints[0]
	models, err := client.Models(ctx, server)
	switch {
	case ctx.Err() != nil:
		return exit.Reported(exit.Interrupted, ctx.Err())
	case err != nil:
		return exit.Hint(exit.Environment,
			fmt.Errorf("endpoint %q does not list its models: %w", server, err),
			"start it first, or name the model: --model NAME")
	case len(models) == 0:
		return exit.Hint(exit.Environment, fmt.Errorf("endpoint %q serves no model", server),
			"--model NAME asks for a model anyway")
	case slices.Contains(models, p.Model):
	case c.File != "":
		return exit.Hint(exit.Input,
			fmt.Errorf("endpoint %q serves %s, and not the scenario's model %s", server, strings.Join(models, ", "),
				p.Model), "--model "+models[0]+" asks for it")
	default:
		p.Model = models[0]
		fmt.Fprintf(c.notes(o), "asking for model %s, which %s serves (--model NAME asks for another)\n", p.Model,
			server)
	}
	return nil
}

// load sends the requests, and stops when Envoy has ended.
func (c *runCmd) load(ctx context.Context, st *stack.Stack) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-st.Gateway.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return st.Load(ctx)
}

// ended stops a started component, although the command's context may have ended.
func ended(stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return stop(ctx)
}

// startError adds an exit code to an error before the first request.
func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exit.Reported(exit.Interrupted, err)
	}
	var config *epp.ConfigError
	var objects *up.InvalidError
	if errors.As(err, &config) || errors.As(err, &objects) {
		return exit.With(exit.Input, err)
	}
	var file *fs.PathError
	if errors.As(err, &file) && strings.HasPrefix(file.Path, filepath.Clean(os.TempDir())) {
		return exit.Hint(exit.Environment, err, "a run writes its files into the directory for "+
			"temporary files; set TMPDIR to another one")
	}
	var e *envoy.Error
	if errors.As(err, &e) {
		switch e.Kind {
		case envoy.BadConfig, envoy.StartFailed:
			return exit.With(exit.Broken, err)
		}
		return exit.Hint(exit.Environment, err, "windtunnel doctor shows what this machine has")
	}
	var absent *stack.AbsentError
	if errors.As(err, &absent) {
		return exit.Hint(exit.Environment, err,
			"start it without TLS, with the endpoints file above as its file-discovery's path; --epp-wait waits longer")
	}
	var name *net.DNSError
	if errors.As(err, &name) || errors.As(err, &file) {
		return exit.With(exit.Environment, err)
	}
	return exit.With(exit.Broken, err)
}

// notes returns the writer of text that is not part of the output.
func (c *runCmd) notes(o *outside) io.Writer {
	if c.Output == "text" {
		return o.Stdout
	}
	return o.Stderr
}

// writeAddresses writes the addresses of all parts to a file, as JSON.
func (c *runCmd) writeAddresses(st *stack.Stack) error {
	if c.Addresses == "" {
		return nil
	}
	text, err := json.MarshalIndent(st.Addresses(), "", "  ")
	if err == nil {
		err = os.WriteFile(c.Addresses, append(text, '\n'), 0o644)
	}
	if err != nil {
		return exit.Errorf(exit.Input, "--addresses-file: %w", err)
	}
	return nil
}

// ready prints the line with the addresses of all parts.
func (c *runCmd) ready(o *outside, st *stack.Stack, s *scenario.Scenario) {
	what := cmp.Or(c.File, "the embedded scenario")
	if c.file() == scenario.DeployedFile {
		what = "one llm-d pool"
	}
	var pools []string
	for _, p := range st.Pools {
		name := ""
		if len(st.Pools) > 1 {
			name = "pool " + p.Name() + ": "
		}
		pools = append(pools, name+pickers(p)+servers(p.Endpoints))
	}
	line := fmt.Sprintf("ready in %.2f s: Envoy %s on http://%s → %s; playing %s, seed %d",
		st.Startup.Seconds(), st.Binary.Version, st.Gateway.Addr, strings.Join(pools, "; "), what, s.Seed)
	fmt.Fprintln(c.notes(o), terminal.Wrap(line, 2, o.Columns))
}

// pickers returns the addresses of a pool's endpoint pickers.
func pickers(p *stack.Pool) string {
	at := p.ExtProc()
	if at == nil {
		return ""
	}
	if len(p.Pickers) == 0 {
		return "EPP " + at[0] + " (external; endpoints in " + p.EndpointsFile() + ") → "
	}
	var out []string
	for _, x := range p.Pickers {
		k := x.Server()
		out = append(out, fmt.Sprintf("%s (metrics %s, health %s)", k.Addr(), k.MetricsAddr(), k.HealthAddr()))
	}
	return "EPP " + strings.Join(out, ", ") + " → "
}

func servers(endpoints []string) string {
	const shown = 4
	noun := "model servers "
	if len(endpoints) == 1 {
		noun = "model server "
	}
	if len(endpoints) > shown {
		return fmt.Sprintf("%d %s%s … %s", len(endpoints), noun, endpoints[0], endpoints[len(endpoints)-1])
	}
	return noun + strings.Join(endpoints, ", ")
}

// kept returns commands that send a request by hand, and inspect it.
func (c *runCmd) kept(st *stack.Stack, s *scenario.Scenario) string {
	text := fmt.Sprintf("\nStill up; Ctrl-C ends it. Try:\n  curl -N http://%s/v1/chat/completions -H 'content-type: "+
		"application/json' -d '{\"model\":%q,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Why is "+
		"the sky blue?\"}]}'\n",
		st.Gateway.Addr, s.Pools[0].Model)
	if list := st.Pools[0].Pickers; len(list) > 0 {
		text += fmt.Sprintf("  windtunnel explain 1 --from %s\n", list[0].Server().MetricsAddr())
	}
	return text + fmt.Sprintf("  curl http://%s/stats | grep ext_proc\n\n", st.Gateway.AdminAddr)
}
