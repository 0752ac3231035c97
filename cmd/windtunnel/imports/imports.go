// Package imports is the command windtunnel scenario import: it finds out what files are, and prints their scenario.
// Begin with Cmd.
package imports

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/load/workload/trace"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/live/prometheus"
	"github.com/windtunnel/windtunnel/report/diagnosis"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/imports"
)

// Metrics are the flags of a Prometheus server.
type Metrics struct {
	Prometheus string        `placeholder:"URL" help:"Read metrics from this Prometheus, such as http://127.0.0.1:9090."`
	For        time.Duration `default:"1h" help:"With --prometheus, how much of the time until now counts."`
	Step       time.Duration `default:"1m" help:"With --prometheus, how long a rate of requests holds."`
}

// Cmd is the command with its flags.
type Cmd struct {
	Format string `placeholder:"FORMAT" enum:",inference-perf,guidellm,vllm-bench,aiperf,priority-mix" default:"" help:"The load generator of a configuration; left out, the files are those of a cluster."`
	Load   int    `help:"The number of the load to take, of several in a row." placeholder:"N"`

	LogFormat string `placeholder:"FILE" help:"The json_format of Envoy's access log, as JSON, where the names of its fields do not say what they are."`
	Metrics

	Files []string `arg:"" optional:"" name:"file" help:"A configuration of a load generator, or the files of a cluster."`
}

// Help returns the text behind the usage.
func (c *Cmd) Help() string {
	return `Prints a scenario. Its first lines list what differs from the files, and what they leave open.

Files of a cluster are known by how they begin, and several give one scenario: Kubernetes objects (kubectl get
deploy,svc,cm,inferencepool,httproute,gateway -o yaml), a trace of requests (OpenTelemetry's spans, Envoy's access log,
or one of docs/traces.md), and saved answers of Prometheus (docs/your-cluster.md says to which query). The scenario
names objects and traces by their paths.

Formats of --format: inference-perf's configuration; the arguments of guidellm, vllm-bench or aiperf, as a command line
or as a file with a field for each; and priority-mix of llm-d-benchmark, whose profiles are all of these.

Examples:
  windtunnel scenario import objects.yaml spans.json > mine.yaml
  windtunnel scenario import objects.yaml --prometheus http://127.0.0.1:9090 --for 3h > mine.yaml
  windtunnel scenario import --format inference-perf examples/workloads/inference-perf.yaml > mine.yaml
  windtunnel sim mine.yaml`
}

// Run prints the scenario.
func (c *Cmd) Run(o *console.Console) error {
	read := c.cluster
	if c.Format != "" {
		read = c.configuration
	}
	s, err := read(o)
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.Trace); s.Trace != "" && err != nil {
		fmt.Fprintf(o.Stderr, "windtunnel: note: %s does not exist here, and the scenario needs it\n", s.Trace)
	} else if _, err := scenario.Parse("the scenario that import makes", s.Text); err != nil {
		return exit.With(exit.Input, err)
	}
	_, err = o.Stdout.Write(s.Text)
	return err
}

// configuration reads the configuration of a load generator.
func (c *Cmd) configuration(*console.Console) (*imports.Scenario, error) {
	if len(c.Files) != 1 || c.Prometheus != "" || c.LogFormat != "" {
		return nil, exit.Errorf(exit.Usage, "--format reads one configuration; expected one file, and neither "+
			"--prometheus nor --log-format")
	}
	text, err := files.Read(c.Files[0], strictyaml.MaxBytes)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	s, err := imports.Read(c.Format, text, c.Load)
	if err != nil {
		return nil, exit.Errorf(exit.Input, "%s: %w", c.Files[0], err)
	}
	return s, nil
}

// maxMetrics limits a saved answer of Prometheus, in bytes.
const maxMetrics = 64 << 20

// cluster reads the files and metrics of a cluster.
func (c *Cmd) cluster(o *console.Console) (*imports.Scenario, error) {
	x := imports.Cluster{}
	add := func(list []diagnosis.Series) {
		for _, s := range list {
			x.Metrics = append(x.Metrics, imports.Series(s))
		}
	}
	one := func(to *string, path, what string) error {
		if *to != "" {
			return exit.Errorf(exit.Usage, "%s and %s are both %s; expected one", *to, path, what)
		}
		*to = path
		return nil
	}
	for _, path := range c.Files {
		info, err := os.Stat(path)
		if err != nil {
			return nil, exit.With(exit.Input, err)
		}
		k := files.KindOfFile(path)
		switch {
		case k.Is == files.Objects || info.IsDir():
			err = one(&x.Manifests, path, "Kubernetes objects: put them into one file or directory")
		case k.Trace != "" || k.Is == "" && c.LogFormat != "":
			x.TraceFormat, err = k.Trace, one(&x.Trace, path, "traces")
		case k.Is == files.Metrics:
			var text []byte
			if text, err = files.Read(path, maxMetrics); err != nil {
				return nil, exit.With(exit.Input, err)
			}
			var list []diagnosis.Series
			if list, err = prometheus.Parse(text); err != nil {
				return nil, exit.Errorf(exit.Input, "%s: %w", path, err)
			}
			add(list)
		default:
			return nil, exit.Errorf(exit.Input, "%s: found %s; expected Kubernetes objects, a trace (OpenTelemetry's "+
				"spans, Envoy's access log, …), an answer of Prometheus, or --format with a load generator's "+
				"configuration", path, cmp.Or(k.Is, "none of the files that this command reads"))
		}
		if err != nil {
			return nil, err
		}
	}
	if c.LogFormat != "" {
		text, err := files.Read(c.LogFormat, strictyaml.MaxBytes)
		if err != nil {
			return nil, exit.With(exit.Input, err)
		}
		if x.LogFormat, x.TraceFormat = strings.TrimSpace(string(text)), trace.Envoy; x.Trace == "" {
			return nil, exit.Errorf(exit.Usage, "--log-format is for Envoy's access log, and no file is a trace")
		}
	}
	if c.Prometheus != "" {
		list, err := c.ask(o)
		if err != nil {
			return nil, err
		}
		add(list)
	}
	if len(c.Files) == 0 && c.Prometheus == "" {
		return nil, exit.Errorf(exit.Usage, "no file; expected Kubernetes objects, a trace, answers of Prometheus or "+
			"--prometheus, or --format with a load generator's configuration")
	}
	s, err := x.Scenario()
	return s, exit.With(exit.Input, err)
}

// ask returns the series of a Prometheus server.
func (c *Metrics) ask(o *console.Console) ([]diagnosis.Series, error) {
	if c.Step < time.Second || c.For < 2*c.Step || c.For/c.Step > 10_000 {
		return nil, exit.Errorf(exit.Usage, "--for is %s and --step %s; expected a step of 1s or more, 2 to 10,000 "+
			"times", c.For, c.Step)
	}
	server, err := prometheus.New(c.Prometheus)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--prometheus: %w", err)
	}
	ctx, stop := o.Context()
	defer stop()
	now := time.Now()
	list, err := server.Range(ctx, imports.Query(), now.Add(-c.For), now, c.Step)
	return list, exit.With(exit.Broken, err)
}
