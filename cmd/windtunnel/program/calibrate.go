package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/calibrate"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/live/client"
	"github.com/windtunnel/windtunnel/report/terminal"
)

type calibrateCmd struct {
	Endpoint    string `required:"" placeholder:"HOST:PORT|URL" help:"The model server to measure, which should be idle."`
	Model       string `placeholder:"NAME" help:"Ask for this model. Left out: the first that the server serves."`
	APIKey      string `placeholder:"KEY" help:"Key for its API. Left out: VLLM_API_KEY or OPENAI_API_KEY."`
	File        string `default:"step-times.csv" placeholder:"FILE" help:"Where to write the step times."`
	Force       bool   `help:"Overwrite FILE, and measure a server that is busy."`
	Accelerator string `default:"measured" placeholder:"NAME" help:"The server's hardware, for the file."`

	TP        int   `name:"tensor-parallel-size" default:"1" placeholder:"N" help:"Accelerators per layer, for the file."`
	MaxPrompt int   `default:"8192" placeholder:"N" help:"Longest prompt in tokens (vLLM's --max-num-batched-tokens)."`
	MaxBatch  int   `default:"64" placeholder:"N" help:"The most requests at once."`
	Contexts  []int `default:"128,512,2048,4096,8192" placeholder:"N,N,…" help:"Prompt lengths of decoding requests."`
	Repeats   int   `default:"5" placeholder:"N" help:"How often each prompt length is measured."`
	Traffic   int   `default:"100" placeholder:"N" help:"Requests at each of three loads that check the table; 0 for none."`
}

func (c *calibrateCmd) Help() string {
	return `Measures a real model server through OpenAI's API, and writes a file of step times for a scenario:
modelServer: {stepTimes: step-times.csv}. It sends prompts of random token ids of growing length, one at a
time, then batches of growing size and context, then prompts that join batches. Last it sends requests that
the table is not made of, to report the table's error: lengths and batches in between, and Poisson arrivals at
30, 60 and 80 % of the rate that the server sustains by the table. Ctrl-C ends it early: what was measured
until then is printed and written, if it is enough.

Examples:
  windtunnel calibrate --endpoint 127.0.0.1:8000
  windtunnel calibrate --endpoint 10.0.0.7:8000 --accelerator H100 --max-batch 256 --file h100.csv
  windtunnel calibrate --endpoint 127.0.0.1:8000 --max-prompt 2048 --contexts 128,1024 --max-batch 16   # quicker`
}

func (c *calibrateCmd) Run(o *outside) error {
	limits := calibrate.Limits{MaxPrompt: c.MaxPrompt, MaxBatch: c.MaxBatch, Contexts: c.Contexts, Repeats: c.Repeats,
		Traffic: c.Traffic}
	if err := limits.Check(); err != nil {
		return exit.With(exit.Usage, err)
	}
	if c.TP < 1 || c.TP > 64 {
		return exit.Errorf(exit.Usage, "--tensor-parallel-size: found %d; expected 1 to 64", c.TP)
	}
	if _, err := os.Stat(c.File); err == nil && !c.Force {
		return exit.Hint(exit.Usage, fmt.Errorf("%s exists already", c.File),
			"choose another file with --file, or overwrite it with --force")
	}
	// Minutes of measuring are not for a file that cannot be written, nor an empty one for those that fail.
	probe, err := os.CreateTemp(filepath.Dir(c.File), ".windtunnel-*")
	if err != nil {
		return exit.Errorf(exit.Input, "--file %s cannot be written: %w", c.File, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return exit.Errorf(exit.Input, "--file: %w", err)
	}
	if scheme, _, given := strings.Cut(c.Endpoint, "://"); given && scheme != "http" && scheme != "https" {
		return exit.Errorf(exit.Usage, "--endpoint: found %q; expected an address such as 127.0.0.1:8000, or a URL "+
			"that begins with http:// or https://", c.Endpoint)
	}
	key := c.APIKey
	for _, name := range []string{"VLLM_API_KEY", "OPENAI_API_KEY"} {
		if v, ok := o.Env(name); ok && key == "" {
			key = v
		}
	}
	ctx, stop := o.Context()
	defer stop()
	began := time.Now()
	p := client.NewProber(c.Endpoint, key, uint64(began.UnixNano()))
	server, err := p.Discover(ctx, c.Model)
	switch {
	case ctx.Err() != nil:
		return exit.Told(exit.Interrupted, ctx.Err())
	case err != nil:
		return exit.Hint(exit.Environment, fmt.Errorf("endpoint %q: %w", c.Endpoint, err),
			"is it up, and does it speak OpenAI's API?")
	case server.Busy > 0 && !c.Force:
		return exit.Hint(exit.Environment,
			fmt.Errorf("endpoint %q serves %d requests, which would distort the measurement", c.Endpoint,
				server.Busy), "wait until it is idle, or --force")
	}
	limits.KVTokens, limits.ModelLen = server.KVTokens, server.ModelLen
	if server.ModelLen > 0 {
		limits.MaxPrompt = min(limits.MaxPrompt, server.ModelLen-1)
	}
	plan, err := calibrate.New(limits, machine.FromDuration(server.Overhead))
	if err != nil {
		return exit.Errorf(exit.Environment, "endpoint %q: %w", c.Endpoint, err)
	}
	fmt.Fprintf(o.Stdout, "measuring %s at %s; a request that computes nothing takes %s\n", server.Model, c.Endpoint,
		server.Overhead.Round(time.Microsecond))
	probeErr := c.probe(ctx, o, p, plan)
	interrupted := ctx.Err() != nil
	if probeErr != nil && !interrupted {
		return exit.With(exit.Environment, probeErr)
	}
	fit, err := plan.Fit()
	if err != nil && interrupted {
		fmt.Fprintf(o.Stdout, "interrupted: too little was measured to write a table: %v\n", err)
		return exit.Told(exit.Interrupted, ctx.Err())
	}
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	about := calibrate.About{Model: server.Model, System: c.Accelerator, Backend: "measured", TP: c.TP, Lines: []string{
		fmt.Sprintf("Step times of %s, measured at %s by windtunnel %s on %s.", server.Model, c.Endpoint,
			version.Text(), began.UTC().Format(time.RFC3339)),
		fmt.Sprintf("The server is version %s; a request that computes nothing took %s, which is left out.",
			server.Version, server.Overhead.Round(time.Microsecond)),
	}}
	about.Lines = append(about.Lines, fit.Quality()...)
	if interrupted {
		about.Lines = append(about.Lines, "The measurement was interrupted.")
	}
	if err := writeFit(c.File, fit, &about); err != nil {
		return exit.Errorf(exit.Input, "--file: %w", err)
	}
	if err := fit.WriteTable(o.Stdout); err != nil {
		return err
	}
	text := fit.Sentences() + fmt.Sprintf(
		"written to %s; a scenario takes it with pools[].modelServer.stepTimes: %s\n", c.File, c.File)
	if _, err := io.WriteString(o.Stdout, wrapped(text, o.Columns)); err != nil {
		return err
	}
	if interrupted {
		return exit.Told(exit.Interrupted, ctx.Err())
	}
	return nil
}

// probe sends all probes, and prints its progress.
func (c *calibrateCmd) probe(ctx context.Context, o *outside, p *client.Prober, plan *calibrate.Plan) error {
	told := ""
	for {
		x, more := plan.Next()
		if !more {
			return nil
		}
		if x.Name != told {
			told = x.Name
			left, of := plan.Left()
			fmt.Fprintf(o.Stderr, "%3d %%  %s\n", 100*(of-left)/of, x.Name)
		}
		r, err := p.Probe(ctx, x)
		if err == nil {
			err = plan.Took(r)
		}
		if err != nil {
			return err
		}
	}
}

func writeFit(file string, f *calibrate.Fit, a *calibrate.About) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(f.Write(out, a), out.Close())
}

// wrapped is text of lines, each on as many of the terminal's as it takes.
func wrapped(text string, columns int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(terminal.Wrap(strings.TrimSuffix(line, "\n"), 2, columns) + "\n")
	}
	return b.String()
}
