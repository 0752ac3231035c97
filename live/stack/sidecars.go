package stack

import (
	"context"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// startSidecars puts a routing sidecar before each decode server. The sidecar is then the endpoint for the picker and
// Envoy.
func (s *Pool) startSidecars(context.Context) error {
	cars := s.pool.Sidecars
	if cars == nil || s.Fleet == nil {
		return nil
	}
	// The file is written twice: the sidecars' own ports are known only when they listen.
	if err := s.writeEndpoints(); err != nil {
		return err
	}
	for i := range s.pool.Decoders {
		o := sidecar.Options{Decoder: s.Endpoints[i], Disagg: cars.Config, SessionCache: cars.Sessions, Protect: true,
			EndpointsFile: s.EndpointsFile(), Seed: cars.Seed + uint64(i),
			Body:       serve.BodyLimits{Idle: s.pool.Picker.BodyIdle, Total: s.pool.Picker.BodyTotal},
			Line:       s.lines[i],
			BlockBytes: s.pool.Servers[i].Engine.BlockBytes()}
		if cars.Direct {
			o.Disagg.Frontend = &disagg.Frontend{Reader: s.Fleet.Servers()[i].Reader(), Worker: s.worker,
				Epoch: s.Origin.Unix()}
			if cars.Routes {
				o.Disagg.Frontend.Router = router{s}
			}
		}
		if err := s.Pods[i].StartSidecar(plan.PodPort, o); err != nil {
			return err
		}
	}
	for i := range s.pool.Decoders {
		s.Endpoints[i] = s.Pods[i].Sidecar.Addr()
	}
	return s.writeEndpoints()
}

// worker is the address of the worker with an instance id, behind its frontend.
func (s *Pool) worker(id string) (disagg.Target, bool) {
	for _, server := range s.Fleet.Servers() {
		if dynamo.IDOf(server.Name()).String() == id {
			t, err := disagg.ParseTarget(server.Address())
			return t, err == nil
		}
	}
	return disagg.Target{}, false
}
