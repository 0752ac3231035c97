// Package calibrate is the command windtunnel calibrate, which fits step times to a real server or to results of
// benchmarks. Begin with Cmd.
package calibrate

import (
	"cmp"
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/calibrate"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/internal/silicon"
	"github.com/windtunnel/windtunnel/live/client"
)

// Cmd is the command with its flags.
type Cmd struct {
	Endpoint    string   `placeholder:"HOST:PORT|URL" help:"The model server to measure, which should be idle."`
	Results     []string `placeholder:"FILE" sep:"none" help:"Fit to these benchmark results instead of an endpoint (repeatable)."`
	Model       string   `placeholder:"NAME" help:"Ask for this model. Left out: the first that the server serves, or the one in the results."`
	APIKey      string   `placeholder:"KEY" help:"Key for its API. Left out: VLLM_API_KEY or OPENAI_API_KEY."`
	File        string   `placeholder:"FILE" help:"Where to write. Left out: step-times.csv, or with --results calibration.json."`
	Force       bool     `help:"Overwrite FILE, and measure a server that is busy."`
	Accelerator string   `placeholder:"NAME" help:"The server's hardware, for the file, or where the results do not name it."`

	TP          int    `name:"tensor-parallel-size" placeholder:"N" help:"Accelerators per layer, likewise."`
	DP          int    `name:"data-parallel-size" placeholder:"N" help:"Engines of one server, where the results do not say it."`
	Precision   string `placeholder:"bf16|fp8|fp4|int4" help:"Precision of the weights, where the results do not say it."`
	VLLMVersion string `name:"vllm-version" placeholder:"VERSION" help:"Version of vLLM, where the results do not say it."`
	Guesses     bool   `hidden:"" help:"Begin the fit at guesses and not at windtunnel's own parameters."`

	MaxPrompt int   `default:"8192" placeholder:"N" help:"Longest prompt in tokens (vLLM's --max-num-batched-tokens)."`
	MaxBatch  int   `default:"64" placeholder:"N" help:"The most requests at once."`
	Contexts  []int `default:"128,512,2048,4096,8192" placeholder:"N,N,…" help:"Prompt lengths of decoding requests."`
	Repeats   int   `default:"5" placeholder:"N" help:"How often each prompt length is measured."`
	Traffic   int   `default:"100" placeholder:"N" help:"Requests at each of three loads that check the table; 0 for none."`
}

// Help returns the text behind the usage.
func (c *Cmd) Help() string {
	return `Measures a real model server through OpenAI's API, and writes a file of step times for a scenario:
modelServer: {stepTimes: step-times.csv}. It sends prompts of random token ids of growing length, one at a
time, then batches of growing size and context, then prompts that join batches. Last it sends requests that
the table is not made of, to report the table's error: lengths and batches in between, and Poisson arrivals at
30, 60 and 80 % of the rate that the server sustains by the table. Ctrl-C ends it early: what was measured
until then is printed and written, if it is enough.

With --results it fits the parameters of the step times and of the API server to results that a benchmark tool
wrote: vllm bench serve --save-result, GuideLLM, inference-perf, AIPerf, InferenceMAX, llm-d-benchmark's reports 0.1
and 0.2, or a CSV file with the columns model, accelerator, precision, tensor_parallel, input_tokens, output_tokens,
concurrency, ttft_ms and tpot_ms. It plays the same load, and writes a file for a scenario: modelServer:
{calibration: calibration.json}. It prints which parameters the results determine, and the errors at every fifth
result by a fit to the others.

Examples:
  windtunnel calibrate --endpoint 127.0.0.1:8000
  windtunnel calibrate --endpoint 10.0.0.7:8000 --accelerator H100 --max-batch 256 --file h100.csv
  windtunnel calibrate --endpoint 127.0.0.1:8000 --max-prompt 2048 --contexts 128,1024 --max-batch 16   # quicker
  windtunnel calibrate --results a.json --results b.json --accelerator H100 --tensor-parallel-size 2`
}

// Run measures or fits, and writes the file.
func (c *Cmd) Run(o *console.Console) error {
	if (c.Endpoint == "") == (len(c.Results) == 0) {
		return exit.Errorf(exit.Usage, "expected one of --endpoint and --results")
	}
	if len(c.Results) > 0 {
		return c.results(o)
	}
	c.File, c.Accelerator, c.TP = cmp.Or(c.File, "step-times.csv"), cmp.Or(c.Accelerator, "measured"), cmp.Or(c.TP, 1)
	key := c.APIKey
	for _, name := range []string{"VLLM_API_KEY", "OPENAI_API_KEY"} {
		if v, ok := o.Env(name); ok && key == "" {
			key = v
		}
	}
	ctx, stop := o.Context()
	defer stop()
	out, err := search.Calibrate(ctx, search.CalibrateOptions{
		Prober:   client.NewProber(c.Endpoint, key, uint64(time.Now().UnixNano())),
		Endpoint: c.Endpoint, Model: c.Model, File: c.File, Force: c.Force, Accelerator: c.Accelerator, TP: c.TP,
		Limits: calibrate.Limits{MaxPrompt: c.MaxPrompt, MaxBatch: c.MaxBatch, Contexts: c.Contexts, Repeats: c.Repeats,
			Traffic: c.Traffic},
		Begin: func(s calibrate.Server) {
			fmt.Fprintf(o.Stdout, "measuring %s at %s; a request that computes nothing takes %s\n", s.Model, c.Endpoint,
				s.Overhead.Round(time.Microsecond))
		},
		Progress: c.progress(o)})
	if out == nil {
		return err
	}
	return cmp.Or(out.Write(o.Stdout, o.Columns), err)
}

// results fits a calibration to benchmark results.
func (c *Cmd) results(o *console.Console) error {
	ctx, stop := o.Context()
	defer stop()
	out, err := search.CalibrateResults(ctx, search.CalibrateResultsOptions{Results: c.Results,
		Defaults: silicon.Defaults{Model: c.Model, Accelerator: c.Accelerator, Precision: c.Precision,
			TensorParallel: c.TP, DataParallel: c.DP, Version: c.VLLMVersion},
		File: cmp.Or(c.File, "calibration.json"), Force: c.Force, Guesses: c.Guesses, Progress: c.progress(o)})
	if err != nil {
		return err
	}
	return out.Write(o.Stdout)
}

func (c *Cmd) progress(o *console.Console) func(percent int, what string) {
	return func(percent int, what string) { fmt.Fprintf(o.Stderr, "%3d %%  %s\n", percent, what) }
}
