package virtual

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// The replicas of a pool's endpoint picker from Envoy's side, as measured (live/stack tests it). Envoy calls them in
// turn, except those that a health check has found dead. It makes health checks only if it has a choice. A request gets
// a 503 if its picker is dead or dies, unless its answer is under way: Envoy cuts that answer.

// picker returns the picker of the next request; nil if none is known to be alive.
func (x *pool) picker() *picking {
	if i := x.turns.Next(len(x.pickers)); i >= 0 {
		return x.pickers[i]
	}
	return nil
}

// assign gives a request to a picker.
func (r *request) assign(k *picking) {
	k.number++
	r.attach(k, k.number)
}

// attach connects a request to a picker, under a number.
func (r *request) attach(k *picking, number uint64) {
	r.picker = k
	r.stream.Init(k.m, k, number)
	r.stream.Response = &r.memory.response
}

// ask assigns a request that has reached Envoy to a picker, in a pool whose pickers may die. It is false if no picker
// takes it.
func (r *request) ask() bool {
	k := r.pool.picker()
	if k != nil && !k.down && !k.cut {
		r.assign(k)
		k.has[r] = struct{}{}
		return true
	}
	r.seen.alone = true
	if k == nil && r.modes().failOpen {
		r.serveWithout()
	} else {
		r.refused(proxy.NoPicker())
	}
	return false
}

// serveWithout sends a request to a healthy server in turn, without a picker.
func (r *request) serveWithout() {
	r.seen.past = true
	var head header.List
	if r.pool.cluster == nil {
		servers := r.pool.modes.servers
		if len(servers) == 0 {
			r.refused(proxy.NoServer())
			return
		}
		head = header.Of(picker.HeaderDestination, servers[r.Index%len(servers)])
	}
	r.toServer(message{do: (*message).forward, head: head})
	r.toServer(message{do: (*message).serverBody, body: r.Body, described: r.description(), end: true})
}

// kill ends a picker like a crash.
func (k *picking) kill() {
	k.paused, k.held = false, nil
	k.breakOff(stream.Killed)
	k.down = true
	k.end()
	if k.service != nil {
		k.service.end()
	}
	if x := k.pool.kv; x != nil {
		for _, ix := range x.indexes {
			ix.lost = ix.lost || ix.picker == k
		}
	}
	k.check()
}

// breakOff breaks Envoy's streams with a picker, which gets the reason.
func (k *picking) breakOff(reason string) {
	streams := slices.SortedFunc(maps.Keys(k.has), func(a, b *request) int { return cmp.Compare(a.Index, b.Index) })
	for _, r := range streams {
		r.closed = true // its effects no longer arrive
	}
	for _, r := range streams {
		if r.stream.Result() != stream.Running {
			continue
		}
		answered := r.status != 0
		r.toStream(stream.Message{Kind: stream.PeerGone, Reason: reason})
		r.drop(&r.w.hops.server, "the client left") // a server sees a closed connection
		if !answered {
			r.refused(proxy.NoPicker())
			continue
		}
		f := r.facts()
		k.w.queue.Push(k.w.now.Add(k.w.closing), machine.ClassTimer, event{then, func() {
			r.toClient(call(func() { r.finish(f.Broke("the answer was cut short")) }))
		}})
	}
	clear(k.has)
}

// revive restarts a picker that died.
func (k *picking) revive() error {
	k.down = false
	err := k.start()
	k.check()
	return err
}

// gauges are the picker's metrics that are 0 without requests.
var gauges = []string{metric.QueueSize.Name, metric.Running.Name, metric.InflightRequests.Name,
	metric.InflightTokens.Name}

// leftover describes what a picker still has although all requests have ended; "" is nothing.
func (k *picking) leftover() (left string) {
	if k.down {
		return ""
	}
	if n := len(k.has) + len(k.held); n > 0 {
		return fmt.Sprintf("%d streams and messages", n)
	}
	k.m.Metrics(k.w.now, k.pool.Name, func(name string) bool { return slices.Contains(gauges, name) },
		func(m epp.Metric) {
			if m.Value != 0 && left == "" {
				left = fmt.Sprintf("%s%v %g", m.Name, m.Labels, m.Value)
			}
		})
	return left
}

// check updates Envoy's view of the picker at its next health check.
func (k *picking) check() {
	x := k.pool
	if proxy.Checks(len(x.pickers), x.modes.failOpen) {
		k.w.queue.Push(proxy.NextCheck(k.w.now), machine.ClassTimer,
			event{then, func() { x.turns.Checked(k.replica, k.down || k.cut) }})
	}
}
