package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/internal/exit"
)

// Cluster is the flag of parts that may read an API server.
type Cluster struct {
	Kubeconfig string `placeholder:"FILE" fromenv:"KUBECONFIG" help:"How to reach the API server; without it, as a pod does."`
}

// Client returns a client of the API server, and the server's address.
func (c *Cluster) Client() (dynamic.Interface, string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, "", exit.Hint(exit.Environment, fmt.Errorf("no API server: %w", err),
			"name a file with --kubeconfig or KUBECONFIG, or run in a pod")
	}
	client, err := dynamic.NewForConfig(config)
	return client, config.Host, exit.With(exit.Environment, err)
}

// objects mirrors a namespace's objects into a new directory while use runs with it.
func (c *Cluster) objects(o *console.Console, namespace string, kinds []schema.GroupVersionResource,
	use func(dir string) error) error {
	client, host, err := c.Client()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "windtunnel-objects-*")
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer os.RemoveAll(dir)
	ctx, stop := o.Context()
	defer stop()
	fmt.Fprintf(o.Stderr, "windtunnel-k8s: objects of namespace %s from %s\n", namespace, host)
	if err := Start(ctx, Options{Client: client, Namespace: namespace, Resources: kinds, Dir: dir,
		Log: o.Logger(slog.LevelInfo)}); err != nil {
		return exit.With(exit.Environment, err)
	}
	ending := *o
	ending.Context = func() (context.Context, context.CancelFunc) { return ctx, func() {} }
	*o = ending
	return use(dir)
}

// namespaceOf returns the first of a flag's value, a variable's and default.
func namespaceOf(o *console.Console, flag string) string {
	if flag == "" {
		flag = o.Getenv("NAMESPACE")
	}
	if flag == "" {
		return "default"
	}
	return flag
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
	return c.objects(o, namespaceOf(o, c.PoolNamespace), Pool, func(dir string) error {
		c.Objects = dir
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
	return c.objects(o, namespaceOf(o, namespace), Pool[:3], func(dir string) error {
		c.Objects = dir
		return c.Sidecar.Run(o)
	})
}
