package program

import (
	"cmp"
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/calibrate"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/live/client"
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
		Progress: func(percent int, probe string) { fmt.Fprintf(o.Stderr, "%3d %%  %s\n", percent, probe) }})
	if out == nil {
		return err
	}
	return cmp.Or(out.Write(o.Stdout, o.Columns), err)
}
