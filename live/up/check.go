package up

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// loopback is the address of pods that are checked but not started.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// planned returns a workload's first pod before it starts.
func planned(w *gateway.Workload) *pod {
	return &pod{Pod: plan.Pod{Workload: w}, ip: loopback, at: map[int]string{}}
}

// check parses every command line, environment and configuration that a change would start a program with. It starts
// nothing. Its error lists all mistakes, each with its container.
func (u *Up) check(to *plan.Cluster) error {
	var errs []error
	s := to.Objects
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.Replicas == 0 {
			continue
		}
		p, served := planned(w), true
		main, _ := w.Serves()
		for k := range w.Containers {
			c := &w.Containers[k]
			var err error
			switch r := c.Role(); {
			case r == gateway.RoleServer && c == main, r == gateway.RoleRenderer:
				err = u.checkServer(s, p, c)
				served = served && (err == nil || c != main)
			case r == gateway.RoleKVManager && c == main:
				_, err = u.readManager(p, c)
			case c == predictorOf(w):
				_, err = u.readPredictor(p, c)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", w.Where(c), err))
			}
		}
		if served { // the address of the sidecar's decode server is known
			if _, err := u.readSidecar(p); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, x := range to.Pools {
		if o, err := u.pickerOptions(x); err != nil {
			errs = append(errs, err)
		} else if _, err := epp.BuildPicker(&o.PickerOptions); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &InvalidError{err}
	}
	return nil
}

// checkServer sets where the servers of a container would listen.
func (u *Up) checkServer(s *gateway.Set, p *pod, c *gateway.Container) error {
	r, o, err := u.readServer(s, p, c)
	if err != nil {
		return err
	}
	fleet, err := modelserver.New(o)
	if err != nil {
		return err
	}
	fleet.Stop(context.Background())
	if c.Role() == gateway.RoleServer {
		for i := range o.Servers {
			p.at[r.Port+i] = o.Servers[i].Listen
		}
	}
	return nil
}
