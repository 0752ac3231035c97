package virtual

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/scenario"
)

// wires carry KV caches between the run's engines: core/link as live has it.
type wires struct {
	slot[link.Message, *link.Effects]

	profile  link.Profile
	topology *link.Topology
	net      *link.Network
	store    link.Store // beside the servers, of connectors that have one
	fx       link.Effects
	next     link.ID
	pulls    map[link.ID]*pull
	by       map[puller]*pull
}

type puller struct {
	server int
	id     engine.RequestID
}

// pull is a cache on its way to a server.
type pull struct {
	to       *server
	from     *server // nil: the external cache
	id       engine.RequestID
	key      string  // what it is asked for by, where it may still have to be computed
	waits    bool    // for that
	link     link.ID // of the transfer
	bytes    int64
	tokens   int
	began    machine.Time
	handle   uint64
	told     bool // the engine knows how it went
	released bool // and needs the holder's blocks no more
	blocking bool // the holder computes nothing meanwhile
	lost     bool // a fault: it arrives, and is no good
}

func newWires(w *world, p *scenario.Pool, servers int) (*wires, error) {
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
	x := &wires{profile: p.Link(), topology: t, net: n, pulls: map[link.ID]*pull{}, by: map[puller]*pull{}}
	x.class = machine.ClassTimer
	x.open(w, n, &x.fx, func(i int) { x.arrived(x.fx.List[i]) })
	return x, nil
}

// fetch begins what an engine asks for with KVPull. A holder that has freed the
// blocks says so at once; one that has still to compute them lets the asker
// wait, for as long as blocks are held.
func (w *world) fetch(to *server, e *engine.Effect) {
	p := &pull{to: to, id: e.Request, bytes: e.Bytes, handle: e.Handle, tokens: int(e.Count), began: w.now}
	writer := -1
	if r := to.requests[e.Request]; r != nil {
		p.lost = r.fault.LoseKV
		p.key = r.asks().fromKey
		if writer = r.writer; !r.stored {
			p.from = w.servers[e.From]
		}
	}
	w.wires.by[puller{to.index, p.id}] = p
	switch {
	case p.from == nil:
		if writer >= 0 {
			w.move(p, func(x *wires) (link.Start, error) {
				return x.profile.Transfer(x.topology, p.link, writer, to.index, p.bytes)
			})
			return
		}
		w.move(p, func(x *wires) (link.Start, error) { return x.profile.FromStore(x.topology, p.link, to.index, p.bytes) })
	case p.key == "":
		w.take(p, p.from.holds[p.handle])
	default:
		handle, there := p.from.named[p.key]
		if there {
			p.handle = handle
			w.take(p, true)
			return
		}
		p.waits = true
		p.from.waiting[p.key] = append(p.from.waiting[p.key], p)
		// Last of its moment: what is computed just then is in time.
		w.queue.Push(w.now.Add(p.from.engine.Config().KVHoldTimeout), machine.ClassTimer, event{kind: tired, pull: p})
	}
}

// take moves a cache that its holder has, or has not.
func (w *world) take(p *pull, has bool) {
	if !has {
		w.over(p, false)
		return
	}
	w.move(p, func(x *wires) (link.Start, error) {
		return x.profile.Transfer(x.topology, p.link, p.from.index, p.to.index, p.bytes)
	})
}

func (w *world) move(p *pull, way func(x *wires) (link.Start, error)) {
	x := w.wires
	x.next++
	p.link = x.next
	start, err := way(x)
	if err != nil {
		w.over(p, false)
		return
	}
	x.pulls[p.link] = p
	x.input(start)
}

// over ends a pull.
func (w *world) over(p *pull, ok bool) {
	delete(w.wires.pulls, p.link)
	delete(w.wires.by, puller{p.to.index, p.id})
	p.block(false)
	if p.released { // it was waited for, or nobody waits
		p.free()
	}
	p.tell(ok)
}

// free gives the holder's blocks back.
func (p *pull) free() {
	if p.from != nil {
		p.from.input(engine.KVReleased{Handle: p.handle})
	}
}

// computed hands a cache to those who wait for it.
func (s *server) computed(key string, handle uint64) {
	if _, twice := s.named[key]; key == "" || twice {
		return
	}
	s.named[key], s.keys[handle] = handle, key
	for _, p := range s.waiting[key] {
		p.waits, p.handle = false, handle
		s.w.take(p, true)
	}
	delete(s.waiting, key)
}

// giveUp ends the wait for a cache.
func (p *pull) giveUp() {
	if p.waits {
		p.waits = false
		p.from.waiting[p.key] = slices.DeleteFunc(p.from.waiting[p.key], func(o *pull) bool { return o == p })
		if len(p.from.waiting[p.key]) == 0 {
			delete(p.from.waiting, p.key)
		}
		p.to.w.over(p, false)
	}
}

// release gives a holder's blocks back. A transfer that nobody waits for any
// more is broken off; of a pipelined one the rest still comes out of them.
func (w *world) release(to *server, e *engine.Effect) {
	p := w.wires.by[puller{to.index, e.Request}]
	switch {
	case p == nil: // nothing was fetched
		p = &pull{from: w.servers[e.From], handle: e.Handle}
		if r := to.requests[e.Request]; r != nil && r.stored {
			return
		} else if r != nil && r.asks().fromKey != "" {
			p.handle = p.from.named[r.asks().fromKey]
		}
		p.free()
	case p.waits:
		p.told = true
		p.giveUp()
	case !p.told:
		p.told, p.released = true, true
		w.wires.input(link.Cancel{ID: p.link})
	default:
		p.released = true
	}
}

// arrived tells engines what has become of their transfers.
func (x *wires) arrived(f link.Effect) {
	p := x.pulls[f.ID]
	if p == nil {
		return
	}
	switch f.Kind {
	case link.Began:
		p.block(x.profile.Blocking)
	case link.Usable:
		p.tell(true)
	case link.Arrived, link.Cancelled, link.Rejected:
		x.w.over(p, f.Kind == link.Arrived)
	}
}

func (p *pull) tell(ok bool) {
	if p.told {
		return
	}
	p.told = true
	if ok && !p.lost {
		p.to.stats.Fetched(p.tokens, p.to.engine.Config().BlockSize, p.bytes, 0, (p.to.w.now - p.began).Seconds())
		p.to.input(engine.KVArrived{ID: p.id})
	} else {
		p.to.stats.FetchFailed(1)
		p.to.input(engine.KVFailed{ID: p.id})
	}
}

// block keeps the holder's engine from its next step, or lets it go on.
func (p *pull) block(on bool) {
	if p.blocking == on || p.from == nil {
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
			s.computed(r.asks().key, e.Handle)
		}
	case engine.KVFreed:
		delete(s.holds, e.Handle)
		delete(s.named, s.keys[e.Handle])
		delete(s.keys, e.Handle)
	case engine.KVPull:
		s.w.fetch(s, e)
	case engine.KVRelease:
		s.w.release(s, e)
	}
}
