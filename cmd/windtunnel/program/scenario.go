package program

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/imports"
	"github.com/windtunnel/windtunnel/core/load/workload/trace"
	resolved "github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/exports"
	"github.com/windtunnel/windtunnel/scenario/schema"
	"go.yaml.in/yaml/v3"
)

type scenarioCmd struct {
	Check  scenarioCheckCmd  `cmd:"" help:"Report all mistakes in scenario files."`
	Schema scenarioSchemaCmd `cmd:"" help:"Print the JSON Schema that editors use."`
	New    scenarioNewCmd    `cmd:"" help:"Write a commented scenario to start from."`
	Show   scenarioShowCmd   `cmd:"" help:"Print the embedded scenario, to start your own from."`
	Import imports.Cmd       `cmd:"" help:"Make a scenario of a cluster's files, or of another load generator's configuration."`
	Export scenarioExportCmd `cmd:"" help:"Write the requests of a scenario as a trace for other tools."`
}

type scenarioCheckCmd struct {
	Files []string `arg:"" name:"scenario.yaml" help:"The scenarios to check."`
}

func (c *scenarioCheckCmd) Help() string {
	return `Prints every mistake, as file:line:column: field: what was found; what was expected.

Examples:
  windtunnel scenario check mine.yaml
  windtunnel scenario check examples/*.yaml`
}

func (c *scenarioCheckCmd) Run(o *outside) error {
	var failed error
	for _, file := range c.Files {
		s, err := loadScenario(o, file)
		if err != nil {
			printError(o, err)
			failed = errors.Join(failed, err)
			continue
		}
		requests := terminal.Counted(s.Workload.Requests, "request")
		if s.Workload.Uncounted() {
			requests = "requests for " + s.Workload.Duration.String()
		}
		fmt.Fprintf(o.Stdout, "%s: fine (%s; %s)\n", file, terminal.Counted(len(s.Pools), "pool"), requests)
	}
	if failed != nil {
		return exit.Reported(exit.Input, failed)
	}
	return nil
}

type scenarioSchemaCmd struct{}

func (c *scenarioSchemaCmd) Help() string {
	return `Put the schema beside your scenarios and name it in their first line. Editors with a YAML language server
then complete and check as you type.

Examples:
  windtunnel scenario schema > scenario.schema.json
  # yaml-language-server: $schema=./scenario.schema.json`
}

func (c *scenarioSchemaCmd) Run(o *outside) error {
	text, err := schema.JSON()
	if err != nil {
		return err
	}
	_, err = o.Stdout.Write(text)
	return err
}

type scenarioNewCmd struct {
	Kind string `arg:"" enum:"plain,pd,kv-aware,autoscaling,held" help:"plain, pd, kv-aware, autoscaling or held."`
	File string `short:"o" placeholder:"FILE" help:"Write to FILE, which must not exist. Left out: standard output."`
}

func (c *scenarioNewCmd) Help() string {
	return `Writes a scenario whose comments explain each field: plain requests to one pool, prefill and decode on
different servers (pd), routing by KV cache (kv-aware), autoscaling, or the held-open request of document
000 (held).

Examples:
  windtunnel scenario new plain > mine.yaml
  windtunnel scenario new pd > pd.yaml`
}

func (c *scenarioNewCmd) Run(o *outside) error {
	to := o.Stdout
	if c.File != "" {
		f, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return exit.Errorf(exit.Usage, "--file: found %s; expected a file that does not exist", c.File)
		}
		if err != nil {
			return exit.With(exit.Input, err)
		}
		defer f.Close()
		to = f
	}
	_, err := to.Write(scenario.Template(c.Kind))
	return err
}

type scenarioShowCmd struct {
	loadFlags
	setFlag
	Resolved bool   `help:"Print what is played: every pool, server, picker, port and incident with all defaults and derived values filled in."`
	Output   string `short:"o" enum:"yaml,json" default:"yaml" help:"yaml, or json, which is a scenario, too."`
}

func (c *scenarioShowCmd) Help() string {
	return `Prints the scenario that run, sim and capacity play for the same arguments: a file, the embedded scenario,
or one llm-d pool, with the fields that flags set. With --resolved, it prints the plan that they execute.

Examples:
  windtunnel scenario show > mine.yaml                 # the embedded scenario
  windtunnel sim mine.yaml
  windtunnel scenario show --model llama-3.1-8b --accelerator H200 --replicas 8 --rate 40 > mine.yaml
  windtunnel scenario show --resolved mine.yaml
  windtunnel scenario show --resolved mine.yaml --output json | jq '.pools[0].servers[].name'`
}

func (c *scenarioShowCmd) Run(o *outside) error {
	if !c.Resolved {
		return c.text(o)
	}
	s, err := c.scenarioWith(o, c.Set)
	if err != nil {
		return err
	}
	p, err := s.Plan()
	if err != nil {
		return exit.With(exit.Input, err)
	}
	return resolved.Write(o.Stdout, p, c.Output == "json")
}

// text prints the scenario's text.
func (c *scenarioShowCmd) text(o *outside) error {
	if c.Recording != "" {
		return exit.Errorf(exit.Usage, "--recording: a scenario's text cannot have its requests; expected "+
			"--resolved, or sim, capacity, sweep or tune with --recording")
	}
	settings, err := c.settings(nil, c.Set, true)
	if err != nil {
		return err
	}
	v, err := search.ReadVariant(o.Stdin, c.file(), settings, scenario.Overrides{})
	if err != nil {
		return err
	}
	text, err := scenario.WithSettings(v.File, v.Text, settings)
	if err == nil && c.Output == "json" {
		var fields any
		if err = yaml.Unmarshal(text, &fields); err == nil {
			return writeJSON(o.Stdout, fields)
		}
	}
	if err == nil {
		_, err = o.Stdout.Write(text)
	}
	return err
}

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
