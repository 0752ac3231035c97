package program

import (
	"errors"
	"fmt"

	resolved "github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/schema"
)

type scenarioCmd struct {
	Check  scenarioCheckCmd  `cmd:"" help:"Report all mistakes in scenario files."`
	Schema scenarioSchemaCmd `cmd:"" help:"Print the JSON Schema that editors use."`
	Show   scenarioShowCmd   `cmd:"" help:"Print the embedded scenario, to start your own from."`
	Import scenarioImportCmd `cmd:"" help:"Convert another load generator's configuration to a scenario."`
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
		requests := count(s.Workload.Requests, "request")
		if s.Workload.Uncounted() {
			requests = "requests for " + s.Workload.Duration.String()
		}
		fmt.Fprintf(o.Stdout, "%s: fine (%s; %s)\n", file, count(len(s.Pools), "pool"), requests)
	}
	if failed != nil {
		return exit.Told(exit.Input, failed)
	}
	return nil
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
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

type scenarioShowCmd struct {
	File     string   `arg:"" optional:"" name:"scenario.yaml" help:"The scenario, or - for standard input; the embedded one if left out."`
	Resolved bool     `help:"Print what is played: every pool, server, picker, port and incident with all defaults and derived values filled in."`
	Output   string   `enum:"yaml,json" default:"yaml" help:"How --resolved prints it."`
	Set      []string `sep:"none" placeholder:"PATH=VALUE" help:"With --resolved, give a field of the file another value."`
}

func (c *scenarioShowCmd) Help() string {
	return `With --resolved, what is printed is the plan that run and sim execute.

Examples:
  windtunnel scenario show > mine.yaml
  windtunnel sim mine.yaml
  windtunnel scenario show --resolved mine.yaml
  windtunnel scenario show --resolved mine.yaml --output json | jq '.pools[0].servers[].name'`
}

func (c *scenarioShowCmd) Run(o *outside) error {
	if !c.Resolved {
		if c.File != "" || len(c.Set) > 0 {
			return exit.With(exit.Usage,
				errors.New("a file or --set without --resolved; expected --resolved beside it"))
		}
		_, err := o.Stdout.Write(scenario.EmbeddedText())
		return err
	}
	s, err := scenarioOrEmbedded(o, c.File, c.Set)
	if err != nil {
		return err
	}
	p, err := s.Plan()
	if err != nil {
		return exit.With(exit.Input, err)
	}
	return resolved.Write(o.Stdout, p, c.Output == "json")
}
