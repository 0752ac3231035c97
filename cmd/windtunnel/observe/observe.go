// Package observe is the command that writes configuration for Prometheus and Grafana, and starts them.
package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/ports"
	"github.com/windtunnel/windtunnel/internal/cachedir"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/live/monitoring"
	"github.com/windtunnel/windtunnel/report/observe"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Cmd is the command with its flags.
type Cmd struct {
	Dir            string        `arg:"" name:"folder" help:"Where to write. Existing files are written again."`
	Addresses      string        `placeholder:"FILE" help:"Where the parts listen, by run --addresses-file."`
	Interval       time.Duration `default:"15s" help:"How often Prometheus scrapes, from 1s to 15s."`
	Start          bool          `help:"Start Prometheus and Grafana, where they are installed, until Ctrl-C."`
	PrometheusPath string        `placeholder:"FILE" fromenv:"PROMETHEUS_PATH" help:"The Prometheus to start, else one on PATH."`
	GrafanaPath    string        `placeholder:"FILE" fromenv:"GRAFANA_PATH" help:"The Grafana to start, else one on PATH."`
	PrometheusPort int           `default:"9091" help:"Port of Prometheus, 0 for a free one."`
	GrafanaPort    int           `default:"3000" help:"Port of Grafana, 0 for a free one."`
}

// Help returns the description of the command.
func (Cmd) Help() string {
	return `Writes Prometheus' configuration with the jobs of document 003 (docs/documents.md#document-003), recording
and alerting rules, and Grafana's dashboards with their provisioning. docs/observe.md describes each file.
kubernetes.yml is for a cluster, prometheus.yml for this machine. --addresses takes the output of up --output
json, too, and - for standard input; without it the folder's targets/ stays as it is. Prometheus' usual port
9090 is the endpoint picker's.

Examples:
  windtunnel run --keep --addresses-file at.json &
  windtunnel observe monitoring --addresses at.json --start     # what is installed, until Ctrl-C
  windtunnel observe monitoring --addresses at.json             # again, of another run: a running Prometheus follows
  windtunnel observe monitoring                                 # for a cluster: kubernetes.yml, rules, dashboards`
}

// Run writes the folder.
func (c *Cmd) Run(o *console.Console) error {
	if c.Interval < time.Second || c.Interval > 15*time.Second || c.Interval%time.Second != 0 {
		return exit.Errorf(exit.Usage, "--interval: found %v; expected whole seconds from 1s to 15s", c.Interval)
	}
	if err := ports.Check(map[string]*int{"--prometheus-port": &c.PrometheusPort,
		"--grafana-port": &c.GrafanaPort}); err != nil {
		return err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return exit.With(exit.Input, err)
	}
	targets, err := c.targets(o, dir)
	if err != nil {
		return exit.With(exit.Input, err)
	}
	options := observe.Options{Interval: c.Interval, Prometheus: fmt.Sprintf("http://127.0.0.1:%d", c.PrometheusPort),
		Dir: dir, Targets: targets}
	if err := c.write(options); err != nil {
		return err
	}
	for _, job := range observe.Jobs() {
		if n := len(targets[job]); n > 0 {
			fmt.Fprintf(o.Stdout, "%s: %s\n", job, terminal.Counted(n, "target"))
		}
	}
	fmt.Fprintf(o.Stdout, "%d dashboards, %d recording and %d alerting rules are in %s\n", len(observe.Dashboards),
		len(observe.Recordings()), len(observe.Alerts()), c.Dir)
	if !c.Start {
		return nil
	}
	return c.stay(o, options)
}

// targets returns the targets from --addresses. Without the flag, it returns nil if the folder has targets, so that
// they stay.
func (c *Cmd) targets(o *console.Console, dir string) (map[string][]observe.Target, error) {
	if c.Addresses == "" {
		if _, err := os.Stat(filepath.Join(dir, "targets")); err == nil {
			return nil, nil
		}
		return map[string][]observe.Target{}, nil
	}
	text, err := o.Read(c.Addresses, maxAddresses)
	if err != nil {
		return nil, err
	}
	targets, err := observe.ReadTargets(text)
	if err != nil {
		return nil, fmt.Errorf("--addresses %s: %w", c.Addresses, err)
	}
	return targets, nil
}

// maxAddresses bounds the input of --addresses, in bytes.
const maxAddresses = 64 << 20

// write replaces the folder's files, each atomically.
func (c *Cmd) write(options observe.Options) error {
	made, err := observe.Files(options)
	if err != nil {
		return err
	}
	for name, text := range made {
		path := filepath.Join(options.Dir, filepath.FromSlash(name))
		if err := files.Replace(path, text); err != nil {
			return exit.With(exit.Input, err)
		}
	}
	return nil
}

// stay starts the installed programs, and stops them at an interruption.
func (c *Cmd) stay(o *console.Console, options observe.Options) (err error) {
	list, _ := o.Env("PATH")
	installed := func(given string, names ...string) string {
		for _, name := range names {
			if given == "" {
				given = cachedir.LookPath(list, name)
			}
		}
		return given
	}
	prometheus, grafana := installed(c.PrometheusPath, "prometheus"),
		installed(c.GrafanaPath, "grafana", "grafana-server")
	if prometheus == "" {
		return exit.Hint(exit.Environment, errors.New("no prometheus on PATH, so there is nothing to start"),
			"install one, or name it: --prometheus-path; the files are written")
	}
	ctx, stop := o.Context()
	defer stop()
	var running []*monitoring.Program
	defer func() {
		for _, p := range slices.Backward(running) {
			err = errors.Join(err, p.Stop())
		}
	}()
	p, err := monitoring.Prometheus(ctx, prometheus, options.Dir, c.PrometheusPort)
	if err != nil {
		return startedError(ctx, err)
	}
	running = append(running, p)
	fmt.Fprintf(o.Stdout, "Prometheus: %s\n", p.URL)
	home := monitoring.GrafanaHome(grafana)
	switch {
	case grafana == "":
		fmt.Fprintln(o.Stderr, "windtunnel: no grafana on PATH; the dashboards are in "+
			filepath.Join(c.Dir, "grafana", "dashboards"))
	case home == "":
		fmt.Fprintf(o.Stderr, "windtunnel: %s is not started: conf/defaults.ini of its own files is neither above it "+
			"nor in /usr/share/grafana\n", grafana)
	default:
		options.Prometheus = p.URL // a free port is known now
		if err := c.write(options); err != nil {
			return err
		}
		g, err := monitoring.Grafana(ctx, grafana, home, options.Dir, c.GrafanaPort)
		if err != nil {
			return startedError(ctx, err)
		}
		running = append(running, g)
		var at []string
		for _, d := range observe.Dashboards {
			at = append(at, g.URL+"/d/"+d.File)
		}
		fmt.Fprintf(o.Stdout, "Grafana: %s\n", strings.Join(at, " "))
	}
	last := running[len(running)-1]
	select {
	case <-ctx.Done():
		return nil
	case <-p.Done():
		return exit.With(exit.Environment, p.Err())
	case <-last.Done():
		return exit.With(exit.Environment, last.Err())
	}
}

func startedError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exit.Reported(exit.Interrupted, err)
	}
	return exit.With(exit.Environment, err)
}
