package link

import (
	"fmt"
	"math/bits"

	"github.com/windtunnel/windtunnel/core/machine"
)

// ID names a transfer; the caller chooses it, and may use it again once the
// transfer has ended.
type ID uint64

// LinkID is the index of a link in the list that New was given.
type LinkID int32

// Link is one wire in one direction.
type Link struct {
	Name           string
	BytesPerSecond int64
	Latency        machine.Time
	RDMA           bool // remote direct memory access, as InfiniBand and RoCE have
}

// Reached returns how many bytes per second transfers together reach of a link's bandwidth.
func (l *Link) Reached() int64 {
	if l.RDMA {
		return l.BytesPerSecond
	}
	return l.BytesPerSecond * tcpPermille / 1000
}

// Leg is one crossing of the network. A transfer with several legs (through a store) arrives whole at each stop before
// it continues.
type Leg struct {
	Path []LinkID // at most MaxHops
	// Delay passes before the first byte moves: handshake, serialization, and
	// the latency of the links, which is not added by itself.
	Delay machine.Time
	// BytesPerSecond caps the transfer below its share, as one TCP stream or
	// one copying thread does; 0 is no cap.
	BytesPerSecond int64
}

// Start begins a transfer.
type Start struct {
	ID    ID
	Bytes int64
	Legs  []Leg
	// UsableBytes asks for a Usable effect once that many bytes of the last leg
	// have arrived; 0 is no such effect. Pipelined decodes begin then.
	UsableBytes int64
	// Serial, if not 0, is a queue: of the transfers with the same number only
	// one runs at a time, in the order in which they came. Blocking connectors
	// queue by sender.
	Serial uint64
}

// Vary makes a transfer faster or slower. Its time, alone on its links, gets this standard deviation, and stays between
// 0.3 and 1.7 times what it was.
func (s *Start) Vary(d *machine.Draw, deviation machine.Time) {
	takes := 0.0
	for _, leg := range s.Legs {
		takes += float64(leg.Delay)
		if leg.BytesPerSecond > 0 {
			takes += float64(s.Bytes) / float64(leg.BytesPerSecond) * float64(machine.Second)
		}
	}
	if deviation <= 0 || takes == 0 {
		return
	}
	normal := -6.0 // the sum of twelve uniform draws has the variance 1
	for range 12 {
		normal += d.Float64()
	}
	factor := min(max(1+normal*float64(deviation)/takes, 0.3), 1.7)
	for i := range s.Legs {
		leg := &s.Legs[i]
		leg.Delay = machine.Time(float64(leg.Delay) * factor)
		leg.BytesPerSecond = int64(float64(leg.BytesPerSecond) / factor)
	}
}

// Cancel ends a transfer wherever it is. A Cancel of an unknown one does nothing.
type Cancel struct{ ID ID }

// Change gives a link another bandwidth; 0 breaks it, and what runs over it
// stands still until it is repaired or cancelled.
type Change struct {
	Link           LinkID
	BytesPerSecond int64
}

// Message is a Start, Cancel or Change.
type Message interface{ message() }

func (Start) message()  {}
func (Cancel) message() {}
func (Change) message() {}

// Kind is the type of an effect.
type Kind uint8

// The effects. Every Start ends in exactly one Arrived, Cancelled or Rejected.
const (
	Began     Kind = iota // the first byte of a leg moves
	Usable                // UsableBytes of the last leg have arrived
	Arrived               // all bytes of the last leg have
	Cancelled             // ended by Cancel
	Rejected              // a Start or Change was invalid, for Reason
)

var kindNames = [...]string{"began", "usable", "arrived", "cancelled", "rejected"}

// String returns the kind in lower case.
func (k Kind) String() string { return kindNames[k] }

// Effect is the end of a transfer, at the time when it was due.
type Effect struct {
	Kind   Kind
	ID     ID
	At     machine.Time
	Leg    int
	Moved  int64 // whole bytes of this leg that have arrived
	Reason string
}

// Due returns At.
func (e Effect) Due() machine.Time { return e.At }

// Effects is the buffer that a Network fills.
type Effects = machine.Effects[Effect]

var _ machine.Machine[Message, *Effects] = (*Network)(nil)

// Limits of what a Network takes. The slowest link must leave every transfer
// at least one unit per nanosecond.
const (
	MaxHops      = 6
	MaxLegs      = 4
	MaxBytes     = 1 << 38 // 256 GiB in one transfer
	MaxTransfers = 1 << 15
	MinBandwidth = 8e6 // bytes per second
	MaxBandwidth = 1e14
	MaxLinks     = 1 << 20
	maxDelay     = 3600 * machine.Second
)

const unitShift = 24 // 2^-24 bytes

// Network is the machine. Make one with New.
type Network struct {
	now    machine.Time
	links  []wire
	flows  []flow
	free   []int32
	byID   map[ID]int32
	serial map[uint64][]int32  // first is running, the rest wait
	heap   machine.Heap[int32] // flows with a due event, by (due, seq)
	seq    uint64

	epoch     uint32 // marks of the current re-rating
	dirty     []LinkID
	someLinks []LinkID
	someFlows []int32
	capped    []int32
}

type wire struct {
	Link
	capacity int64 // units per nanosecond
	flows    []int32
	carried  uint64 // whole bytes, by transfers that have left
	epoch    uint32
	left     int64 // while re-rating: capacity and flows without a rate
	open     int32
}

type phase uint8

const (
	queued phase = iota // behind another of its Serial
	delayed
	moving
)

type flow struct {
	start    Start
	phase    phase
	leg      int
	at       [MaxHops]int32 // position in each link's list
	left     int64          // units of this leg that are still to move
	usable   int64          // Usable is due when left falls to this; -1: never or done
	since    machine.Time   // when left was counted
	rate     int64          // units per nanosecond since then
	limit    int64          // of the leg, units per nanosecond
	seq      uint64         // order of begin, for ties
	slot     machine.Handle // in the heap
	epoch    uint32
	assigned bool
	newRate  int64
}

// New makes a network of links, all idle.
func New(links []Link) (*Network, error) {
	if len(links) > MaxLinks {
		return nil, fmt.Errorf("link: %d links; at most %d", len(links), MaxLinks)
	}
	n := &Network{byID: map[ID]int32{}, serial: map[uint64][]int32{}, links: make([]wire, len(links))}
	for i, l := range links {
		if l.BytesPerSecond < MinBandwidth || l.BytesPerSecond > MaxBandwidth {
			return nil, fmt.Errorf("link: %q has %d bytes/s; expected %g to %g", l.Name, l.BytesPerSecond,
				float64(MinBandwidth), float64(MaxBandwidth))
		}
		if l.Latency < 0 || l.Latency > machine.Second {
			return nil, fmt.Errorf("link: %q has a latency of %s; expected 0 to 1s", l.Name, l.Latency)
		}
		n.links[i] = wire{Link: l, capacity: units(l.BytesPerSecond)}
	}
	return n, nil
}

// units converts bytes per second to units per nanosecond, rounded down.
func units(bytesPerSecond int64) int64 {
	hi, lo := bits.Mul64(uint64(bytesPerSecond), 1<<unitShift)
	q, _ := bits.Div64(hi, lo, 1e9)
	return int64(q)
}

// InFlight returns the number of transfers that have not ended.
func (n *Network) InFlight() int { return len(n.byID) }

// Link describes a link as it is now.
func (n *Network) Link(id LinkID) Link { return n.links[id].Link }

// Load returns the number of transfers on a link and the share of its bandwidth
// that they use, in thousandths.
func (n *Network) Load(id LinkID) (transfers int, permille int) {
	w := &n.links[id]
	var used int64
	for _, f := range w.flows {
		used += n.flows[f].rate
	}
	if w.capacity == 0 {
		return len(w.flows), 0
	}
	return len(w.flows), int(used * 1000 / w.capacity)
}

// Carried returns the whole bytes that a link has carried for transfers that have left it, complete or not.
func (n *Network) Carried(id LinkID) uint64 { return n.links[id].carried }

// Next returns when the next transfer ends a leg, if any is under way.
func (n *Network) Next() (machine.Time, bool) {
	if n.heap.Len() == 0 {
		return machine.Never, false
	}
	first, _ := n.heap.Peek()
	return machine.Time(first.First), true
}

// Input takes a message.
func (n *Network) Input(now machine.Time, m Message, fx *Effects) {
	n.Advance(now, fx)
	switch m := m.(type) {
	case Start:
		n.startTransfer(m, fx)
	case Cancel:
		if f, ok := n.byID[m.ID]; ok {
			n.end(f, Cancelled, fx)
		}
	case Change:
		n.change(m, fx)
	}
	n.rerate()
	n.Advance(n.now, fx) // a transfer of no bytes arrives at once
}

func (n *Network) change(m Change, fx *Effects) {
	reason := ""
	switch {
	case m.Link < 0 || int(m.Link) >= len(n.links):
		reason = fmt.Sprintf("there is no link %d; there are %d", m.Link, len(n.links))
	case m.BytesPerSecond != 0 && (m.BytesPerSecond < MinBandwidth || m.BytesPerSecond > MaxBandwidth):
		reason = fmt.Sprintf("%d bytes/s; expected 0 or %g to %g", m.BytesPerSecond, float64(MinBandwidth),
			float64(MaxBandwidth))
	}
	if reason != "" {
		fx.Add(Effect{Kind: Rejected, At: n.now, Reason: reason})
		return
	}
	w := &n.links[m.Link]
	w.BytesPerSecond, w.capacity = m.BytesPerSecond, units(m.BytesPerSecond)
	n.dirty = append(n.dirty, m.Link)
}

// Advance plays everything that is due up to now.
func (n *Network) Advance(now machine.Time, fx *Effects) {
	for {
		due, ok := n.Next()
		if !ok || due > now {
			break
		}
		for n.now = max(n.now, due); ok && due <= n.now; due, ok = n.Next() {
			_, id := n.heap.Peek()
			n.step(*id, fx)
		}
		n.rerate() // once for all that ended together
	}
	n.now = max(n.now, now)
}

// step plays the due event of one transfer.
func (n *Network) step(id int32, fx *Effects) {
	f := &n.flows[id]
	if f.phase == delayed {
		f.phase = moving
		f.since, f.rate = n.now, 0
		path := f.start.Legs[f.leg].Path
		for hop, l := range path {
			w := &n.links[l]
			f.at[hop] = int32(len(w.flows))
			w.flows = append(w.flows, id)
		}
		n.heap.Remove(&f.slot) // until it has a rate
		n.emit(fx, Began, f)
		if n.dirty = append(n.dirty, path...); len(path) == 0 {
			n.legDone(id, fx)
		}
		return
	}
	n.settle(f)
	if f.usable >= 0 && f.left <= f.usable {
		f.usable = -1
		n.emit(fx, Usable, f)
	}
	if f.left > 0 {
		n.schedule(id)
		return
	}
	n.legDone(id, fx)
}

func (n *Network) emit(fx *Effects, k Kind, f *flow) {
	e := Effect{Kind: k, ID: f.start.ID, At: n.now, Leg: f.leg}
	if f.phase == moving {
		e.Moved = (f.start.Bytes<<unitShift - f.left) >> unitShift
	}
	fx.Add(e)
}

// settle counts what has moved since the last time.
func (n *Network) settle(f *flow) {
	if span := int64(n.now - f.since); span > 0 && f.rate > 0 {
		if hi, moved := bits.Mul64(uint64(f.rate), uint64(span)); hi > 0 || moved >= uint64(f.left) {
			f.left = 0
		} else {
			f.left -= int64(moved)
		}
	}
	f.since = n.now
}

// schedule finds when a moving transfer's next event is due.
func (n *Network) schedule(id int32) {
	f := &n.flows[id]
	if f.rate == 0 {
		n.heap.Remove(&f.slot) // stands still
		return
	}
	goal := f.left
	if f.usable >= 0 {
		goal -= f.usable
	}
	n.due(id, n.now.Add(machine.Time((goal+f.rate-1)/f.rate)))
}

// due says when a transfer's next event is.
func (n *Network) due(id int32, at machine.Time) {
	f := &n.flows[id]
	n.heap.Put(&f.slot, machine.Key{First: int64(at), Second: f.seq}, id)
}
