package hardware

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Fabric is a link between accelerators: within a node or between nodes.
type Fabric struct {
	Name string
	// BytesPerSecond is the rate in one direction, for one accelerator (within a node) or one node (between nodes).
	BytesPerSecond int64
	// HopNanoseconds is the fixed cost of one step of a collective over the link, with the software's part.
	HopNanoseconds int64
}

// The fabrics by name. NVLink, PCIe and Infinity Fabric figures are the
// vendors', one direction; document 003 (docs/documents.md) counts InfiniBand at 200 Gb/s and
// calls 10–100 Gb/s Ethernet too slow. Hop costs: NCCL measures about 1.5 µs
// per NVLink step and 5 µs over InfiniBand; TCP takes tens.
var (
	NVLink3        = Fabric{"nvlink3", 300e9, 1_500}
	NVLink4        = Fabric{"nvlink4", 450e9, 1_500}
	NVLink5        = Fabric{"nvlink5", 900e9, 1_500}
	PCIe4          = Fabric{"pcie4", 32e9, 3_000}
	PCIe5          = Fabric{"pcie5", 64e9, 3_000}
	InfinityFabric = Fabric{"infinity-fabric", 448e9, 2_000}
	InfiniBand200  = Fabric{"infiniband-200", 25e9, 5_000}
	InfiniBand400  = Fabric{"infiniband-400", 50e9, 5_000}
	RoCE100        = Fabric{"roce-100", 12_500e6, 7_000}
	Ethernet10     = Fabric{"ethernet-10", 1_250e6, 30_000}
	Ethernet25     = Fabric{"ethernet-25", 3_125e6, 30_000}
	Ethernet100    = Fabric{"ethernet-100", 12_500e6, 25_000}
)

var fabrics = []Fabric{NVLink3, NVLink4, NVLink5, PCIe4, PCIe5, InfinityFabric, InfiniBand200, InfiniBand400, RoCE100,
	Ethernet10, Ethernet25, Ethernet100}

// FabricNamed returns the fabric with a name. infiniband, nvlink and ethernet alone are document 003's 200 Gb/s, 300
// GB/s and 100 Gb/s.
func FabricNamed(name string) (Fabric, error) {
	switch key := strings.ToLower(name); key {
	case "infiniband", "ib":
		return InfiniBand200, nil
	case "nvlink":
		return NVLink3, nil
	case "ethernet", "tcp":
		return Ethernet100, nil
	default:
		names := make([]string, len(fabrics))
		for i, f := range fabrics {
			if f.Name == key {
				return f, nil
			}
			names[i] = f.Name
		}
		return Fabric{}, fmt.Errorf("interconnect %q is unknown; expected one of %s", name, strings.Join(names, ", "))
	}
}

// Check returns an error about an invalid fabric in a user's file.
func (f Fabric) Check() error {
	if f.BytesPerSecond < 1e6 || f.BytesPerSecond > 1e14 {
		return fmt.Errorf("interconnect %q: bandwidth is %d bytes/s; expected 1 MB/s to 100 TB/s", f.Name,
			f.BytesPerSecond)
	}
	if f.HopNanoseconds < 0 || f.HopNanoseconds > 1e9 {
		return fmt.Errorf("interconnect %q: a hop costs %d ns; expected 0 to 1 s", f.Name, f.HopNanoseconds)
	}
	return nil
}

// Group is the ranks of a model server, one accelerator each, spread evenly over nodes, with rank 0 as the leader
// (document 003, LocalModel). An engine is one data-parallel rank: TP accelerators, which share its attention and its
// dense layers. All engines of the group together hold the experts.
type Group struct {
	TP int // ranks of one engine
	DP int // engines, vLLM's --data-parallel-size
	// EP spreads whole experts over all ranks (--enable-expert-parallel). Otherwise every rank holds a slice of each.
	EP    bool
	Nodes int
	// Within connects the ranks of a node; Between connects nodes.
	Within, Between Fabric
}

// Ranks returns the number of accelerators, TP times DP.
func (g *Group) Ranks() int { return g.TP * g.DP }

// String returns the sizes, such as "TP 1, DP 4, EP".
func (g *Group) String() string {
	text := fmt.Sprintf("TP %d", g.TP)
	if g.DP > 1 {
		text += fmt.Sprintf(", DP %d", g.DP)
	}
	if g.EP {
		text += ", EP"
	}
	return text
}

// Whole returns the group over which experts are spread: all ranks, as if they were one engine's.
func (g Group) Whole() Group {
	g.TP, g.DP = g.Ranks(), 1
	return g
}

// Check returns an error if the ranks do not fit the nodes or a fabric is invalid.
func (g *Group) Check() error {
	switch {
	case g.TP < 1 || g.TP > 1024:
		return fmt.Errorf("tensor parallel size is %d; expected 1 to 1024", g.TP)
	case g.DP < 1 || g.DP > 1024:
		return fmt.Errorf("data parallel size is %d; expected 1 to 1024", g.DP)
	case g.Nodes < 1 || g.Nodes > g.Ranks() || g.Ranks()%g.Nodes != 0:
		return fmt.Errorf("%d ranks cannot be spread evenly over %d nodes; give a number of nodes that divides "+
			"the tensor parallel size times the data parallel size", g.Ranks(), g.Nodes)
	}
	if err := g.Within.Check(); g.Ranks() > g.Nodes && err != nil {
		return err
	}
	if err := g.Between.Check(); g.Nodes > 1 && err != nil {
		return err
	}
	return nil
}

// nodes returns the number of nodes that one engine's ranks span.
func (g *Group) nodes() int {
	node := g.Ranks() / g.Nodes
	return (g.TP + node - 1) / node
}

// slowest returns the slowest link of a ring through an engine's ranks. A ring over several nodes crosses between them,
// at that rate.
func (g *Group) slowest() Fabric {
	if nodes := g.nodes(); nodes > 1 {
		f := g.Between
		if g.TP > nodes {
			f.BytesPerSecond = min(f.BytesPerSecond, g.Within.BytesPerSecond)
			f.HopNanoseconds = max(f.HopNanoseconds, g.Within.HopNanoseconds)
		}
		return f
	}
	return g.Within
}

// AllReduce returns the nanoseconds of one ring all-reduce of a tensor of that many bytes: 2(N-1) steps, each moving an
// N-th (Patarasuk and Yuan, 2009).
func (g *Group) AllReduce(bytes int64) int64 {
	if g.TP < 2 {
		return 0
	}
	steps := int64(2 * (g.TP - 1))
	wire := g.slowest()
	return steps*wire.HopNanoseconds +
		machine.MulDiv(machine.MulDiv(bytes, steps, int64(g.TP)), 1e9, wire.BytesPerSecond)
}

// AllGather returns the nanoseconds until every rank has the whole of a tensor of that many bytes, starting from an
// N-th on each: half an all-reduce.
func (g *Group) AllGather(bytes int64) int64 { return g.AllReduce(bytes) / 2 }

// Broadcast returns the nanoseconds until the leader's message reaches all ranks: a binomial tree over the nodes, then
// one hop within each.
func (g *Group) Broadcast(bytes int64) int64 {
	if g.TP < 2 {
		return 0
	}
	hop := func(f Fabric) int64 { return f.HopNanoseconds + machine.MulDiv(bytes, 1e9, f.BytesPerSecond) }
	var ns int64
	nodes := g.nodes()
	for reached := 1; reached < nodes; reached *= 2 {
		ns += hop(g.Between)
	}
	if g.TP > nodes {
		ns += hop(g.Within)
	}
	return ns
}
