package up

import (
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/envoy"
)

// routed limits the request bodies of a body-based router. The real router has no limit.
var routed = stream.Config{MaxBodyBytes: 32 << 20, BodyIdle: 60 * machine.Second, BodyTotal: 300 * machine.Second}

// startRouters starts the new body-based routers and keeps the others.
func (c *change) startRouters() error {
	d := plan.Diff(c.u.applied.Routers, c.to.Routers)
	for _, r := range d.Keep {
		c.routers[r.Key()] = c.u.routers[r.Key()]
	}
	for _, r := range d.Stop {
		c.gone.routers = append(c.gone.routers, c.u.routers[r.Key()])
	}
	for _, r := range d.Start {
		x, err := cluster.StartRouter(r.Router, routed, c.u.now)
		if err != nil {
			return err
		}
		c.started.routers, c.routers[r.Key()] = append(c.started.routers, x), x
	}
	return nil
}

// processors returns the body-based routers as ext_proc servers for Envoy.
func (c *change) processors() map[string]envoy.Processor {
	out := map[string]envoy.Processor{}
	for _, r := range c.to.Routers {
		p := out[r.BodyRouter.Key]
		p.Addresses = append(p.Addresses, c.routers[r.Key()].Addr())
		out[r.BodyRouter.Key] = p
	}
	return out
}

// route gives the body-based routers the routes of the objects in force. Envoy already has those routes.
func (u *Up) route() {
	for _, r := range u.applied.Routers {
		u.routers[r.Key()].Route(r.Router)
	}
}

// now returns the time since the start of the run.
func (u *Up) now() machine.Time { return machine.FromDuration(time.Since(u.origin)) }
