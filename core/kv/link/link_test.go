package link

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

type input struct {
	At  machine.Time
	Msg Message
}

func drawNetwork(t *rapid.T) ([]Link, []input) {
	links := make([]Link, rapid.IntRange(1, 6).Draw(t, "links"))
	for i := range links {
		links[i] = Link{Name: fmt.Sprint(i), BytesPerSecond: rapid.Int64Range(MinBandwidth, 4e7).Draw(t, "bandwidth")}
	}
	var inputs []input
	var at machine.Time
	for id := range rapid.IntRange(1, 40).Draw(t, "messages") {
		at += machine.Time(rapid.Int64Range(0, 3e7).Draw(t, "gap"))
		switch rapid.IntRange(0, 9).Draw(t, "what") {
		case 0:
			inputs = append(inputs, input{at, Cancel{ID(rapid.IntRange(0, id).Draw(t, "cancelled"))}})
			continue
		case 1:
			inputs = append(inputs, input{at,
				Change{LinkID(rapid.IntRange(0, len(links)-1).Draw(t, "changed")),
					rapid.Int64Range(MinBandwidth, 4e7).Draw(t, "to")}})
			continue
		}
		s := Start{ID: ID(id), Bytes: rapid.Int64Range(0, 1e6).Draw(t, "bytes"),
			Serial: uint64(rapid.IntRange(0, 2).Draw(t, "serial"))}
		s.UsableBytes = rapid.Int64Range(0, s.Bytes).Draw(t, "usable")
		for range rapid.IntRange(1, 2).Draw(t, "legs") {
			var path []LinkID
			for l := range links {
				if rapid.Bool().Draw(t, "crosses") {
					path = append(path, LinkID(l))
				}
			}
			leg := Leg{Path: path, Delay: machine.Time(rapid.Int64Range(0, 1e6).Draw(t, "delay"))}
			if rapid.Bool().Draw(t, "capped") {
				leg.BytesPerSecond = rapid.Int64Range(MinBandwidth, 2e7).Draw(t, "cap")
			}
			s.Legs = append(s.Legs, leg)
		}
		inputs = append(inputs, input{at, s})
	}
	return links, inputs
}

// play drives a network as virtual time does, and looks at it at every event.
func play(t *rapid.T, links []Link, inputs []input, look func(*Network)) (*Network, []Effect) {
	n, err := New(links)
	if err != nil {
		t.Fatal(err)
	}
	var fx Effects
	until := func(limit machine.Time) {
		for {
			at, ok := n.Next()
			if !ok || at > limit {
				return
			}
			before := len(fx.List)
			n.Advance(at, &fx)
			for _, e := range fx.List[before:] {
				if e.At != at {
					t.Fatalf("%v of %d was due at %v, Next said %v", e.Kind, e.ID, e.At, at)
				}
			}
			if next, ok := n.Next(); ok && next <= at {
				t.Fatalf("after %v Next is %v", at, next)
			}
			look(n)
		}
	}
	for _, in := range inputs {
		until(in.At)
		n.Input(in.At, in.Msg, &fx)
		look(n)
	}
	until(machine.Never - 1)
	return n, fx.List
}

// Links are never overfull, and shares are max-min fair: every transfer is at
// its cap, or crosses a full link on which nobody has more.
func checkFair(t *rapid.T, n *Network) {
	used := make([]int64, len(n.links))
	most := make([]int64, len(n.links))
	for l := range n.links {
		for _, id := range n.links[l].flows {
			used[l] += n.flows[id].rate
			most[l] = max(most[l], n.flows[id].rate)
		}
		if used[l] > n.links[l].capacity {
			t.Fatalf("link %d: %d of %d units/ns in use", l, used[l], n.links[l].capacity)
		}
	}
	for _, id := range n.byID {
		f := &n.flows[id]
		if f.phase != moving || f.limit > 0 && f.rate == f.limit {
			continue
		}
		bottleneck := false
		for _, l := range f.start.Legs[f.leg].Path {
			full := n.links[l].capacity-used[l] < int64(len(n.links[l].flows))
			bottleneck = bottleneck || full && f.rate == most[l]
		}
		if !bottleneck {
			t.Fatalf("transfer %d at %d units/ns has no bottleneck: used %v most %v", f.start.ID, f.rate, used, most)
		}
	}
}

func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		links, inputs := drawNetwork(t)
		n, effects := play(t, links, inputs, func(n *Network) { checkFair(t, n) })

		starts := map[ID]Start{}
		for _, in := range inputs {
			if s, ok := in.Msg.(Start); ok {
				starts[s.ID] = s
			}
		}
		carried := make([]uint64, len(links))
		ends := map[ID]int{}
		var last machine.Time
		for _, e := range effects {
			if e.At < last {
				t.Fatalf("effect at %v after one at %v", e.At, last)
			}
			last = e.At
			s := starts[e.ID]
			count := func(leg int, moved int64) {
				for _, l := range s.Legs[leg].Path {
					carried[l] += uint64(moved)
				}
			}
			switch e.Kind {
			case Began:
				if e.Leg > 0 {
					count(e.Leg-1, s.Bytes)
				}
				continue
			case Usable:
				if e.Moved < s.UsableBytes {
					t.Fatalf("usable with %d of %d bytes", e.Moved, s.UsableBytes)
				}
				continue
			case Arrived:
				if e.Moved != s.Bytes {
					t.Fatalf("transfer %d arrived with %d of %d bytes", e.ID, e.Moved, s.Bytes)
				}
				count(e.Leg, e.Moved)
			case Cancelled:
				count(e.Leg, e.Moved)
			}
			ends[e.ID]++
		}
		for id := range starts {
			if ends[id] != 1 {
				t.Fatalf("transfer %d ended %d times", id, ends[id])
			}
		}
		if n.InFlight() != 0 || n.heap.Len() != 0 || len(n.serial) != 0 {
			t.Fatalf("%d in flight, %d due, %d queues at the end", n.InFlight(), n.heap.Len(), len(n.serial))
		}
		for l := range links {
			if len(n.links[l].flows) != 0 {
				t.Fatalf("link %d still has transfers", l)
			}
			// A transfer cancelled between two legs has nothing of the second, and
			// its first leg was not seen above.
			if n.Carried(LinkID(l)) < carried[l] {
				t.Fatalf("link %d carried %d bytes, transfers moved %d", l, n.Carried(LinkID(l)), carried[l])
			}
		}
	})
}

// A driver that wakes late, or only for its own messages, sees the same
// effects as one that wakes for each.
func TestLateDriver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		links, inputs := drawNetwork(t)
		_, want := play(t, links, inputs, func(*Network) {})
		n, _ := New(links)
		var fx Effects
		for _, in := range inputs {
			n.Input(in.At, in.Msg, &fx)
		}
		n.Advance(machine.Never-1, &fx)
		if diff := cmp.Diff(want, fx.List); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Equal transfers over one path end in the order in which they began, and the
// link is busy to the end: all bytes at full bandwidth, whatever the overlap.
func TestEqualTransfers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bandwidth = 25e9
		n, _ := New([]Link{{Name: "nic", BytesPerSecond: bandwidth}})
		bytes := rapid.Int64Range(1, 1e9).Draw(t, "bytes")
		count := rapid.IntRange(1, 50).Draw(t, "count")
		var fx Effects
		for i := range count {
			gap := machine.Time(rapid.Int64Range(0, 1e6).Draw(t, "gap"))
			n.Input(gap*machine.Time(i), Start{ID: ID(i), Bytes: bytes, Legs: []Leg{{Path: []LinkID{0}}}}, &fx)
		}
		n.Advance(machine.Never-1, &fx)
		next := ID(0)
		var last machine.Time
		for _, e := range fx.List {
			if e.Kind == Arrived {
				if e.ID != next {
					t.Fatalf("transfer %d ended before %d", e.ID, next)
				}
				next++
				last = e.At
			}
		}
		if least := float64(count) * float64(bytes) / bandwidth * 1e9; float64(last) < least-1 { // float rounding
			t.Fatalf("%d × %d bytes took %v, less than %v ns at full bandwidth", count, bytes, last, least)
		}
	})
}

// rdma is a usual connector.
var rdma = Profile{RDMAPermille: 960, Handshake: 3 * machine.Millisecond}

// 1,000 transfers between 64 nodes, each with its NIC: the time to begin one
// and to play one end.
func BenchmarkThousandTransfers(b *testing.B) {
	topology, err := NewTopology(TopologyConfig{Nodes: 64, NIC: Wire{BytesPerSecond: 25e9}})
	if err != nil {
		b.Fatal(err)
	}
	n, _ := New(topology.Links())
	var fx Effects
	draw := machine.NewDraw(1, "bench", "link", 0)
	id := ID(0)
	begin := func(now machine.Time) {
		id++
		s, _ := rdma.Transfer(topology, id, draw.Intn(64), draw.Intn(64), int64(draw.Between(1e6, 1e9)))
		n.Input(now, s, &fx)
	}
	for n.InFlight() < 1000 {
		begin(0)
	}
	b.ReportAllocs()
	for b.Loop() {
		at, _ := n.Next()
		fx.Reset()
		n.Advance(at, &fx)
		for n.InFlight() < 1000 {
			begin(at)
		}
	}
}

// One pair of nodes each: the common case, where changes stay local.
func BenchmarkThousandPairs(b *testing.B) {
	topology, err := NewTopology(TopologyConfig{Nodes: 2000, NIC: Wire{BytesPerSecond: 25e9}})
	if err != nil {
		b.Fatal(err)
	}
	n, _ := New(topology.Links())
	var fx Effects
	draw := machine.NewDraw(1, "bench", "link", 0)
	begin := func(now machine.Time, id ID) {
		s, _ := rdma.Transfer(topology, id, 2*int(id), 2*int(id)+1, int64(draw.Between(1e6, 1e9)))
		n.Input(now, s, &fx)
	}
	for id := range ID(1000) {
		begin(0, id)
	}
	b.ReportAllocs()
	for b.Loop() {
		at, _ := n.Next()
		fx.Reset()
		n.Advance(at, &fx)
		for _, e := range fx.List {
			if e.Kind == Arrived {
				begin(at, e.ID)
			}
		}
	}
}

// A transfer that varies takes the time that it would take on average, as often longer as shorter, and never below 0.3
// or above 1.7 of it.
func TestVary(t *testing.T) {
	const count = 2000
	time := func(s Start) (takes float64) {
		for _, leg := range s.Legs {
			takes += leg.Delay.Seconds() + float64(s.Bytes)/float64(leg.BytesPerSecond)
		}
		return takes
	}
	start := func() Start {
		return Start{Bytes: 1e9, Legs: []Leg{{Delay: machine.Second, BytesPerSecond: 1e9}}} // two seconds
	}
	for deviation, most := range map[machine.Time]float64{0: 0, 200 * machine.Millisecond: 1.4,
		10 * machine.Second: 1.4} {
		sum, longer, outside := 0.0, 0, 0
		for i := range count {
			s, d := start(), machine.NewDraw(1, "network", "transfer", uint64(i))
			s.Vary(&d, deviation)
			takes := time(s)
			if sum += takes; takes > 2 {
				longer++
			}
			if takes < 2-most-1e-6 || takes > 2+most+1e-6 {
				outside++
			}
		}
		half := deviation == 0 && longer == 0 || deviation > 0 && longer > count*2/5 && longer < count*3/5
		if mean := sum / count; outside > 0 || mean < 1.9 || mean > 2.1 || !half {
			t.Errorf("deviation %v: %v s on average, %d longer, %d outside", deviation, mean, longer, outside)
		}
	}
}
