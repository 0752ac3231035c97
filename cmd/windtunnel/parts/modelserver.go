package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/spans"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/modelserver/dropin"
	"github.com/windtunnel/windtunnel/live/serve"
)

// ModelServer runs simulated model servers alone, behind any gateway.
type ModelServer struct {
	Servers int    `default:"1" help:"How many servers, each on the next loopback address or port."`
	OOM     string `enum:"exit,restart" default:"exit" help:"When a server does not fit into its accelerator's memory: exit as OOMKilled, or restart again and again."`
	List    string `placeholder:"models|accelerators|flags" help:"List the simulated models or accelerators, or the flags after -- that act."`
	spans.To
	Verbose bool     `short:"v" help:"Log what the servers do, to stderr."`
	Args    []string `arg:"" optional:"" passthrough:"" name:"flags" help:"After --: the real server's flags, of vllm serve, SGLang or llm-d-inference-sim."`
}

func (ModelServer) Help() string {
	return `A vLLM to every client, down to the engine step, without a GPU. It takes the command line of the server that
it replaces: flags that it models act, all others are logged once and ignored.

Examples:
  windtunnel modelserver                                                # 127.0.0.1:8000, model windtunnel
  windtunnel modelserver -- vllm serve meta-llama/Llama-3.1-8B-Instruct --accelerator H100 --max-num-seqs 128
  windtunnel modelserver --servers 8 -- --model m --time-to-first-token 200ms --inter-token-latency 20ms
  windtunnel modelserver -- --config simulator.yaml                     # llm-d-inference-sim's
  windtunnel modelserver -- python3 -m sglang.launch_server --model-path m --enable-metrics
  windtunnel modelserver --list flags                                   # that act
  curl -sN localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"messages":[{"role":"user","content":"Hello"}],"stream":true}'

With --oom restart the server answers 503 between its restarts.

Flags after -- that are windtunnel's own:

  --accelerator NAME
  --model-config FILE                             the config.json of a model that is not listed
  --vllm-version VERSION                          whose defaults apply: 0.8.0 or later, such as 0.19.0
  --batching continuous|static|none|independent
  --output-tokens DISTRIBUTION
  --profile document|vllm|sglang|sim              whose defaults apply
  --lora-load-time, --lora-activate-time DURATION
  --advertise HOST                                its address for others, if --host is 0.0.0.0; else POD_IP
  --kv-peers ADDRESS|NETWORK|NAME|local|any       servers that a request may fetch KV caches from; local: this machine's
  --kv-peer-timeout DURATION                      for the first byte of their answers; 5s
  --kv-transfer-compression int8|none             whether 16-bit caches are sent as INT8
  --body-idle-timeout, --body-timeout DURATION    30s and 5m; of a held-open request's first part`
}

// listed returns the lines of --list.
func (c *ModelServer) listed() ([]string, error) {
	switch c.List {
	case "models":
		return modelshape.Names(), nil
	case "accelerators":
		return hardware.AcceleratorNames(), nil
	case "flags":
		return dropin.Flags(), nil
	}
	return nil, exit.Errorf(exit.Usage, "--list: %q is not models, accelerators or flags", c.List)
}

func (c *ModelServer) Run(o *console.Console) error {
	if c.List != "" {
		list, err := c.listed()
		if err == nil {
			_, err = fmt.Fprintln(o.Stdout, strings.Join(list, "\n"))
		}
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	began := time.Now()
	options, err := c.options(o)
	if err != nil {
		return err
	}
	options.Origin = began
	sender, err := c.Alone(o, true, began)
	if err != nil {
		return err
	}
	defer sender.End(o)
	options.Recorder = sender.Recorder()
	fleet, err := modelserver.New(options)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if err := fleet.Start(ctx); err != nil {
		return exit.ByCause(exit.Environment, err)
	}
	for _, s := range fleet.Servers() {
		fmt.Fprintf(o.Stdout, "ready: %s serves %s\n", s.URL(), strings.Join(options.Servers[0].Models, ", "))
	}
	fmt.Fprintf(o.Stdout, "in %d ms; step times from %s; Ctrl-C stops\n", time.Since(began).Milliseconds(),
		timesOf(&options.Servers[0]))
	return serve.Until(ctx, 10*time.Second, fleet.Failed(),
		func(ctx context.Context) error { fleet.Stop(ctx); return nil })
}

// options parses the flags behind -- and gives each server an address.
func (c *ModelServer) options(o *console.Console) (modelserver.Options, error) {
	none := modelserver.Options{}
	if c.Servers < 1 || c.Servers > 4096 {
		return none, exit.Errorf(exit.Usage, "--servers %d: expected 1 to 4096", c.Servers)
	}
	r, err := dropin.Parse(c.Args, o.Env)
	if err != nil {
		return none, exit.ByCause(exit.Usage, err)
	}
	for _, own := range []string{"--servers", "--oom", "--list"} {
		if slices.Contains(r.Ignored, own) {
			return none, exit.Hint(exit.Usage,
				fmt.Errorf("%s stands among the model server's flags, and is windtunnel's own", own),
				fmt.Sprintf("Try: windtunnel modelserver %s … -- FLAGS", own))
		}
	}
	if r.TracesEndpoint != "" && c.OTLP == "" {
		if c.OTLP, err = spans.ByProtocol(o, r.TracesEndpoint, false); err != nil {
			return none, err
		}
	}
	r.RestartOOM = c.OOM == "restart"
	options, err := r.Fleet()
	var memory *hardware.OutOfMemoryError
	switch {
	case errors.As(err, &memory):
		return none, exit.Errorf(exit.Broken, "OOMKilled: %w", err)
	case err != nil:
		return none, exit.ByCause(exit.Usage, err)
	}
	level := slog.LevelInfo
	if c.Verbose {
		level = slog.LevelDebug
	}
	options.Logger = o.Logger(level)
	if len(r.Ignored) > 0 {
		options.Logger.Warn("flags that have no meaning for a simulated server are ignored", "flags",
			strings.Join(r.Ignored, " "))
	}
	for _, note := range r.Notes {
		options.Logger.Warn(note)
	}
	if c.Servers > 1 {
		if options.Servers, err = spread(options.Servers, c.Servers); err != nil {
			return none, exit.With(exit.Usage, err)
		}
	}
	r.Publish(&options)
	return options, nil
}

// spread returns n copies of the first server, on successive loopback addresses with the same port, or else on
// successive ports.
func spread(servers []modelserver.ServerOptions, n int) ([]modelserver.ServerOptions, error) {
	if len(servers) > 1 {
		return nil, errors.New("--servers and --data-parallel-size: expected one of them")
	}
	host, port, err := net.SplitHostPort(servers[0].Listen)
	if err != nil {
		return nil, err
	}
	ip, ipErr := netip.ParseAddr(host)
	loopback := runtime.GOOS == "linux" && ipErr == nil && ip.Is4() && ip.IsLoopback()
	number, err := strconv.Atoi(port)
	if err != nil || !loopback && number+n-1 > 65535 {
		return nil, fmt.Errorf("--port %s: there are not %d ports from it on", port, n)
	}
	var out []modelserver.ServerOptions
	for i := range n {
		s := servers[0]
		s.Name = fmt.Sprintf("%s-%d", s.Models[0], i)
		switch {
		case loopback:
			if i > 0 {
				ip = ip.Next()
			}
			s.Listen = net.JoinHostPort(ip.String(), port)
			for _, at := range []*string{&s.SideChannel, &s.Meeting} {
				if _, port, err := net.SplitHostPort(*at); err == nil {
					*at = net.JoinHostPort(ip.String(), port)
				}
			}
		case number != 0:
			s.Listen = net.JoinHostPort(host, strconv.Itoa(number+i))
			s.SideChannel, s.Meeting = "", ""
		}
		out = append(out, s)
	}
	return out, nil
}

// timesOf names the source of a server's step times.
func timesOf(s *modelserver.ServerOptions) string {
	if t, ok := s.Engine.Timer.(interface{ Source() string }); ok {
		return t.Source()
	}
	return "each request's own draw"
}
