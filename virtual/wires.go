package virtual

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/scenario"
)

// wires carry KV caches between the run's engines: core/link as live has it.
type wires struct {
	profile  link.Profile
	topology *link.Topology
	net      *link.Network
	fx       link.Effects
	next     link.ID
	pulls    map[link.ID]pull
	wakeAt   machine.Time
}

// pull is a cache on its way to a server.
type pull struct {
	to *server
	id engine.RequestID
}

// serverNIC is what joins a server to the network, as live's default.
const serverNIC = "infiniband-200"

func newWires(p *scenario.Pool, servers int) (*wires, error) {
	nic, err := link.WireNamed(serverNIC)
	if err != nil {
		return nil, err
	}
	t, err := link.NewTopology(link.TopologyConfig{Nodes: servers, NIC: nic, Store: nic})
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	n, err := link.New(t.Links())
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	return &wires{profile: p.Link(), topology: t, net: n, pulls: map[link.ID]pull{}}, nil
}

// fetch begins what an engine asks for with KVPull.
func (w *world) fetch(to *server, e *engine.Effect) {
	x := w.wires
	x.next++
	start, err := x.profile.Transfer(x.topology, x.next, int(e.From), to.index, e.Bytes)
	if err != nil {
		to.input(engine.KVFailed{ID: e.Request})
		return
	}
	x.pulls[x.next] = pull{to, e.Request}
	x.net.Input(w.now, start, &x.fx)
	w.carried()
}

func (w *world) wakeWires(at machine.Time) {
	if at == w.wires.wakeAt {
		w.wires.wakeAt = 0
		w.wires.net.Advance(at, &w.wires.fx)
		w.carried()
	}
}

// carried tells engines what has arrived.
func (w *world) carried() {
	x := w.wires
	done := append([]link.Effect(nil), x.fx.List...)
	x.fx.Reset()
	for _, f := range done {
		p, ok := x.pulls[f.ID]
		if !ok || f.Kind != link.Arrived && f.Kind != link.Cancelled && f.Kind != link.Rejected {
			continue
		}
		delete(x.pulls, f.ID)
		if f.Kind == link.Arrived {
			p.to.input(engine.KVArrived{ID: p.id})
		} else {
			p.to.input(engine.KVFailed{ID: p.id})
		}
	}
	if at, ok := x.net.Next(); ok && (x.wakeAt == 0 || at < x.wakeAt) {
		x.wakeAt = at
		w.queue.Push(at, machine.ClassTimer, event{kind: wakeNetwork})
	}
}

// transfer takes what an engine says of caches for others.
func (s *server) transfer(e *engine.Effect) {
	switch e.Kind {
	case engine.KVHeld:
		if r := s.requests[e.Request]; r != nil && r.leg != nil {
			kept := *e
			r.leg.held = &kept
		}
	case engine.KVPull:
		s.w.fetch(s, e)
	case engine.KVRelease:
		if n := int(e.From); n >= 0 && n < len(s.w.servers) {
			s.w.servers[n].input(engine.KVReleased{Handle: e.Handle})
		}
	}
}
