// Package gateway runs a Gateway in a cluster: a real Envoy with the Gateways, HTTPRoutes and InferencePools that an
// API server has, which asks the pools' own endpoint pickers. It reads a mirror of the objects (package mirror) by the
// rules of windtunnel up, and writes their status. Begin with Command.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	core "github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/kubernetes/mirror"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/live/up"
)

// Command is windtunnel-k8s gateway.
type Command struct {
	mirror.Cluster
	Namespace  string        `short:"n" placeholder:"NAME" help:"Only the objects of this namespace; without it of all."`
	Controller string        `default:"windtunnel.dev/gateway-controller" placeholder:"NAME" help:"Serve the Gateways whose GatewayClass has this controllerName."`
	Listen     string        `default:"127.0.0.1" placeholder:"IP" help:"Address of the Gateways' ports; 0.0.0.0 in a container."`
	Address    string        `placeholder:"HOST" help:"Address in the Gateways' status; without it --listen."`
	Secrets    bool          `default:"true" negatable:"" help:"Read Secrets, for listeners with TLS."`
	PickerTLS  bool          `name:"picker-tls" default:"true" negatable:"" help:"Speak TLS to endpoint pickers, without a check of their certificates."`
	HealthPort int           `default:"8081" placeholder:"N" help:"Port of /readyz and /metrics."`
	AdminPort  int           `placeholder:"N" help:"Port of Envoy's own pages, on 127.0.0.1; 0: a free one."`
	EnvoyPath  string        `placeholder:"FILE" help:"Envoy's program; without it, as windtunnel up finds it."`
	Drain      time.Duration `default:"30s" help:"How long requests may continue after the signal to stop."`
}

// Help returns the description of the command.
func (Command) Help() string {
	return `Serves the Gateways of a class with a real Envoy: listeners, HTTPRoutes and InferencePools by the rules of
windtunnel up (docs/gateway.md), with the ready addresses of Services and pods, and the pools' own endpoint pickers.
It writes the status of the GatewayClass, Gateways, HTTPRoutes and InferencePools (Accepted, Programmed,
ResolvedRefs). An object with a mistake keeps its last good state, and so does everything while the API server is
away.

Gateways share one address, so each needs ports of its own. Policies and body-based routers have no effect.

Examples:
  windtunnel-k8s gateway --listen 0.0.0.0
  windtunnel-k8s gateway --kubeconfig ~/.kube/config -n llm --no-picker-tls`
}

// resources are what the Gateway reads.
func (c *Command) resources() []schema.GroupVersionResource {
	list := []schema.GroupVersionResource{classes, gateways, routes,
		{Group: core.Group, Version: "v1beta1", Resource: "referencegrants"},
		pools, {Group: objects.GroupX, Version: "v1alpha2", Resource: "inferencepools"},
		{Group: objects.GroupKServe, Version: "v1alpha1", Resource: "inferencepools"},
		{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "services"},
		{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}}
	if c.Namespace == "" {
		list = append(list, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	}
	if c.Secrets {
		list = append(list, schema.GroupVersionResource{Version: "v1", Resource: "secrets"})
	}
	return list
}

// Run serves until an interruption.
func (c *Command) Run(o *console.Console) error {
	host, err := netip.ParseAddr(c.Listen)
	if err != nil {
		return exit.Errorf(exit.Usage, "--listen %q: expected an IP address such as 0.0.0.0", c.Listen)
	}
	for flag, port := range map[string]int{"--health-port": c.HealthPort, "--admin-port": c.AdminPort} {
		if port < 0 || port > 65535 {
			return exit.Errorf(exit.Usage, "%s: found %d; expected 0 to 65535", flag, port)
		}
	}
	from := mirror.Options{Namespace: c.Namespace, Resources: c.resources(), Check: mirror.GatewayObject,
		Metrics: mirror.NewMetrics()}
	return c.Mirror(o, from, func(from mirror.Options) error {
		log := o.Logger(slog.LevelInfo)
		dir, err := os.MkdirTemp("", "windtunnel-gateway-*")
		if err != nil {
			return exit.With(exit.Environment, err)
		}
		defer os.RemoveAll(dir)
		s := &server{client: from.Client, objects: from.Dir, controller: c.Controller,
			address: cmp.Or(c.Address, c.Listen), log: log,
			changed: make(chan struct{}, 1), options: up.Options{Controller: c.Controller, EnvoyPath: c.EnvoyPath,
				Dir: dir, Host: host, PickerTLS: c.PickerTLS, Log: log,
				Note: func(text string) { log.Info("gateway: " + text) }}}
		if c.AdminPort > 0 {
			s.options.Admin = net.JoinHostPort("127.0.0.1", strconv.Itoa(c.AdminPort))
		}
		ctx, stop := o.Context()
		defer stop()
		pages := serve.Group{Log: log}
		at, err := pages.Serve("/readyz and /metrics", net.JoinHostPort(c.Listen, strconv.Itoa(c.HealthPort)),
			serve.Pages(s.pages(from.Metrics), log))
		if err != nil {
			return exit.With(exit.Environment, err)
		}
		fmt.Fprintf(o.Stderr, "windtunnel-k8s gateway: /readyz and /metrics on %s\n", at)
		err = s.run(ctx, c.Drain, pages.Failed())
		ending, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		return exit.With(exit.Environment, errors.Join(err, pages.Stop(ending)))
	})
}

// pages are the Gateway's own pages. It is ready once Envoy has the objects.
func (s *server) pages(metrics *mirror.Metrics) http.Handler {
	mux := metrics.Page()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "no Gateway is served yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// wake makes the server apply the objects again.
func (s *server) wake() error {
	pause.Wake(s.changed)
	return nil
}

// run applies the objects and each change of them, until ctx ends, Envoy ends, or the pages fail.
func (s *server) run(ctx context.Context, drain time.Duration, failed <-chan error) (err error) {
	w, err := watch.Dir("objects in "+s.objects, s.objects, s.log, files.IsManifest, s.wake)
	if err != nil {
		return err
	}
	defer w.Close()
	defer func() {
		if s.up != nil {
			ending, stop := context.WithTimeout(context.Background(), drain)
			defer stop()
			err = errors.Join(err, s.up.Stop(ending))
		}
	}()
	var gone <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-gone:
			return s.up.Envoy.Wait()
		case <-s.changed:
		}
		if err := s.once(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("gateway: not everything is as the objects ask for; the next change tries again",
				slog.String("error", err.Error()))
		}
		if s.up != nil {
			gone = s.up.Envoy.Done()
		}
	}
}

// server applies objects.
type server struct {
	client     clients
	objects    string // their directory
	controller string
	address    string // in the status
	options    up.Options
	log        *slog.Logger
	changed    chan struct{}
	ready      atomic.Bool
	up         *up.Up // nil before the first Gateway
}

// once applies the objects as they are, and writes their status. Where they cannot be applied, the last good state
// stays, and the status of that state.
func (s *server) once(ctx context.Context) error {
	set, found, err := s.read()
	if err != nil {
		return err
	}
	program := core.Build(set, core.Options{Controller: s.controller})
	switch {
	case s.up != nil:
		err = s.up.Apply(ctx, set)
	case len(program.Gateways) > 0:
		o := s.options
		o.Objects = set
		s.up, err = up.Start(ctx, o)
	}
	if err != nil {
		return err
	}
	s.ready.Store(s.up != nil)
	return s.writeStatus(ctx, program, found)
}

// read reads the objects, and finds them by their keys.
func (s *server) read() (*core.Set, map[string]*object, error) {
	set, found := &core.Set{}, map[string]*object{}
	err := files.Manifests("objects", s.objects, objects.MaxFileBytes, func(path string, data []byte) error {
		find(data, found)
		return set.Add(filepath.Base(path), data)
	})
	return set, found, err
}
