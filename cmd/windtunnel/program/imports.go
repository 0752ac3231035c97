package program

import (
	"bufio"
	"slices"

	"github.com/windtunnel/windtunnel/core/load/workload/trace"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/scenario/exports"
)

type scenarioExportCmd struct {
	To    string `required:"" placeholder:"FORMAT" enum:"azure,mooncake,burstgpt,bailian,sharegpt,inference-perf,guidellm" help:"The format of a trace, or a load generator."`
	URL   string `default:"http://127.0.0.1:8081" placeholder:"URL" help:"Where a load generator sends its requests."`
	Block int    `default:"512" help:"How many tokens a hash id of mooncake stands for."`
	File  string `arg:"" name:"scenario.yaml" help:"The scenario."`
}

func (c *scenarioExportCmd) Help() string {
	return `Writes a trace, or the configuration of a load generator that sends similar requests.

azure, mooncake, burstgpt, bailian and sharegpt are traces: a line for each request with its time and the
lengths of prompt and answer, in tokens of four characters. mooncake and bailian have hash ids of the prompts,
too; sharegpt has the prompts themselves, and no times. Times are known of an open loop (rate, stages), and
prompts of a conversation's first request. inference-perf reads azure (trace_replay); GuideLLM, AIPerf, vLLM
and Dynamo read mooncake; vLLM's benchmark reads burstgpt, bailian and sharegpt.

inference-perf and guidellm are load generators. What their configuration cannot express is printed.

Examples:
  windtunnel scenario export --to mooncake examples/pd-apart.yaml > mine.jsonl
  windtunnel scenario export --to azure examples/classes.yaml > mine.csv
  windtunnel scenario export --to inference-perf examples/conversations.yaml > inference-perf.yaml`
}

func (c *scenarioExportCmd) Run(o *outside) error {
	s, err := loadScenario(o, c.File)
	if err != nil {
		return err
	}
	if c.Block < 1 || c.Block > 1<<16 {
		return exit.Errorf(exit.Usage, "--block is %d; expected 1 to %d", c.Block, 1<<16)
	}
	out := bufio.NewWriter(o.Stdout)
	var notes []string
	if slices.Contains(exports.Formats(), c.To) {
		var text []byte
		text, notes, err = exports.Write(c.To, s, c.URL)
		_, _ = out.Write(text) // Flush returns the error
	} else {
		notes, err = trace.Write(out, s.Generator(), trace.WriteOptions{Format: c.To, Block: c.Block})
	}
	if err != nil {
		return exit.Errorf(exit.Input, "%s: %w", c.File, err)
	}
	for _, n := range notes {
		note(o, n)
	}
	return out.Flush()
}
