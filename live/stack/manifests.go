package stack

import (
	"context"
	"net/netip"
	"sync"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/envoy"
)

// startManifests starts Envoy with the routes, policies and body-based routers of the scenario's manifests, in front of
// the scenario's pools.
func (s *Stack) startManifests(ctx context.Context, pools []Listening) (err error) {
	g := s.plan.Gateway.Front
	c := envoy.Config{Admin: s.adminAt()}
	if s.o.Envoy != nil {
		s.o.Envoy(&c)
	}
	if s.Gateway, err = cluster.StartGateway(ctx, s.Binary, c, s.Dir); err != nil {
		return err
	}
	at, err := netip.ParseAddrPort(s.gatewayAt())
	if err != nil {
		return err
	}
	d := envoy.Dynamic{Program: g.Program, Pickers: map[string]envoy.Processor{}, Routers: map[string]envoy.Processor{},
		Endpoints: map[string][]string{},
		AccessLog: s.Gateway.AccessLog(),
		Limits:    GatewayConfig(s.plan, pools, "", "").Limits,
		Listen: func(x *gateway.Served, port int) string {
			if x == g.Served && port == g.Port.Number {
				return s.Gateway.Addr
			}
			return ""
		}}
	for key, i := range g.Pools {
		d.Pickers[key] = envoy.Processor{Addresses: pools[i].Pickers, Asking: s.plan.Pools[i].Picker.Asking}
		d.Endpoints[key] = pools[i].Endpoints
	}
	for _, r := range g.Program.Routers {
		router, err := cluster.StartRouter(r.Router, s.plan.Gateway.Router, s.Now)
		if err != nil {
			return err
		}
		s.Gateway.Routers[r.Key] = router
		d.Routers[r.Key] = envoy.Processor{Addresses: []string{router.Addr()}}
	}
	if err := cluster.ListenFree(at, "choose another port with --port", func(address string) error {
		s.Gateway.Addr = address
		return s.Gateway.Set(ctx, d)
	}); err != nil {
		return err
	}
	var changing sync.Mutex
	for key, i := range g.Pools {
		s.Pools[i].updateEnvoy = func(endpoints []string) error {
			changing.Lock()
			defer changing.Unlock()
			d.Endpoints[key] = endpoints
			return s.Gateway.Set(context.Background(), d)
		}
	}
	s.followEjected(g)
	return s.Gateway.Record(s.o.Recorder, s.Origin, s.o.Log, false)
}

// followEjected keeps endpoints that Envoy has ejected from the pickers.
func (s *Stack) followEjected(g *plan.Front) {
	if !g.Program.Ejects() {
		return
	}
	s.acts.Go(func() {
		s.Gateway.FollowEjected(s.life, s.o.Log, func() bool { return true }, func(now map[string][]string) {
			for key, i := range g.Pools {
				s.Pools[i].leaveOut(now[key])
			}
		})
	})
}

// leaveOut gives the pool's pickers the endpoints that Envoy has not ejected.
func (s *Pool) leaveOut(ejected []string) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.lives.Lock()
	s.ejected = ejected
	s.lives.Unlock()
	s.updatePickers()
}
