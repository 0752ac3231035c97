package modelserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
)

// TransferOptions say how KV caches travel between servers.
type TransferOptions struct {
	// Profile is the connector; the zero value is link.NIXLv2.
	Profile link.Profile
	// NIC joins each server to the network; the zero value is infiniband-200.
	NIC link.Wire
	// Store joins the external cache of LMCache; the zero value is a wire like
	// NIC.
	Store link.Wire
}

// network moves KV caches between a fleet's servers, and from servers that are
// not of the fleet, over shared links: core/link, driven in wall time by one
// goroutine that lives while something moves.
type network struct {
	profile  link.Profile
	topology *link.Topology
	clock    func() machine.Time

	mu      sync.Mutex
	net     *link.Network
	fx      link.Effects
	waiting map[link.ID]*transfer
	// sending tells a server that a connector which blocks it began (1) or
	// ended (-1) to send its KV.
	sending func(node, by int)
	next    link.ID
	running bool
	wake    chan struct{}
}

func newNetwork(o TransferOptions, servers int, clock func() machine.Time) (*network, error) {
	if o.Profile.Name == "" {
		o.Profile = link.NIXLv2
	}
	if o.NIC.BytesPerSecond == 0 {
		wire, err := link.WireNamed("infiniband-200")
		if err != nil {
			return nil, err
		}
		o.NIC = wire
	}
	if o.Store.BytesPerSecond == 0 {
		o.Store = o.NIC
	}
	// The last node stands for every server that is not of the fleet.
	t, err := link.NewTopology(link.TopologyConfig{Nodes: servers + 1, NIC: o.NIC, Store: o.Store})
	if err != nil {
		return nil, err
	}
	n, err := link.New(t.Links())
	if err != nil {
		return nil, err
	}
	return &network{profile: o.Profile, topology: t, clock: clock, net: n, waiting: map[link.ID]*transfer{}, wake: make(chan struct{}, 1)}, nil
}

// transfer is a cache on its way.
type transfer struct {
	from    int
	blocks  bool      // the sender is blocked
	bytes   int64     // over the wire
	usable  chan bool // whether decoding may begin: all of it is there, or of a pipelined connector enough
	whole   chan struct{}
	blocked bool // now
	told    bool // usable was
}

// move carries a cache from one node to another, or with a from of -1 out of
// the external cache, and returns when decoding may begin. What is then still to come goes on without the context; whole of the
// transfer is closed when it is there.
func (n *network) move(ctx context.Context, from, to int, cacheBytes int64) (*transfer, error) {
	n.mu.Lock()
	n.next++
	id := n.next
	start, err := n.profile.Transfer(n.topology, id, from, to, cacheBytes)
	if from < 0 {
		start, err = n.profile.FromStore(n.topology, id, to, cacheBytes)
	}
	if err != nil {
		n.mu.Unlock()
		return nil, err
	}
	x := &transfer{from: from, blocks: n.profile.Blocking, bytes: start.Bytes, usable: make(chan bool, 1), whole: make(chan struct{})}
	n.waiting[id] = x
	n.net.Input(n.clock(), start, &n.fx)
	n.deliver()
	n.drive()
	n.mu.Unlock()
	select {
	case ok := <-x.usable:
		if !ok {
			return nil, fmt.Errorf("a transfer of %d bytes was not taken by the network", cacheBytes)
		}
		return x, nil
	case <-ctx.Done():
		n.mu.Lock()
		n.net.Input(n.clock(), link.Cancel{ID: id}, &n.fx)
		n.deliver()
		n.mu.Unlock()
		return nil, ctx.Err()
	}
}

// drive makes sure that somebody wakes the network; n.mu is held.
func (n *network) drive() {
	if n.running {
		select {
		case n.wake <- struct{}{}:
		default:
		}
		return
	}
	if _, ok := n.net.Next(); ok {
		n.running = true
		go n.run()
	}
}

func (n *network) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		n.mu.Lock()
		n.net.Advance(n.clock(), &n.fx)
		n.deliver()
		at, ok := n.net.Next()
		if !ok {
			n.running = false
			n.mu.Unlock()
			return
		}
		wait := (at - n.clock()).Duration()
		n.mu.Unlock()
		timer.Reset(max(0, wait))
		select {
		case <-timer.C:
		case <-n.wake:
		}
	}
}

// deliver tells those who wait; n.mu is held.
func (n *network) deliver() {
	for _, f := range n.fx.List {
		x := n.waiting[f.ID]
		if x == nil {
			continue
		}
		switch f.Kind {
		case link.Began:
			n.block(x, x.blocks)
		case link.Usable:
			x.tell(true)
		case link.Arrived, link.Cancelled, link.Rejected:
			n.block(x, false)
			x.tell(f.Kind == link.Arrived)
			close(x.whole)
			delete(n.waiting, f.ID)
		}
	}
	n.fx.Reset()
}

func (x *transfer) tell(ok bool) {
	if !x.told {
		x.told = true
		x.usable <- ok
	}
}

// block keeps the sender's engine from its next step, or lets it go on.
func (n *network) block(x *transfer, on bool) {
	if x.blocked == on {
		return
	}
	x.blocked = on
	by := -1
	if on {
		by = 1
	}
	n.sending(x.from, by)
}
