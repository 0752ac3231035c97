package stack

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/envoy/xds"
)

// startManifests starts Envoy as the scenario's manifests say: with their routes, their
// policies and their body-based routers, in front of the scenario's pools.
func (s *Stack) startManifests(ctx context.Context, at []Listening) (err error) {
	g := s.plan.Gateway.Front
	if s.control, err = xds.Start(); err != nil {
		return err
	}
	c := envoy.Config{Control: s.control.Addr(), Admin: s.adminAt()}
	if s.o.Envoy != nil {
		s.o.Envoy(&c)
	}
	if s.Gateway, err = envoy.Start(ctx, s.Binary, c, filepath.Join(s.Dir, "envoy")); err != nil {
		return err
	}
	if s.Gateway.Addr, err = free(s.gatewayAt()); err != nil {
		return err
	}
	d := envoy.Dynamic{Program: g.Program, Pickers: map[string]envoy.Processor{}, Routers: map[string]envoy.Processor{},
		Endpoints: map[string][]string{},
		AccessLog: filepath.Join(s.Gateway.Dir, envoy.AccessLogFile),
		Limits:    GatewayConfig(s.plan, at, "", "").Limits,
		Listen: func(x *gateway.Served, port int) string {
			if x == g.Served && port == g.Port.Number {
				return s.Gateway.Addr
			}
			return ""
		}}
	for key, i := range g.Pools {
		d.Pickers[key] = envoy.Processor{Addresses: at[i].Pickers, Asking: s.plan.Pools[i].Picker.Asking}
		d.Endpoints[key] = at[i].Endpoints
	}
	for _, r := range g.Program.Routers {
		router, err := bbr.Start(
			bbr.Options{Address: anyPort, Router: r.Router, Stream: s.plan.Gateway.Router, Now: s.Now})
		if err != nil {
			return err
		}
		s.routers = append(s.routers, router)
		d.Routers[r.Key] = envoy.Processor{Addresses: []string{router.Addr()}}
	}
	if err := s.configure(ctx, d); err != nil {
		return err
	}
	var changing sync.Mutex
	for key, i := range g.Pools {
		s.Pools[i].tellEnvoy = func(endpoints []string) error {
			changing.Lock()
			defer changing.Unlock()
			d.Endpoints[key] = endpoints
			return s.configure(context.Background(), d)
		}
	}
	s.followEjected(g)
	return s.followAccessLog()
}

// configure has Envoy take a configuration.
func (s *Stack) configure(ctx context.Context, d envoy.Dynamic) error {
	r, err := d.Resources()
	if err != nil {
		return err
	}
	return s.control.Set(ctx,
		xds.State{Listeners: xds.Of(r.Listeners), Routes: xds.Of(r.Routes), Clusters: xds.Of(r.Clusters),
			Endpoints: xds.Of(r.Endpoints)})
}

// followEjected has pickers leave out the endpoints that Envoy has ejected.
func (s *Stack) followEjected(g *plan.Front) {
	if !g.Program.Ejects() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.unfollow = cancel
	s.following.Go(func() {
		s.Gateway.FollowEjected(ctx, s.o.Log, func() bool { return true }, func(now map[string][]string) {
			for key, i := range g.Pools {
				if err := s.Pools[i].leaveOut(now[key]); err != nil {
					s.o.Log.Warn("pickers do not know which endpoints are ejected", "error", err)
				}
			}
		})
	})
}

// leaveOut has the pool's pickers choose from other endpoints than those which Envoy has
// ejected.
func (s *Pool) leaveOut(ejected []string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.lives.Lock()
	s.ejected = ejected
	s.lives.Unlock()
	return s.tellPickers()
}

// free is an address as it is, or with a port that nobody listens on in the place of 0.
func free(at string) (string, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return "", &envoy.Error{Kind: envoy.PortTaken, Err: err,
			Message: fmt.Sprintf("cannot listen: %v; stop what listens there, or choose another port with --port", err)}
	}
	return l.Addr().String(), l.Close()
}
