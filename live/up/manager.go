package up

import (
	"context"
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
		switch at, named := x.listeners(p.Workload.Namespace, one); {
		case len(at) > 0:
			all[i] = "tcp://" + at[p.Replica%len(at)]
		case named:
			u.note(p.Workload.Where(p.Container) + ": its KV events reach nobody: nothing listens at " + one)
		}
	}
	return strings.Join(all, ",")
}

// readManager reads the environment of a KV-Cache Manager, with document 003's variables.
func (u *Up) readManager(p *pod, c *gateway.Container) (kvmanager.Options, error) {
	o := kvmanager.DefaultOptions()
	args, env, err := started(c, p)
	if err != nil {
		return o, err
	}
	if err := o.FromEnv(env.lookup); err != nil {
		return o, &InvalidError{err}
	}
	if len(args) > 0 {
		u.note(p.Workload.Where(c) + ": its command line has no effect: a KV-Cache Manager goes by its " +
			"environment")
	}
	return o, nil
}

// startManager starts the pod's KV-Cache Manager.
func (u *Up) startManager(p *pod, c *gateway.Container) error {
	o, err := u.readManager(p, c)
	if err != nil {
		return err
	}
	asked, told := atoi(portOf(o.HTTPAddress)), atoi(portOf(strings.TrimPrefix(o.ZMQBind, "tcp://")))
	o.HTTPAddress, o.Log = u.addresses.On(p.ip, asked), u.log
	if o.ZMQBind != "" {
		o.ZMQBind = "tcp://" + u.addresses.On(p.ip, told)
	}
	m, err := kvmanager.Start(o)
	if err != nil {
		return err
	}
	p.stops = append(p.stops, func(ctx context.Context) { _ = m.Stop(ctx) }) // no client uses it any more
	p.at[asked] = m.HTTPAddress()
	if o.ZMQBind != "" {
		p.at[told] = strings.TrimPrefix(m.ZMQEndpoint(), "tcp://")
	}
	return nil
}
