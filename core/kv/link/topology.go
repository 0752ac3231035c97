package link

import (
	"cmp"
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Wire is a kind of link: what a NIC, a rack's uplink or a store is made of.
type Wire struct {
	BytesPerSecond int64
	Latency        machine.Time
	RDMA           bool
}

// Wires by name: what clusters that serve models are built of. The rates are
// the line rates; latencies are those of one hop through NIC and switch as
// vendors and perftest give them (InfiniBand 1–2 µs, RoCE 3 µs, TCP 30 µs).
var wires = []struct {
	Name string
	Wire
}{
	{"infiniband-200", Wire{25e9, 2 * machine.Microsecond, true}},
	{"infiniband-400", Wire{50e9, 2 * machine.Microsecond, true}},
	{"roce-100", Wire{12_500e6, 3 * machine.Microsecond, true}},
	{"roce-200", Wire{25e9, 3 * machine.Microsecond, true}},
	{"ethernet-10", Wire{1_250e6, 30 * machine.Microsecond, false}},
	{"ethernet-25", Wire{3_125e6, 30 * machine.Microsecond, false}},
	{"ethernet-100", Wire{12_500e6, 30 * machine.Microsecond, false}},
	{"nvlink", Wire{300e9, machine.Microsecond, true}},
	{"pcie-5", Wire{50e9, 2 * machine.Microsecond, true}},
}

// WireNamed looks a wire up.
func WireNamed(name string) (Wire, error) {
	names := ""
	for _, w := range wires {
		if w.Name == name {
			return w.Wire, nil
		}
		names += " " + w.Name
	}
	return Wire{}, fmt.Errorf("wire %q is unknown; expected one of%s", name, names)
}

// TopologyConfig lays a cluster out. Nodes are numbered from 0 and fill racks
// in order.
type TopologyConfig struct {
	Nodes        int
	NodesPerRack int // 0 is one rack for all
	// NIC joins a node to its rack's switch; Uplink a rack to the others, shared
	// by all its nodes; Inside joins the model servers of one node; Store joins
	// the external cache of LMCache to the network. Each is one wire in each
	// direction. Without Uplink racks are joined without a bottleneck; without
	// Inside transfers within a node use the NIC.
	NIC, Uplink, Inside, Store Wire
}

// Topology knows the links of a cluster and the paths over them.
type Topology struct {
	config TopologyConfig
	links  []Link
	uplink LinkID // first of the racks' links
	inside LinkID // first of the nodes' inner links
	store  LinkID // the store's two
}

// NewTopology checks a layout and numbers its links.
func NewTopology(c TopologyConfig) (*Topology, error) {
	if c.Nodes < 1 || c.Nodes > 100_000 || c.NodesPerRack < 0 {
		return nil, fmt.Errorf("topology: %d nodes, %d per rack; expected 1 to 100000 nodes and 0 or more per rack",
			c.Nodes, c.NodesPerRack)
	}
	if c.NIC.BytesPerSecond == 0 {
		return nil, fmt.Errorf("topology: the nodes have no NIC; name one, such as infiniband-200")
	}
	c.NodesPerRack = cmp.Or(c.NodesPerRack, c.Nodes)
	t := &Topology{config: c, uplink: -1, inside: -1, store: -1}
	pair := func(w Wire, name string) LinkID {
		first := LinkID(len(t.links))
		t.links = append(t.links, Link{name + " out", w.BytesPerSecond, w.Latency, w.RDMA},
			Link{name + " in", w.BytesPerSecond, w.Latency, w.RDMA})
		return first
	}
	for i := range c.Nodes {
		pair(c.NIC, fmt.Sprintf("node %d nic", i))
	}
	if racks := (c.Nodes + c.NodesPerRack - 1) / c.NodesPerRack; c.Uplink.BytesPerSecond > 0 && racks > 1 {
		t.uplink = LinkID(len(t.links))
		for i := range racks {
			pair(c.Uplink, fmt.Sprintf("rack %d uplink", i))
		}
	}
	if c.Inside.BytesPerSecond > 0 {
		t.inside = LinkID(len(t.links))
		for i := range c.Nodes {
			pair(c.Inside, fmt.Sprintf("node %d inside", i))
		}
	}
	if c.Store.BytesPerSecond > 0 {
		t.store = pair(c.Store, "store")
	}
	return t, nil
}

// Links returns the links for New.
func (t *Topology) Links() []Link { return t.links }

// Rack returns the rack that a node stands in.
func (t *Topology) Rack(node int) int { return node / t.config.NodesPerRack }

// Route is a path with the common properties of its wires.
type Route struct {
	Path           []LinkID
	Latency        machine.Time
	RDMA           bool  // on every wire
	BytesPerSecond int64 // of the narrowest wire
}

// Between returns the way from one node to another, or within one.
func (t *Topology) Between(from, to int) (Route, error) {
	if from < 0 || to < 0 || from >= t.config.Nodes || to >= t.config.Nodes {
		return Route{}, fmt.Errorf("topology: no way from node %d to node %d; there are %d nodes", from, to,
			t.config.Nodes)
	}
	switch {
	case from == to && t.inside >= 0:
		return t.route(t.inside + LinkID(2*from)), nil
	case t.uplink >= 0 && t.Rack(from) != t.Rack(to):
		return t.route(LinkID(2*from), t.uplink+LinkID(2*t.Rack(from)), t.uplink+LinkID(2*t.Rack(to)+1),
			LinkID(2*to+1)), nil
	}
	return t.route(LinkID(2*from), LinkID(2*to+1)), nil
}

// ToStore returns the way from a node to the external cache.
func (t *Topology) ToStore(from int) (Route, error) { return t.viaStore(from, 0) }

// FromStore returns the way from the external cache to a node.
func (t *Topology) FromStore(to int) (Route, error) { return t.viaStore(to, 1) }

func (t *Topology) viaStore(node, direction int) (Route, error) {
	switch {
	case t.store < 0:
		return Route{}, fmt.Errorf("topology: there is no store; lmcache and shared-storage need one")
	case node < 0 || node >= t.config.Nodes:
		return Route{}, fmt.Errorf("topology: no node %d; there are %d", node, t.config.Nodes)
	case direction == 0:
		return t.route(LinkID(2*node), t.store+1), nil
	}
	return t.route(t.store, LinkID(2*node+1)), nil
}

func (t *Topology) route(path ...LinkID) Route {
	r := Route{Path: path, RDMA: true, BytesPerSecond: MaxBandwidth}
	for _, l := range path {
		r.Latency += t.links[l].Latency
		r.RDMA = r.RDMA && t.links[l].RDMA
		r.BytesPerSecond = min(r.BytesPerSecond, t.links[l].BytesPerSecond)
	}
	return r
}
