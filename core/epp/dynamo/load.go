package dynamo

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Config are Dynamo's router settings, under their names there.
type Config struct {
	// BlockSize is the tokens of a KV block.
	BlockSize int
	// OverlapScoreCredit is what a block of the prompt that a worker has takes off its
	// cost, in blocks: 0 routes by load only. CreditDecay lowers it at a worker with
	// more waiting prefill than others.
	OverlapScoreCredit, CreditDecay float64
	// PrefillLoadScale is the weight of blocks to prefill against blocks in use.
	PrefillLoadScale float64
	// ActiveRequestWeight is what each running request costs besides, in blocks.
	ActiveRequestWeight float64
	// Temperature is 0 for the lowest cost, else how much is left to chance.
	Temperature float64
	Policy      Policy
	// TTL is how long a block is taken for cached after a request with it was sent
	// somewhere (DYN_USE_KV_EVENTS=false).
	TTL machine.Time
	// PrefillThreshold is how many new tokens of a prompt a worker that decodes computes
	// by itself, although there are workers that only prefill.
	PrefillThreshold int
}

// DefaultConfig are Dynamo's defaults. With blocks of 16 tokens, which are Dynamo's own,
// and 120 s of its approximate index.
func DefaultConfig() Config {
	return Config{BlockSize: 16, OverlapScoreCredit: 1, PrefillLoadScale: 1, Policy: KV, TTL: 120 * machine.Second}
}

// WorkerID is Dynamo's instance id.
type WorkerID uint64

// IDOf returns the instance id of a pod: a hash of its name, as Dynamo's Kubernetes
// discovery makes it, of 53 bits so that JSON readers keep all digits.
func IDOf(pod string) WorkerID { return WorkerID(xxhash.Sum64String(pod) >> 11) }

// String is decimal, as it stands in headers.
func (id WorkerID) String() string { return fmt.Sprint(uint64(id)) }

// Prompt is what the router knows of a request.
type Prompt struct {
	Tokens int
	// Blocks are the names of its whole blocks, each covering all before it; Alone is
	// how many follow that no other prompt has.
	Blocks []uint64
	Alone  int
}

// Booking is what a request holds at its worker: its number, from 1.
type Booking uint64

type booking struct {
	worker  WorkerID
	prefill int // tokens, 0 when computed
	blocks  []uint64
	alone   int
}

// Load is what a router remembers of its own decisions: which requests run where, what
// of them is yet to be prefilled, and which blocks were sent where. Reading changes nothing.
type Load struct {
	c        Config
	workers  map[WorkerID]*worker
	bookings map[Booking]*booking
	booked   Booking
	sent     index
}

type worker struct {
	requests, prefill, alone int
	active                   map[uint64]int32 // blocks in use, by how many requests
}

// none of a prompt is anywhere: where only load counts.
func none(int) float64 { return 0 }

// NewLoad knows nothing.
func NewLoad(c Config) *Load {
	return &Load{c: c, workers: map[WorkerID]*worker{}, bookings: map[Booking]*booking{}, sent: newIndex(c.TTL)}
}

// Overlap returns how many of the prompt's first blocks were sent to a worker not too long ago.
func (l *Load) Overlap(now machine.Time, p *Prompt, id WorkerID) int {
	return l.sent.leading(now, p.Blocks, id)
}

// Costs appends what each worker costs. overlap says how many of the prompt's first
// blocks a worker has; nil is what was sent there.
func (l *Load) Costs(now machine.Time, p *Prompt, ids []WorkerID, overlap func(i int) float64, costs []Cost) []Cost {
	first, size := len(costs), float64(l.c.BlockSize)
	least := -1
	for _, id := range ids {
		w := l.workers[id]
		if w == nil {
			least = 0
		} else if least < 0 || w.prefill < least {
			least = w.prefill
		}
	}
	for i, id := range ids {
		x := Cost{Prefill: float64(p.Tokens) / size, Decode: float64(len(p.Blocks) + p.Alone)}
		if overlap != nil {
			x.Overlap = overlap(i)
		} else {
			x.Overlap = float64(l.Overlap(now, p, id))
		}
		excess := 0.0
		if w := l.workers[id]; w != nil {
			x.Requests = w.requests
			x.Prefill = float64(w.prefill+p.Tokens) / size
			x.Decode += float64(len(w.active) + w.alone)
			for _, b := range p.Blocks {
				if w.active[b] > 0 { // it is there once
					x.Decode--
				}
			}
			excess = float64(w.prefill-least) / size
		}
		costs = append(costs, x)
		l.c.total(&costs[first+i], excess, float64(p.Tokens)/size)
	}
	return costs
}

// Choose is Config.Choose.
func (l *Load) Choose(costs []Cost, draw machine.Draw) int { return l.c.Choose(costs, draw) }

// Book has a request run at a worker that has so many of its first blocks.
func (l *Load) Book(now machine.Time, p *Prompt, id WorkerID, overlap float64) Booking {
	b := &booking{worker: id, prefill: max(0, p.Tokens-int(overlap)*l.c.BlockSize),
		blocks: append([]uint64(nil), p.Blocks...), alone: p.Alone}
	l.booked++
	l.hold(l.booked, b)
	l.sent.add(now, b.blocks, id)
	return l.booked
}

func (l *Load) hold(n Booking, b *booking) {
	w := l.workers[b.worker]
	if w == nil {
		w = &worker{active: map[uint64]int32{}}
		l.workers[b.worker] = w
	}
	w.requests++
	w.prefill += b.prefill
	w.alone += b.alone
	for _, x := range b.blocks {
		w.active[x]++
	}
	l.bookings[n] = b
}

// Prefilled says that a request's first token is there. Of one that is not known, or
// for the second time, it says nothing; so does Free.
func (l *Load) Prefilled(n Booking) {
	if b := l.bookings[n]; b != nil {
		l.workers[b.worker].prefill -= b.prefill
		b.prefill = 0
	}
}

// Free ends a request.
func (l *Load) Free(n Booking) {
	b := l.bookings[n]
	if b == nil {
		return
	}
	l.Prefilled(n)
	delete(l.bookings, n)
	w := l.workers[b.worker]
	w.requests--
	w.alone -= b.alone
	for _, x := range b.blocks {
		if w.active[x]--; w.active[x] == 0 {
			delete(w.active, x)
		}
	}
	if w.requests == 0 {
		delete(l.workers, b.worker)
	}
}

// Gone forgets a worker that has left: what it had cached, and its requests.
func (l *Load) Gone(id WorkerID) {
	l.sent.gone(id)
	for n, b := range l.bookings {
		if b.worker == id {
			delete(l.bookings, n)
		}
	}
	delete(l.workers, id)
}

// Running returns how many requests are booked.
func (l *Load) Running() int { return len(l.bookings) }
