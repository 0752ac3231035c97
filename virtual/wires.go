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
	pulls    map[link.ID]*pull
	by       map[puller]link.ID
	wakeAt   machine.Time
}

type puller struct {
	server int
	id     engine.RequestID
}

// pull is a cache on its way to a server.
type pull struct {
	to       *server
	from     *server
	id       engine.RequestID
	handle   uint64
	told     bool // the engine knows how it went
	released bool // and needs the holder's blocks no more
	blocking bool // the holder computes nothing meanwhile
	lost     bool // a fault: it arrives, and is no good
}

func newWires(p *scenario.Pool, servers int) (*wires, error) {
	nic, err := p.NIC()
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	t, err := link.NewTopology(link.TopologyConfig{Nodes: servers, NIC: nic, Store: nic})
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	n, err := link.New(t.Links())
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	return &wires{profile: p.Link(), topology: t, net: n, pulls: map[link.ID]*pull{}, by: map[puller]link.ID{}}, nil
}

// fetch begins what an engine asks for with KVPull. A holder that has freed the
// blocks says so at once.
func (w *world) fetch(to *server, e *engine.Effect) {
	x := w.wires
	from := w.servers[e.From]
	if !from.holds[e.Handle] {
		to.input(engine.KVFailed{ID: e.Request})
		return
	}
	x.next++
	start, err := x.profile.Transfer(x.topology, x.next, from.index, to.index, e.Bytes)
	if err != nil {
		to.input(engine.KVFailed{ID: e.Request})
		return
	}
	p := &pull{to: to, from: from, id: e.Request, handle: e.Handle}
	if r := to.requests[e.Request]; r != nil {
		p.lost = r.fault.LoseKV
	}
	x.pulls[x.next], x.by[puller{to.index, p.id}] = p, x.next
	x.net.Input(w.now, start, &x.fx)
	w.carried()
}

// release gives a holder's blocks back. A transfer that nobody waits for any
// more is broken off; of a pipelined one the rest still comes out of them.
func (w *world) release(to *server, e *engine.Effect) {
	x := w.wires
	id, moving := x.by[puller{to.index, e.Request}]
	if !moving {
		if n := int(e.From); n >= 0 && n < len(w.servers) {
			w.servers[n].input(engine.KVReleased{Handle: e.Handle})
		}
		return
	}
	p := x.pulls[id]
	p.released = true
	if !p.told {
		p.told = true
		x.net.Input(w.now, link.Cancel{ID: id}, &x.fx)
		w.carried()
	}
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
		p := x.pulls[f.ID]
		if p == nil {
			continue
		}
		switch f.Kind {
		case link.Began:
			p.block(x.profile.Blocking)
		case link.Usable:
			p.tell(true)
		case link.Arrived, link.Cancelled, link.Rejected:
			delete(x.pulls, f.ID)
			delete(x.by, puller{p.to.index, p.id})
			p.block(false)
			if p.released { // it was waited for, or nobody waits
				p.from.input(engine.KVReleased{Handle: p.handle})
			}
			p.tell(f.Kind == link.Arrived)
		}
	}
	if at, ok := x.net.Next(); ok && (x.wakeAt == 0 || at < x.wakeAt) {
		x.wakeAt = at
		w.queue.Push(at, machine.ClassTimer, event{kind: wakeNetwork})
	}
}

func (p *pull) tell(ok bool) {
	if p.told {
		return
	}
	p.told = true
	if ok && !p.lost {
		p.to.input(engine.KVArrived{ID: p.id})
	} else {
		p.to.input(engine.KVFailed{ID: p.id})
	}
}

// block keeps the holder's engine from its next step, or lets it go on.
func (p *pull) block(on bool) {
	if p.blocking == on {
		return
	}
	p.blocking = on
	by := -1
	if on {
		by = 1
	}
	p.from.input(engine.KVSending{By: by})
}

// transfer takes what an engine says of caches for others.
func (s *server) transfer(e *engine.Effect) {
	switch e.Kind {
	case engine.KVHeld:
		s.holds[e.Handle] = true
		if r := s.requests[e.Request]; r != nil {
			kept := *e
			r.held = &kept
		}
	case engine.KVFreed:
		delete(s.holds, e.Handle)
	case engine.KVPull:
		s.w.fetch(s, e)
	case engine.KVRelease:
		s.w.release(s, e)
	}
}
