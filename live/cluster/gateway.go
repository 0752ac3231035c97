package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway/bbr"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	live "github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/envoy/xds"
)

// Gateway is a real Envoy, with the control plane that configures it and the body-based routers that it asks.
type Gateway struct {
	*envoy.Process
	// Routers are the body-based routers, by names that the front gives.
	Routers map[string]*live.Server

	control *xds.Server // nil where a file configures Envoy
	tail    *envoy.Recording
}

// StartGateway starts Envoy with its files in dir. Without pools in the configuration, Set configures it.
func StartGateway(ctx context.Context, binary envoy.Binary, c envoy.Config, dir string) (g *Gateway, err error) {
	g = &Gateway{Routers: map[string]*live.Server{}}
	if len(c.Pools) == 0 {
		if g.control, err = xds.Start(); err != nil {
			return nil, err
		}
		c.Control = g.control.Addr()
	}
	if g.Process, err = envoy.Start(ctx, binary, c, filepath.Join(dir, "envoy")); err != nil {
		if g.control != nil {
			g.control.Stop()
		}
		return nil, err
	}
	return g, nil
}

// AccessLog is the path of Envoy's account of requests.
func (g *Gateway) AccessLog() string { return filepath.Join(g.Dir, envoy.AccessLogFile) }

// Record records Envoy's account of requests, timed from origin, until Stop. Foreign requests are those of other
// clients than the run's.
func (g *Gateway) Record(to record.Recorder, origin time.Time, log *slog.Logger, foreign bool) (err error) {
	if to != nil {
		g.tail, err = g.Process.Record(to, origin, log, foreign)
	}
	return err
}

// Set gives Envoy a configuration and waits until it is in force.
func (g *Gateway) Set(ctx context.Context, d envoy.Dynamic) error {
	return g.configure(ctx, d, g.control.Set)
}

// Back is Set for a configuration that was in force before.
func (g *Gateway) Back(ctx context.Context, d envoy.Dynamic) error {
	return g.configure(ctx, d, g.control.Back)
}

func (g *Gateway) configure(ctx context.Context, d envoy.Dynamic, set func(context.Context, xds.State) error) error {
	state, err := d.Resources()
	if err != nil {
		return err
	}
	return set(ctx, state)
}

// StartRouter starts a body-based router on a free port.
func StartRouter(r bbr.Router, s stream.Config, now func() machine.Time) (*live.Server, error) {
	return live.Start(live.Options{Address: AnyPort, Router: r, Stream: s, Now: now})
}

// Stop stops Envoy, the routers and the control plane; requests in flight may finish until ctx ends. Nil is stopped.
func (g *Gateway) Stop(ctx context.Context) error {
	if g == nil {
		return nil
	}
	err := g.Process.Stop(ctx)
	g.tail.End()
	for _, r := range g.Routers {
		r.Stop(ctx)
	}
	if g.control != nil {
		g.control.Stop()
	}
	return err
}

// ListenFree calls set with what FreePort returns. If at is any port, it calls set again, with another one, when
// another program has taken the port before Envoy.
func ListenFree(at netip.AddrPort, hint string, set func(address string) error) error {
	for tries := 10; ; tries-- {
		address, err := FreePort(at, hint)
		if err != nil {
			return err
		}
		err = set(address)
		var rejected *xds.RejectedError
		if at.Port() != 0 || tries == 1 || !errors.As(err, &rejected) ||
			!strings.Contains(rejected.Reason, "Address already in use") {
			return err
		}
	}
}

// raised is added to a port below 1024 that this process may not listen on.
const raised = 8000

// FreePort returns at with a port that Envoy can listen on: the port itself, one 8,000 higher where only root may
// listen on it, and any free one for port 0 or for a loopback address that the machine has not got. Hint says what to
// do where the port is taken.
func FreePort(at netip.AddrPort, hint string) (string, error) {
	l, err := net.Listen("tcp", at.String())
	if errors.Is(err, syscall.EACCES) && at.Port() < 1024 {
		l, err = net.Listen("tcp", netip.AddrPortFrom(at.Addr(), at.Port()+raised).String())
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) && at.Addr().IsLoopback() { // the machine has one loopback address
		l, err = net.Listen("tcp", AnyPort)
	}
	if err != nil {
		return "", &envoy.Error{Kind: envoy.PortTaken, Err: err,
			Message: "cannot listen: " + err.Error() + "; stop what listens there, or " + hint}
	}
	return l.Addr().String(), l.Close()
}
