package up

import (
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/envoy"
)

// routed limits the request bodies of a body-based router. The real router has no limit.
var routed = stream.Config{MaxBodyBytes: 32 << 20, BodyIdle: 60 * machine.Second, BodyTotal: 300 * machine.Second}

// routerKey returns the key of a replica of a body-based router.
func routerKey(r *gateway.BodyRouter, i int) string { return fmt.Sprintf("%s/%d", r.Key, i) }

// startRouters starts the new body-based routers and keeps the others.
func (c *change) startRouters() error {
	for _, r := range c.program.Routers {
		for i := range r.Workload.Replicas {
			key := routerKey(r, i)
			x := c.u.routers[key]
			if x == nil {
				var err error
				if x, err = bbr.Start(bbr.Options{Address: cluster.AnyPort, Router: r.Router, Stream: routed,
					Now: c.u.now}); err != nil {
					return err
				}
				c.routing = append(c.routing, x)
			}
			c.routers[key] = x
		}
	}
	return nil
}

// goneRouters returns the routers that are in force now but not after the change.
func (c *change) goneRouters() (out []*bbr.Server) {
	for key, x := range c.u.routers {
		if c.routers[key] == nil {
			out = append(out, x)
		}
	}
	return out
}

// processors returns the body-based routers as ext_proc servers for Envoy.
func (c *change) processors() map[string]envoy.Processor {
	out := map[string]envoy.Processor{}
	for _, r := range c.program.Routers {
		var p envoy.Processor
		for i := range r.Workload.Replicas {
			p.Addresses = append(p.Addresses, c.routers[routerKey(r, i)].Addr())
		}
		out[r.Key] = p
	}
	return out
}

// route gives the body-based routers the routes of the objects in force. Envoy already has those routes.
func (u *Up) route() {
	for _, r := range u.program.Routers {
		for i := range r.Workload.Replicas {
			u.routers[routerKey(r, i)].Route(r.Router)
		}
	}
}

// now returns the time since the start of the run.
func (u *Up) now() machine.Time { return machine.FromDuration(time.Since(u.origin)) }
