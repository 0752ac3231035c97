package up

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/kvmanager"
)

// eventsOf returns the address to which a pod's model server sends its KV events, or "". A Service's name stands for
// the address of one program behind it, as for a connection in a cluster.
func (u *Up) eventsOf(p *pod) string {
	if p.sends == "" {
		return ""
	}
	x := u.services.Load()
	all := strings.Split(p.sends, ",") // several managers, separated by commas
	for i, one := range all {
		switch at, named := x.listeners(p.PodNamespace, one); {
		case len(at) > 0:
			all[i] = "tcp://" + at[p.Replica%len(at)]
		case named:
			u.note(p.Workload.Where(p.Container) + ": its KV events reach nobody: nothing listens at " + one)
		}
	}
	return strings.Join(all, ",")
}

// readManager reads the environment of a KV-Cache Manager, with document 003's variables.
func (u *Up) readManager(p *pod, c *gateway.Container) (start func() error, err error) {
	x, err := c.Process(p.here())
	if err != nil {
		return nil, err
	}
	o := kvmanager.DefaultOptions()
	if err := o.FromEnv(lookup(x.Env)); err != nil {
		return nil, err
	}
	o.Log = u.LogOf(p.PodNamespace, p.PodName, c.Name)
	if len(x.Args) > 0 {
		u.note(p.Workload.Where(c) + ": its command line has no effect: a KV-Cache Manager goes by its " +
			"environment")
	}
	return func() error { return p.StartManager(o) }, nil
}
