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
	waiting map[link.ID]chan bool
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
	return &network{profile: o.Profile, topology: t, clock: clock, net: n, waiting: map[link.ID]chan bool{}, wake: make(chan struct{}, 1)}, nil
}

// move carries a cache from one node to another and returns when it is there,
// and how many bytes went over the wire.
func (n *network) move(ctx context.Context, from, to int, cacheBytes int64) (int64, error) {
	done := make(chan bool, 1)
	n.mu.Lock()
	n.next++
	id := n.next
	start, err := n.profile.Transfer(n.topology, id, from, to, cacheBytes)
	if err != nil {
		n.mu.Unlock()
		return 0, err
	}
	n.waiting[id] = done
	n.net.Input(n.clock(), start, &n.fx)
	n.deliver()
	n.drive()
	n.mu.Unlock()
	select {
	case ok := <-done:
		if !ok {
			return 0, fmt.Errorf("a transfer of %d bytes was not taken by the network", cacheBytes)
		}
		return start.Bytes, nil
	case <-ctx.Done():
		n.mu.Lock()
		n.net.Input(n.clock(), link.Cancel{ID: id}, &n.fx)
		n.deliver()
		n.mu.Unlock()
		return 0, ctx.Err()
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
		switch f.Kind {
		case link.Arrived, link.Cancelled, link.Rejected:
			if done, ok := n.waiting[f.ID]; ok {
				done <- f.Kind == link.Arrived
				delete(n.waiting, f.ID)
			}
		}
	}
	n.fx.Reset()
}
