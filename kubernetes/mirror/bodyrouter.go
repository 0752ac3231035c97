package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/up"
)

// BodyRouter is windtunnel-k8s body-based-router: the body-based router with the ConfigMaps of its namespace.
type BodyRouter struct {
	Cluster
	Listen     string   `default:"127.0.0.1" placeholder:"IP" help:"Address to listen on; 0.0.0.0 in a container."`
	GRPCPort   int      `default:"9004" help:"Port of ext_proc and gRPC health."`
	Plugin     []string `sep:"none" placeholder:"TYPE:NAME:JSON" help:"A plug-in, as of the real router; without any, model and base model become headers. Repeatable."`
	Namespace  string   `fromenv:"NAMESPACE" default:"default" help:"Namespace of the ConfigMaps with base models and adapters."`
	Objects    string   `placeholder:"DIR" help:"Directory of YAML files instead of an API server."`
	Streaming  bool     `help:"Accepted; bodies are always streamed."`
	HealthPort int      `name:"grpc-health-port" hidden:"" help:"Accepted; health is at --grpc-port."`
}

// Help returns the description of the command.
func (BodyRouter) Help() string {
	return `The ext_proc server before a Gateway's routes: it reads the model that a request names in its body, and
puts it and its base model into headers for HTTPRoutes. A ConfigMap with the label
inference.networking.k8s.io/bbr-managed: "true" names a base model and its adapters (docs/gateway.md#several-models).

Examples:
  windtunnel-k8s body-based-router --listen 0.0.0.0
  windtunnel-k8s body-based-router --objects ./manifests --plugin base-model-to-header:base`
}

// Run serves until an interruption.
func (c *BodyRouter) Run(o *console.Console) error {
	if c.GRPCPort < 0 || c.GRPCPort > 65535 {
		return exit.Errorf(exit.Usage, "--grpc-port: found %d; expected 0 to 65535", c.GRPCPort)
	}
	if c.Objects != "" {
		return c.serve(o, c.Objects)
	}
	from := Options{Namespace: c.Namespace, Check: GatewayObject,
		Resources: []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}}}
	return c.Mirror(o, from, func(from Options) error { return c.serve(o, from.Dir) })
}

// serve routes by the objects of a directory, and follows it.
func (c *BodyRouter) serve(o *console.Console, dir string) error {
	ctx, stop := o.Context()
	defer stop()
	began := time.Now()
	var s *bbr.Server
	load := func() error {
		r, err := c.router(dir)
		if err != nil {
			return err
		}
		if s != nil {
			s.Route(r.Router)
			return nil
		}
		s, err = bbr.Start(bbr.Options{Address: net.JoinHostPort(c.Listen, strconv.Itoa(c.GRPCPort)),
			Router: r.Router, Stream: up.RouterLimits,
			Now: func() machine.Time { return machine.FromDuration(time.Since(began)) }})
		return err
	}
	w, err := watch.Dir("objects in "+dir, dir, o.Logger(slog.LevelInfo), files.IsManifest, load)
	if err != nil {
		return exit.ByCause(exit.Input, err)
	}
	defer w.Close()
	fmt.Fprintf(o.Stderr, "windtunnel-k8s body-based-router: ext_proc and health on %s\n", s.Addr())
	<-ctx.Done()
	ending, end := context.WithTimeout(context.Background(), 30*time.Second)
	defer end()
	s.Stop(ending)
	return nil
}

// router reads a directory's ConfigMaps and the plug-ins, by the rules of windtunnel up.
func (c *BodyRouter) router(dir string) (*gateway.BodyRouter, error) {
	set := &gateway.Set{}
	set.DefaultNamespace = c.Namespace
	if err := files.Manifests("objects", dir, objects.MaxFileBytes, set.Add); err != nil {
		return nil, err
	}
	set.Workloads = nil // other routers have their own plug-ins
	args := []string{"bbr"}
	for _, p := range c.Plugin {
		args = append(args, "--plugin", p)
	}
	labels := map[string]string{"app": "router"}
	pod := map[string]any{"metadata": map[string]any{"labels": labels},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "bbr", "image": "bbr", "args": args}}}}
	own, err := yaml.Marshal(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "router", "namespace": c.Namespace},
		"spec":     map[string]any{"selector": map[string]any{"matchLabels": labels}, "template": pod}})
	if err != nil {
		return nil, err
	}
	if err := set.Add("the command line", own); err != nil {
		return nil, err
	}
	p := gateway.Build(set, gateway.Options{})
	if len(p.Routers) != 1 {
		return nil, exit.Errorf(exit.Usage, "%s", strings.TrimPrefix(fmt.Sprint(p.Mistakes), "the command line:"))
	}
	return p.Routers[0], nil
}
