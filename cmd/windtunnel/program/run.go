package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

type runCmd struct {
	loadFlags
	outputFlags
	Endpoints []string `name:"endpoint" sep:"none" placeholder:"HOST:PORT" help:"Send to a model server that someone else runs, instead of simulated ones; repeatable."`
	EPP       string   `name:"epp" placeholder:"HOST:PORT" help:"Ask someone else's endpoint picker; the stack writes the endpoints.yaml that its file-discovery reads."`
	Keep      bool     `help:"Leave everything up after the requests, on the well-known ports, until Ctrl-C."`
	EnvoyPath string   `name:"envoy-path" placeholder:"FILE" fromenv:"ENVOY_PATH" help:"The Envoy to use. Left out: one on PATH, or in the cache, or installed into it."`
	Hops      bool     `help:"After the run, print how long it took from part to part, as the hops: section of a scenario for windtunnel sim."`
	Verbose   bool     `short:"v" help:"Log what the parts do, to stderr."`
}

func (c *runCmd) Help() string {
	return `Starts a real Envoy, the endpoint picker and simulated model servers, sends requests, and shows what happens to each of them, step by step.
The picker's configuration, in its file or in the scenario, may be edited meanwhile: a good one is taken over without losing a request, a bad one is refused and told.

Examples:
  windtunnel run                                        # the embedded scenario: document 000's held-open request
  windtunnel run examples/held.yaml                     # 100 ms to 30 s of prefill each
  windtunnel run -n 200 -c 50 --prefill 100ms..500ms    # more of them, faster
  windtunnel run --keep                                 # stays up, and prints a curl line
  windtunnel run --record yesterday.ndjson.gz           # windtunnel replay shows it again
  windtunnel run --output json | jq 'select(.hop == "epp")'
  windtunnel run mine.yaml --hops                       # what to write into it for windtunnel sim to take as long
  windtunnel run --endpoint 127.0.0.1:8000              # in front of a real vLLM
  windtunnel run --epp 127.0.0.1:9002                   # behind somebody else's endpoint picker`
}

func (c *runCmd) Run(o *outside) error {
	s, err := c.scenario(o, func(x *scenario.Overrides) { x.Endpoints = c.Endpoints })
	if err != nil {
		return err
	}
	if err := c.spares(append(c.inputs(s), c.EnvoyPath)); err != nil {
		return err
	}
	if c.EPP != "" {
		if err := scenario.CheckEndpoint(c.EPP); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--epp: %w; expected HOST:PORT such as 127.0.0.1:9002", err))
		}
	}
	if len(c.Endpoints) > 0 && c.File == "" {
		// A server that awaits the whole body would wait for ever, and the EPP
		// for its first token.
		s.Pools[0].Flow = scenario.Plain
	}
	ctx, stop := o.Context()
	defer stop()
	origin := time.Now()
	// We send nothing before the stack is up, so the readers open late and a
	// failed start leaves no summary of nothing.
	var readers atomic.Pointer[report.Session]
	st, err := stack.Start(ctx, stack.Options{Scenario: s, Origin: origin, Keep: c.Keep, EPP: c.EPP, EnvoyPath: c.EnvoyPath, Log: c.log(o), Reloaded: reloaded(o), Describe: c.Record != "",
		Scraped: func(took time.Duration) {
			if session := readers.Load(); session != nil {
				session.Scraped(took)
			}
		},
		Recorder: flow.Func(func(e flow.Event) {
			// With --keep somebody may send requests to the well-known port
			// while the stack still starts.
			if session := readers.Load(); session != nil {
				session.Record(e)
			}
		})})
	if err != nil {
		return startError(ctx, err)
	}
	session, err := report.Start(c.options(o, s, func() machine.Time { return machine.FromDuration(time.Since(origin)) }))
	if err != nil {
		return errors.Join(exit.With(exit.Input, err), stopStack(st))
	}
	readers.Store(session)
	var inputs *epp.InputLog
	if x := session.Inputs(); x != nil {
		inputs = epp.NewInputLog(epp.InputLogOptions{Inputs: *x, Log: c.log(o)})
		st.Record(inputs)
	}
	c.ready(o, st, s)
	loadErr := c.load(ctx, st)
	if c.Keep && ctx.Err() == nil {
		fmt.Fprint(c.notes(o), c.kept(st, s))
		select {
		case <-ctx.Done():
		case <-st.Gateway.Done(): // told by Stop
		}
	}
	interrupted := ctx.Err() != nil && !c.Keep || errors.Is(loadErr, context.Canceled)
	checks := st.CheckKV(context.WithoutCancel(ctx)) // also after Ctrl-C
	stopErr := errors.Join(stopStack(st), inputs.Close())
	session.Indexed(checks)
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
	return verdict(summary)
}

// reloaded says what became of an edited picker configuration.
func reloaded(o *outside) func(file string, err error) {
	return func(file string, err error) {
		if err != nil {
			fmt.Fprintf(o.Stderr, "windtunnel: %s was changed and is not used; the old picker configuration stays: %v\n", file, err)
			return
		}
		fmt.Fprintf(o.Stderr, "windtunnel: the picker configuration in %s was changed and is in force\n", file)
	}
}

// load sends the requests, and no more of them once Envoy has ended.
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

func stopStack(st *stack.Stack) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return st.Stop(ctx)
}

// startError gives trouble before the first request its exit code.
func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exit.With(exit.Interrupted, alreadyTold{err})
	}
	var config *stack.ConfigError
	if errors.As(err, &config) {
		return exit.With(exit.Input, err)
	}
	var e *envoy.Error
	if errors.As(err, &e) {
		switch e.Kind {
		case envoy.BadConfig, envoy.StartFailed:
			return exit.With(exit.Broken, err)
		}
		return exit.Hint(exit.Environment, err, "windtunnel doctor shows what this machine has")
	}
	var name *net.DNSError
	var file *fs.PathError
	if errors.As(err, &name) || errors.As(err, &file) {
		return exit.With(exit.Environment, err)
	}
	return exit.With(exit.Broken, err)
}

func (c *runCmd) log(o *outside) *slog.Logger {
	if !c.Verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(o.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// notes is where words that are no events go.
func (c *runCmd) notes(o *outside) io.Writer {
	if c.Output == "json" {
		return o.Stderr
	}
	return o.Stdout
}

// ready prints the one line that says what listens where.
func (c *runCmd) ready(o *outside, st *stack.Stack, s *scenario.Scenario) {
	what := c.File
	if what == "" {
		what = "the embedded scenario"
	}
	picker := c.EPP + " (someone else's; endpoints in " + st.EndpointsFile() + ")"
	if st.Picker != nil {
		picker = fmt.Sprintf("%s (metrics %s, health %s)", st.Picker.Addr(), st.Picker.MetricsAddr(), st.Picker.HealthAddr())
	}
	fmt.Fprintf(c.notes(o), "ready in %.2f s: Envoy %s on http://%s → EPP %s → %s; playing %s, seed %d\n",
		st.Startup.Seconds(), st.Binary.Version, st.Gateway.Addr, picker, servers(st.Endpoints), what, s.Seed)
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

// kept tells how to send a request by hand.
func (c *runCmd) kept(st *stack.Stack, s *scenario.Scenario) string {
	return fmt.Sprintf("\nStill up; Ctrl-C ends it. Try:\n  curl -N http://%s/v1/chat/completions -H 'content-type: application/json' -d '{\"model\":%q,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Why is the sky blue?\"}]}'\n\n",
		st.Gateway.Addr, s.Pools[0].Model)
}
