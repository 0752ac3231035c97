package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
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
	s.workers = slices.Clone(s.Endpoints)
	for i := range s.pool.Decoders {
		o := sidecar.Options{Listen: s.places.pods[i].front, Decoder: s.Endpoints[i], Disagg: cars.Config,
			DecoderHealth: true,
			SessionCache:  cars.Sessions, Protect: true, EndpointsFile: s.EndpointsFile(),
			Body: serve.BodyLimits{Idle: s.pool.Picker.BodyIdle, Total: s.pool.Picker.BodyTotal},
			Seed: cars.Seed + uint64(i), PodName: s.Names[i], Now: s.Now, Recorder: s.o.Recorder,
			Log: s.o.Log}
		o.Disagg.Trace = s.o.Trace
		if cars.Direct {
			o.Disagg.Frontend = &disagg.Frontend{Reader: s.Fleet.Servers()[i].Reader(), Worker: s.worker,
				Epoch: s.origin.Unix()}
			if cars.Routes {
				o.Disagg.Frontend.Router = router{s}
			}
		}
		o.BlockBytes = s.pool.Servers[i].Engine.BlockBytes()
		x, err := sidecar.Start(o)
		if err != nil {
			return fmt.Errorf("sidecar of %s: %w", s.Names[i], err)
		}
		s.Sidecars = append(s.Sidecars, x)
		o.Listen = x.Addr()
		s.sidecarOptions = append(s.sidecarOptions, o)
	}
	for i, x := range s.Sidecars {
		s.Endpoints[i] = x.Addr()
	}
	return s.writeEndpoints()
}

// worker is the address of the worker with an instance id, behind its frontend.
func (s *Pool) worker(id string) (disagg.Target, bool) {
	for i, server := range s.Fleet.Servers() {
		if dynamo.IDOf(server.Name()).String() == id {
			t, err := disagg.ParseTarget(s.workers[i])
			return t, err == nil
		}
	}
	return disagg.Target{}, false
}

// restartSidecar stops the sidecar with this index, which cuts its requests, and restarts it on the same port.
func (s *Pool) restartSidecar(ctx context.Context, i int) error {
	err := s.Sidecars[i].Stop(ctx)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	x, err := sidecar.Start(s.sidecarOptions[i])
	if err == nil {
		s.Sidecars[i] = x
	}
	return err
}

func (s *Pool) stopSidecars(ctx context.Context) error {
	errs := make([]error, len(s.Sidecars))
	var wg sync.WaitGroup
	for i, x := range s.Sidecars {
		wg.Go(func() { errs[i] = x.Stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
