package controller

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/kubernetes/mirror"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Command is windtunnel-k8s controller.
type Command struct {
	mirror.Cluster
	Namespace   string        `short:"n" placeholder:"NAME" help:"Only this namespace; without it all."`
	Image       string        `required:"" placeholder:"IMAGE" help:"windtunnel's own image, which the made pods run."`
	ModelServer string        `name:"model-server-image" placeholder:"IMAGE" help:"A real vLLM instead of simulated model servers."`
	Sidecar     string        `name:"sidecar-image" placeholder:"IMAGE" help:"A real routing sidecar."`
	Period      time.Duration `default:"15s" help:"How often pods report for the status of their pools, from 1s to 1h."`
	Metrics     string        `name:"metrics-address" placeholder:"IP:PORT" help:"Serve /metrics there."`
	Verbose     bool          `short:"v" help:"Log also what is no trouble."`
}

// Help returns the description of the command.
func (Command) Help() string {
	return `Makes what document 003's controller makes (docs/documents.md#document-003): Deployments, Services and
PodDisruptionBudgets of the LocalModels, InferenceModels and InferencePools of serving.kserve.io, by the rules of
windtunnel up, and writes their status. A pool whose selector already selects pods of others gets no further ones.
What is made belongs to its model and goes with it.

Examples:
  windtunnel-k8s controller --image ghcr.io/windtunnel/windtunnel-k8s:v1.0.0
  windtunnel-k8s controller --kubeconfig ~/.kube/config -n llm-serving --image windtunnel-k8s:dev
  windtunnel-k8s controller --image windtunnel-k8s:dev --model-server-image vllm/vllm-openai:v0.19.0`
}

// Run reconciles until an interruption.
func (c *Command) Run(o *console.Console) error {
	if c.Period < time.Second || c.Period > time.Hour {
		return exit.Errorf(exit.Usage, "--period: found %v; expected from 1s to 1h", c.Period)
	}
	level := slog.LevelInfo
	if c.Verbose {
		level = slog.LevelDebug
	}
	client, host, err := c.Client()
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	fmt.Fprintf(o.Stderr, "windtunnel-k8s controller: watching %s\n", host)
	metrics, pages := mirror.NewMetrics(), serve.Group{Log: o.Logger(level)}
	if c.Metrics != "" {
		if _, err := pages.Serve("/metrics", c.Metrics, serve.Pages(metrics.Page(), pages.Log)); err != nil {
			return exit.With(exit.Environment, err)
		}
		defer func() { _ = pages.Stop(ctx) }() // no reader matters any more
	}
	return New(Options{Client: client, Namespace: c.Namespace, Period: c.Period, Metrics: metrics, Log: o.Logger(level),
		Images: Images{Own: c.Image, Server: c.ModelServer, Sidecar: c.Sidecar}}).Run(ctx)
}
