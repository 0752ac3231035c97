package up

import (
	"context"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/kvmanager"
)

// eventsEndpoint is document 003's variable of where model servers send KV events.
const eventsEndpoint = "VLLM_KV_EVENT_ZMQ_ENDPOINT"

// eventsOf is where a container's model server sends its KV events, with Services'
// names as the addresses that they stand for; of several managers each.
func (u *Up) eventsOf(w *gateway.Workload, c *gateway.Container) string {
	// a mistake in it is an error of startServer
	env, _, _ := environment(c, &pod{namespace: w.Namespace, name: w.Name})
	to := env[eventsEndpoint]
	x := u.services.Load()
	if to == "" || x == nil {
		return to
	}
	var all []string
	for one := range strings.SplitSeq(to, ",") {
		pods := podsOf(x.s, x.pods, w.Namespace, one)
		if len(pods) == 0 {
			all = append(all, one)
		}
		for _, at := range pods { // each manager keeps an index of its own
			all = append(all, "tcp://"+at)
		}
	}
	return strings.Join(all, ",")
}

// startManager starts the pod's KV-Cache Manager as document 003's variables have it.
func (u *Up) startManager(p *pod, c *gateway.Container) error {
	args, env, err := started(c, p)
	if err != nil {
		return err
	}
	o := kvmanager.DefaultOptions()
	if err := o.FromEnv(env.lookup); err != nil {
		return &InvalidError{err}
	}
	if len(args) > 0 {
		u.note(fmt.Sprintf("%s:%d: container %s: its command line has no effect: a KV-Cache Manager goes by its "+
			"environment", p.workload.File, c.At.Line(), c.Name))
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
	p.stops = append(p.stops, func(ctx context.Context) { _ = m.Stop(ctx) }) // nobody asks it any more
	p.at[asked] = m.HTTPAddress()
	if o.ZMQBind != "" {
		p.at[told] = strings.TrimPrefix(m.ZMQEndpoint(), "tcp://")
	}
	return nil
}
