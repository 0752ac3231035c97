package modelserver

import (
	"context"
	"fmt"

	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
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
// not of the fleet, over shared links: core/link, driven in wall time.
type network struct {
	profile  link.Profile
	topology *link.Topology
	drive    *drive.Driver[link.Message, *link.Effects]

	// The following are for who has the network in hand.
	net     *link.Network
	waiting map[link.ID]*transfer
	next    link.ID
	// sending tells a server that a connector which blocks it began (1) or
	// ended (-1) to send its KV.
	sending func(node, by int)
}

func newNetwork(o TransferOptions, servers int, clock func() machine.Time, sending func(node, by int)) (*network, error) {
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
	x := &network{profile: o.Profile, topology: t, net: n, waiting: map[link.ID]*transfer{}, sending: sending}
	x.drive = drive.New(drive.Options[link.Message, *link.Effects]{Machine: n, Effects: new(link.Effects), Now: clock, Carry: x.carry})
	return x, nil
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
// the external cache, and returns when decoding may begin. What is then still to
// come goes on without the context; whole of the transfer is closed when it is
// there.
func (n *network) move(ctx context.Context, from, to int, cacheBytes int64) (x *transfer, err error) {
	var id link.ID
	n.drive.With(func(now machine.Time, fx *link.Effects) {
		n.next++
		id = n.next
		var start link.Start
		if from < 0 {
			start, err = n.profile.FromStore(n.topology, id, to, cacheBytes)
		} else {
			start, err = n.profile.Transfer(n.topology, id, from, to, cacheBytes)
		}
		if err == nil {
			x = &transfer{from: from, blocks: n.profile.Blocking, bytes: start.Bytes, usable: make(chan bool, 1), whole: make(chan struct{})}
			n.waiting[id] = x
			n.net.Input(now, start, fx)
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case ok := <-x.usable:
		if !ok {
			return nil, fmt.Errorf("a transfer of %d bytes was not taken by the network", cacheBytes)
		}
		return x, nil
	case <-ctx.Done():
		n.drive.Input(link.Cancel{ID: id})
		return nil, ctx.Err()
	}
}

// carry tells those who wait.
func (n *network) carry(_ machine.Time, fx *link.Effects, i int) {
	f := &fx.List[i]
	x := n.waiting[f.ID]
	if x == nil {
		return
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
