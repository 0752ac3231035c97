package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/imports"
	resolved "github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/schema"
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
