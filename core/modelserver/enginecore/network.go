package enginecore

import (
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// NetworkConfig describes the network between the servers of a fleet.
type NetworkConfig struct {
	// Profile is the connector; the zero value is NIXL v2's.
	Profile link.Profile
	// NIC is each server's link to the network; the zero value is infiniband-200.
	NIC link.Wire
	// Store is the external cache's link; the zero value is a link like NIC.
	Store link.Wire
	// Deviation is the standard deviation of a transfer's duration, drawn with Seed; 0 is none.
	Deviation machine.Time
	Seed      uint64
	// Engines lists the EngineIDs of the servers, in the order of their Index.
	Engines []string
}

// Network moves KV caches between a fleet's servers, and from servers outside the fleet, over shared links
// (core/kv/link). It also contains the external cache. It is a machine.Machine[NetworkMessage, *NetworkEffects].
type Network struct {
	c        NetworkConfig
	topology *link.Topology
	net      *link.Network
	now      machine.Time
	fx       link.Effects
	store    link.Store
	moves    map[link.ID]*move
	broken   map[int]bool // servers whose wires lose everything
	ids      map[mover]link.ID
	next     link.ID
}

type mover struct {
	to   int
	call Call
}

// move is a running transfer of a cache.
type move struct {
	mover
	from    int // -1: a server outside the fleet
	bytes   int64
	blocked bool // the transfer blocks the sender
}

// NewNetwork returns a network without transfers.
func NewNetwork(c NetworkConfig) (*Network, error) {
	if c.Profile.Name == "" {
		c.Profile = connector.NIXLv2.Profile
	}
	if c.NIC.BytesPerSecond == 0 {
		var err error
		if c.NIC, err = link.WireNamed("infiniband-200"); err != nil {
			return nil, err
		}
	}
	if c.Store.BytesPerSecond == 0 {
		c.Store = c.NIC
	}
	// The last node stands for all servers outside the fleet.
	t, err := link.NewTopology(link.TopologyConfig{Nodes: len(c.Engines) + 1, NIC: c.NIC, Store: c.Store})
	if err != nil {
		return nil, err
	}
	n, err := link.New(t.Links())
	if err != nil {
		return nil, err
	}
	return &Network{c: c, topology: t, net: n, moves: map[link.ID]*move{}, broken: map[int]bool{},
		ids: map[mover]link.ID{}}, nil
}

// Profile is the connector.
func (n *Network) Profile() *link.Profile { return &n.c.Profile }

// InFlight returns the number of running transfers.
func (n *Network) InFlight() int { return len(n.moves) }

// Busiest returns the utilization until now of the link with the highest one, as a share of its reachable bandwidth,
// from 0 to 1.
func (n *Network) Busiest(now machine.Time) (share float64) {
	for i := range n.topology.Links() {
		l := n.net.Link(link.LinkID(i))
		if reached := float64(l.Reached()) * now.Seconds(); reached > 0 {
			share = max(share, float64(n.net.Carried(link.LinkID(i)))/reached)
		}
	}
	return min(share, 1)
}

// NetworkMessage is an input of a Network. Cores send all of them, as effects.
type NetworkMessage interface {
	Action
	apply(n *Network, fx *NetworkEffects)
}

type (
	// Move transfers a cache to server number To. Moved follows, until all of it has arrived or the transfer has
	// failed.
	Move struct {
		To   int
		Call Call
		// From is the engine that holds the cache. If From is empty and Stored is set, the external cache holds it.
		From   string
		Stored bool
		Bytes  int64 // of the cache
	}
	// Cancel ends a Move, which then reports Failed.
	Cancel struct {
		To   int
		Call Call
	}
	// LookUp asks for the number of these blocks that the external cache has. Found answers.
	LookUp struct {
		To     int
		Call   Call
		Hashes []uint64
	}
	// Put writes the blocks of a prompt to the external cache.
	Put struct {
		From   int
		Hashes []uint64
	}
	// Break fails all transfers to and from server number Of. With Stay it also fails all that begin until Mend.
	Break struct {
		Of   int
		Stay bool
	}
	// Mend ends the losses of server number Of.
	Mend struct{ Of int }
)

func (Move) action()                                {}
func (Cancel) action()                              {}
func (LookUp) action()                              {}
func (Put) action()                                 {}
func (Break) action()                               {}
func (Mend) action()                                {}
func (m Move) apply(n *Network, fx *NetworkEffects) { n.move(n.now, &m, fx) }
func (m Put) apply(n *Network, _ *NetworkEffects)   { n.store.Put(m.Hashes, m.From) }
func (m Mend) apply(n *Network, _ *NetworkEffects)  { delete(n.broken, m.Of) }

func (m Cancel) apply(n *Network, _ *NetworkEffects) {
	if id, ok := n.ids[mover{m.To, m.Call}]; ok {
		n.net.Input(n.now, link.Cancel{ID: id}, &n.fx)
	}
}

func (m LookUp) apply(n *Network, fx *NetworkEffects) {
	count, writer := n.store.Find(m.Hashes, m.To)
	f := Found{Call: m.Call, Blocks: count}
	if writer >= 0 {
		f.Writer = n.c.Engines[writer]
	}
	fx.Add(Delivery{n.now, m.To, f})
}

func (m Break) apply(n *Network, _ *NetworkEffects) {
	n.broken[m.Of] = m.Stay
	for _, id := range slices.Sorted(maps.Keys(n.moves)) {
		if x := n.moves[id]; x.to == m.Of || x.from == m.Of {
			n.net.Input(n.now, link.Cancel{ID: id}, &n.fx)
		}
	}
}

// Progress is the state of a Move.
type Progress uint8

const (
	// Usable: enough of a pipelined transfer has arrived to begin decoding.
	Usable Progress = iota
	// Arrived: all of the cache has arrived.
	Arrived
	// Failed: the rest will not arrive.
	Failed
)

// Delivery is an effect of a Network: a message for server number To.
type Delivery struct {
	At      machine.Time
	To      int
	Message Message
}

// Due returns the time at which the effect was due.
func (d Delivery) Due() machine.Time { return d.At }

// NetworkEffects collects a Network's effects.
type NetworkEffects = machine.Effects[Delivery]

// Next returns the time of the next arrival.
func (n *Network) Next() (machine.Time, bool) { return n.net.Next() }

// Advance processes everything that is due by now.
func (n *Network) Advance(now machine.Time, fx *NetworkEffects) {
	n.now = max(n.now, now)
	n.net.Advance(n.now, &n.fx)
	n.deliver(fx)
}

// Input processes everything that is due, and then a message.
func (n *Network) Input(now machine.Time, m NetworkMessage, fx *NetworkEffects) {
	n.Advance(now, fx)
	m.apply(n, fx)
	n.deliver(fx)
}

func (n *Network) move(now machine.Time, m *Move, fx *NetworkEffects) {
	n.next++
	x := &move{mover: mover{m.To, m.Call}, from: slices.Index(n.c.Engines, m.From)}
	var start link.Start
	var err error
	switch {
	case m.From == "" && m.Stored:
		start, err = n.c.Profile.FromStore(n.topology, n.next, m.To, m.Bytes)
	case x.from < 0:
		start, err = n.c.Profile.Transfer(n.topology, n.next, len(n.c.Engines), m.To, m.Bytes)
	default:
		start, err = n.c.Profile.Transfer(n.topology, n.next, x.from, m.To, m.Bytes)
	}
	if err != nil || n.broken[m.To] || n.broken[x.from] {
		fx.Add(Delivery{now, m.To, Moved{Call: m.Call, How: Failed}})
		return
	}
	d := machine.NewDraw(n.c.Seed, "network", "transfer", uint64(n.next))
	start.Vary(&d, n.c.Deviation)
	x.bytes = start.Bytes
	n.moves[n.next], n.ids[x.mover] = x, n.next
	n.net.Input(now, start, &n.fx)
}

// deliver reports to servers the progress of their transfers.
func (n *Network) deliver(fx *NetworkEffects) {
	for i := range n.fx.List {
		f := &n.fx.List[i]
		x := n.moves[f.ID]
		if x == nil {
			continue
		}
		how := Failed
		switch f.Kind {
		case link.Began:
			n.block(f.At, x, n.c.Profile.Blocking, fx)
			continue
		case link.Usable:
			how = Usable
		case link.Arrived:
			how = Arrived
		}
		if how != Usable {
			n.block(f.At, x, false, fx)
			delete(n.moves, f.ID)
			delete(n.ids, x.mover)
		}
		fx.Add(Delivery{f.At, x.to, Moved{x.call, how, x.bytes}})
	}
	n.fx.Reset()
}

// block blocks the next step of the sender's engine, or unblocks it.
func (n *Network) block(at machine.Time, x *move, on bool, fx *NetworkEffects) {
	if x.blocked == on || x.from < 0 {
		return
	}
	x.blocked = on
	by := -1
	if on {
		by = 1
	}
	fx.Add(Delivery{at, x.from, Sending{By: by}})
}
