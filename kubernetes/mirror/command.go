package mirror

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
	"github.com/windtunnel/windtunnel/kubernetes/election"
	"github.com/windtunnel/windtunnel/live/epp"
)

// Cluster is the flag of parts that may read an API server.
type Cluster struct {
	Kubeconfig string `placeholder:"FILE" fromenv:"KUBECONFIG" help:"How to reach the API server; without it, as a pod does."`
}

// Client returns a client of the API server, and the server's address.
func (c *Cluster) Client() (dynamic.Interface, string, error) {
	config, err := apiclient.Config(c.Kubeconfig)
	if err != nil {
		return nil, "", err
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // Follow logs and counts what fails
	client, err := dynamic.NewForConfig(config)
	return client, config.Host, exit.With(exit.Environment, err)
}

// Mirror mirrors an API server's objects into a new directory while use runs with it.
func (c *Cluster) Mirror(o *console.Console, from Options, use func(from Options) error) error {
	var host string
	var err error
	if from.Client, host, err = c.Client(); err != nil {
		return err
	}
	if from.Dir, err = os.MkdirTemp("", "windtunnel-objects-*"); err != nil {
		return exit.With(exit.Environment, err)
	}
	defer os.RemoveAll(from.Dir)
	ctx, stop := o.Context()
	defer stop()
	where := "all namespaces"
	if from.Namespace != "" {
		where = "namespace " + from.Namespace
	}
	fmt.Fprintf(o.Stderr, "windtunnel-k8s: objects of %s from %s\n", where, host)
	from.Log = o.Logger(slog.LevelInfo)
	if err := Start(ctx, from); err != nil {
		return exit.With(exit.Environment, err)
	}
	ending := *o
	ending.Context = func() (context.Context, context.CancelFunc) { return ctx, func() {} }
	*o = ending
	return use(from)
}

// PoolObject reads an object as an endpoint picker does.
func PoolObject(name string, text []byte) error { return new(objects.Set).Add(name, text) }

// GatewayObject reads an object as a Gateway does.
func GatewayObject(name string, text []byte) error { return new(gateway.Set).Add(name, text) }

// namespaceOf returns the first of a flag's value, a variable's and default.
func namespaceOf(o *console.Console, flag string) string {
	return cmp.Or(flag, o.Getenv("NAMESPACE"), "default")
}

// EPP is windtunnel-k8s epp: the endpoint picker with the objects of an API server.
type EPP struct {
	parts.EPP
	Cluster
}

// Run serves until an interruption. With --objects, or with endpoints from a file, it asks no API server.
func (c *EPP) Run(o *console.Console) error {
	text := c.ConfigText
	if c.ConfigFile != "" {
		raw, err := os.ReadFile(c.ConfigFile)
		if err != nil {
			return exit.With(exit.Input, err)
		}
		text = string(raw)
	}
	if c.Objects != "" || strings.Contains(text, "file-discovery") {
		return c.EPP.Run(o)
	}
	from := Options{Namespace: namespaceOf(o, c.PoolNamespace), Resources: Pool, Check: PoolObject,
		Metrics: NewMetrics()}
	return c.Mirror(o, from, func(from Options) error {
		c.Objects, c.Elected = from.Dir, c.LeaderElect
		ctx, stop := o.Context()
		defer stop()
		var electing sync.WaitGroup
		defer electing.Wait()
		c.Beside = func(s *epp.Standalone) error {
			if c.LeaderElect {
				electing.Go(func() {
					election.Run(ctx, election.Options{Client: from.Client, Namespace: from.Namespace,
						Name: election.LeaseName(from.Namespace, c.PoolName), Lead: s.Lead, Log: from.Log})
				})
			}
			return s.Register(from.Metrics)
		}
		return c.EPP.Run(o)
	})
}

// Sidecar is windtunnel-k8s sidecar: the routing sidecar, whose pool an API server has.
type Sidecar struct {
	parts.Sidecar
	Cluster
}

// Run serves until an interruption. It asks an API server only with --enable-ssrf-protection.
func (c *Sidecar) Run(o *console.Console) error {
	if !c.Protect || c.Objects != "" || c.EndpointsFile != "" {
		return c.Sidecar.Run(o)
	}
	namespace, _, found := strings.Cut(c.Pool, "/")
	if !found {
		namespace = c.PoolNamespace
	}
	from := Options{Namespace: namespaceOf(o, namespace), Resources: Pool[:3], Check: PoolObject}
	return c.Mirror(o, from, func(from Options) error {
		c.Objects = from.Dir
		return c.Sidecar.Run(o)
	})
}
