// Package jobs plays searches and load on a cluster: the commands sweep, capacity, tune and load of windtunnel-k8s.
//
// Each index of an Indexed Job plays a share of the runs (search.Share) into a volume, a ConfigMap has the scenario and
// its files, and a second Job of one pod collects. The command prints the collected result as the same command of
// windtunnel prints its own. Begin with play.
package jobs

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/program"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
)

// Sweep is windtunnel-k8s sweep.
type Sweep struct {
	program.Sweep
	Flags
}

// Help returns the description of the command.
func (c *Sweep) Help() string { return help("sweep", "--vary workload.rate=10,20,40") }

// Run plays the sweep.
func (c *Sweep) Run(o *console.Console) error { return c.play(o, &c.Sweep) }

// Capacity is windtunnel-k8s capacity.
type Capacity struct {
	program.Capacity
	Flags
}

// Help returns the description of the command.
func (c *Capacity) Help() string { return help("capacity", "--objective ttft.p99=200ms") }

// Run searches.
func (c *Capacity) Run(o *console.Console) error { return c.play(o, &c.Capacity) }

// Tune is windtunnel-k8s tune.
type Tune struct {
	program.Tune
	Flags
	source
}

// Help returns the description of the command.
func (c *Tune) Help() string {
	return help("tune", "--vary weights") + `
  windtunnel-k8s tune --from-cluster --namespace prod --prometheus http://127.0.0.1:9090

With --from-cluster, the search runs here, and not in pods. The command lists a namespace's objects and asks
Prometheus once, and writes nothing to the cluster. docs/kubernetes.md has more.`
}

// Run searches.
func (c *Tune) Run(o *console.Console) error {
	switch {
	case c.FromCluster:
		return c.source.tune(o, &c.Tune, &c.Flags)
	case c.Prometheus+c.Save != "":
		return exit.Errorf(exit.Usage, "--prometheus and --save: found no --from-cluster; expected it beside them")
	}
	return c.play(o, &c.Tune)
}

// Load is windtunnel-k8s load.
type Load struct {
	program.Load
	Flags
}

// Help returns the description of the command.
func (c *Load) Help() string { return help("load", "--target gateway:80 --rate 5000 -n 100000") }

// Run sends the load. All clients send at once, and none of them can begin again.
func (c *Load) Run(o *console.Console) error {
	c.together = true
	return c.play(o, &c.Load)
}

func help(command, flags string) string {
	return fmt.Sprintf(
		`Plays windtunnel %[1]s on a cluster, and prints what windtunnel %[1]s prints. Each index of an Indexed Job
plays a share of the runs and writes its results, Parquet among them, to a volume. Kubernetes retries an index
that fails. The command follows the Job; the same command again follows it on, or continues after a failure with
the results that are there. Everything is checked before anything is created. docs/kubernetes-jobs.md has more.

Examples:
  windtunnel-k8s %[1]s mine.yaml %[2]s
  windtunnel-k8s %[1]s mine.yaml %[2]s --indexes 64 --parallel 16 --access-mode ReadWriteMany
  windtunnel-k8s %[1]s mine.yaml %[2]s --dry-run | kubectl diff -f -
  windtunnel %[1]s mine.yaml %[2]s --on kubernetes         # starts windtunnel-k8s`,
		command,
		flags,
	)
}

// play checks a command, and plays it on the cluster.
func (f *Flags) play(o *console.Console, c program.Divided) error {
	inputs, shares, err := c.Check(o)
	if err != nil {
		return err
	}
	if err := f.check(shares); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	t, err := gather(dir, own(o.Args), inputs)
	if err != nil {
		return err
	}
	made := f.objects(t)
	if f.DryRun {
		return made.print(o)
	}
	a, err := f.client()
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	r := &run{api: a, out: o, made: made, keep: f.Keep, seen: map[string]bool{}}
	file, err := r.play(ctx)
	if file == "" {
		return err
	}
	defer os.Remove(file)
	if printed := c.Collected(o, file); err == nil {
		err = printed
	}
	return err
}

// client returns a client of the API server.
func (f *Flags) client() (*apiclient.Client, error) {
	config, err := apiclient.Config(f.Kubeconfig)
	if err != nil {
		return nil, err
	}
	a, err := apiclient.New(config)
	return a, exit.With(exit.Environment, err)
}

// print writes the objects as YAML.
func (x *objects) print(o *console.Console) error {
	list := []any{x.Files, x.Job, x.collector()}
	if x.Claim != nil {
		list = append([]any{x.Claim}, list...)
	}
	for _, object := range list {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(o.Stdout, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
