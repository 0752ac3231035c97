// Command windtunnel-k8s has the parts of windtunnel that speak to an API server, and the parts that run
// beside it, so that one image holds every part. Its arguments choose the part.
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/kubernetes/controller"
	"github.com/windtunnel/windtunnel/kubernetes/gateway"
	"github.com/windtunnel/windtunnel/kubernetes/jobs"
	"github.com/windtunnel/windtunnel/kubernetes/mirror"
)

// commands are the parts.
type commands struct {
	Sweep    jobs.Sweep    `cmd:"" help:"Play a sweep on a cluster, as an Indexed Job."`
	Capacity jobs.Capacity `cmd:"" help:"Search the capacity on a cluster, as an Indexed Job."`
	Tune     jobs.Tune     `cmd:"" help:"Search the best configuration on a cluster, as an Indexed Job."`
	Load     jobs.Load     `cmd:"" help:"Send requests from several pods, as an Indexed Job."`

	Controller controller.Command `cmd:"" help:"Make the workloads of LocalModels, InferenceModels and InferencePools."`

	ModelServer parts.ModelServer `cmd:"" name:"modelserver" help:"Run simulated model servers, with vLLM's flags."`
	EPP         mirror.EPP        `cmd:"" help:"Run the endpoint picker, with the real EPP's flags."`
	Sidecar     mirror.Sidecar    `cmd:"" help:"Run the routing sidecar, with pd-sidecar's flags."`
	Gateway     gateway.Command   `cmd:"" help:"Serve Gateways with a real Envoy, and write their status."`
	BodyRouter  mirror.BodyRouter `cmd:"" name:"body-based-router" help:"Run the body-based router, with the real one's plug-ins."`
	KVManager   mirror.KVManager  `cmd:"" help:"Run the KV-cache manager: KV events in, scores out."`
	Predictor   parts.Predictor   `cmd:"" help:"Run the latency predictor, with the real one's HTTP."`
	Version     versionCmd        `cmd:"" help:"Print the version."`
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(o *console.Console) error {
	_, err := fmt.Fprintln(o.Stdout, "windtunnel-k8s", version.Text())
	return err
}

func main() { os.Exit(run(os.Args[1:], console.New())) }

// run runs a command line and returns the exit code.
func run(args []string, o *console.Console) int {
	var c commands
	parser, err := kong.New(&c, kong.Name("windtunnel-k8s"), kong.Bind(o), kong.Resolvers(o.Flags()),
		kong.Description("windtunnel's parts for Kubernetes (docs/kubernetes.md)."), kong.Writers(o.Stdout, o.Stderr))
	if err == nil {
		var parsed *kong.Context
		if parsed, err = parser.Parse(parts.Args(args, o)); err != nil {
			err = exit.With(exit.Usage, err)
		} else {
			err = parsed.Run()
		}
	}
	if err == nil {
		return int(exit.OK)
	}
	if !exit.IsReported(err) {
		fmt.Fprintln(o.Stderr, "windtunnel-k8s:", err)
		if hint := exit.HintOf(err); hint != "" {
			fmt.Fprintln(o.Stderr, " ", hint)
		}
	}
	return int(exit.Of(err))
}
