package stack

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/cluster"
)

// place has the addresses of a pod's parts.
type place struct {
	// Front is the address for the picker, Envoy and prefill legs: the sidecar's, or the model server's without one.
	front string
	// Server is the model server's own address, also a second one, or empty; side is that of its KV side channel.
	server, also, side string
}

// places has the addresses of the pods of a pool whose ports matter.
type places struct {
	pods      []place
	addresses *cluster.Addresses // nil if the scenario has the ports
}

// own reports whether pods have addresses of their own.
func (x *places) own() bool { return x != nil && x.addresses != nil && x.addresses.Own() }

// findPlaces finds the pool's places, once.
func (s *Pool) findPlaces() error {
	if s.places != nil {
		return nil
	}
	s.places = &places{}
	if slices.ContainsFunc(s.pool.Servers, func(x plan.Server) bool { return x.ListenPort+x.SidecarPort > 0 }) {
		for _, x := range s.pool.Servers {
			s.places.pods = append(s.places.pods,
				place{front: fixed(x.SidecarPort, anyPort), server: fixed(x.ListenPort, anyPort), side: anyPort})
		}
		return nil
	}
	addresses, taken := cluster.NewAddresses(plan.PodPort)
	if taken != nil {
		s.o.Log.Warn(fmt.Sprintf("the pods share 127.0.0.1, on ports of their own instead of %d, %d and %d: %v",
			plan.PodPort, plan.BehindPort, s.pool.SideChannel, taken))
	}
	s.places.addresses = addresses
	for _, x := range s.pool.Servers {
		_, ip, err := addresses.Take()
		if err != nil {
			return err
		}
		pod := place{front: addresses.On(ip, plan.PodPort), server: addresses.On(ip, x.Port),
			side: addresses.On(ip, s.pool.SideChannel)}
		if x.AlsoPort != 0 && addresses.Own() {
			pod.also = addresses.On(ip, x.AlsoPort)
		}
		s.places.pods = append(s.places.pods, pod)
	}
	return nil
}
