package dynamo

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Config has Dynamo's router settings, under Dynamo's names.
type Config struct {
	// BlockSize is the number of tokens in a KV block.
	BlockSize int
	// OverlapScoreCredit is the deduction for each cached block of the prompt, in blocks; 0 routes by load only.
	// CreditDecay lowers it at a worker with more waiting prefill than others.
	OverlapScoreCredit, CreditDecay float64
	// PrefillLoadScale is the weight of blocks to prefill against blocks in use.
	PrefillLoadScale float64
	// ActiveRequestWeight is the additional cost of each running request, in blocks.
	ActiveRequestWeight float64
	// Temperature is 0 for the lowest cost; higher values make the choice more random.
	Temperature float64
	Policy      Policy
	// TTL is how long a block counts as cached after a request with it was sent (DYN_USE_KV_EVENTS=false).
	TTL machine.Time
	// PrefillThreshold is how many new tokens of a prompt a decoding worker computes by itself although there are
	// prefill-only workers.
	PrefillThreshold int
}

// DefaultConfig returns Dynamo's defaults, among them blocks of 16 tokens and 120 s for its approximate index.
func DefaultConfig() Config {
	return Config{BlockSize: 16, OverlapScoreCredit: 1, PrefillLoadScale: 1, Policy: KV, TTL: 120 * machine.Second}
}

// WorkerID is Dynamo's instance id of a worker.
type WorkerID uint64

// IDOf returns the instance id of a pod: a hash of its name, as in Dynamo's Kubernetes discovery, of 53 bits so that
// JSON readers keep all digits.
func IDOf(pod string) WorkerID { return WorkerID(xxhash.Sum64String(pod) >> 11) }

// String returns the decimal form that headers use.
func (id WorkerID) String() string { return fmt.Sprint(uint64(id)) }

// Prompt is a request's prompt for the router.
type Prompt struct {
	Tokens int
	// Blocks are the hashes of its whole blocks, each covering all blocks before it. Alone is the number of further
	// blocks, which no other prompt has.
	Blocks []uint64
	Alone  int
}

// Booking is the number, from 1, of a request's load at its worker.
type Booking uint64

type booking struct {
	Worker  WorkerID `json:"worker"`
	Prefill int      `json:"prefill"` // tokens, 0 when computed
	Blocks  []uint64 `json:"blocks"`
	Alone   int      `json:"alone"`
}

// Load is a router's record of its own decisions: which requests run where, how much of them is not prefilled yet, and
// which blocks were sent where. Costs, Overlap and Choose do not change it.
type Load struct {
	c        Config
	workers  map[WorkerID]*worker
	bookings map[Booking]*booking
	booked   Booking
	sent     index
}

type worker struct {
	requests, prefill, alone int
	active                   map[uint64]int32 // blocks in use, with the number of requests that use them
}

// none is the overlap function for a choice by load only.
func none(int) float64 { return 0 }

// NewLoad returns an empty Load.
func NewLoad(c Config) *Load {
	return &Load{c: c, workers: map[WorkerID]*worker{}, bookings: map[Booking]*booking{}, sent: newIndex(c.TTL)}
}

// Overlap returns how many of the prompt's first blocks were sent to a worker within the TTL.
func (l *Load) Overlap(now machine.Time, p *Prompt, id WorkerID) int {
	return l.sent.leading(now, p.Blocks, id)
}

// Costs appends each worker's cost. overlap returns how many of the prompt's first blocks worker i has; nil uses
// Overlap.
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
				if w.active[b] > 0 { // a shared block counts once
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

func (l *Load) Choose(costs []Cost, draw machine.Draw) int { return l.c.Choose(costs, draw) }

// Book adds a request's load at a worker that has overlap of its first blocks.
func (l *Load) Book(now machine.Time, p *Prompt, id WorkerID, overlap float64) Booking {
	b := &booking{Worker: id, Prefill: max(0, p.Tokens-int(overlap)*l.c.BlockSize),
		Blocks: append([]uint64(nil), p.Blocks...), Alone: p.Alone}
	l.booked++
	l.hold(l.booked, b)
	l.sent.add(now, b.Blocks, id)
	return l.booked
}

func (l *Load) hold(n Booking, b *booking) {
	w := l.workers[b.Worker]
	if w == nil {
		w = &worker{active: map[uint64]int32{}}
		l.workers[b.Worker] = w
	}
	w.requests++
	w.prefill += b.Prefill
	w.alone += b.Alone
	for _, x := range b.Blocks {
		w.active[x]++
	}
	l.bookings[n] = b
}

// Prefilled reports a request's first token. Like Free, it ignores an unknown booking or a second call.
func (l *Load) Prefilled(n Booking) {
	if b := l.bookings[n]; b != nil {
		l.workers[b.Worker].prefill -= b.Prefill
		b.Prefill = 0
	}
}

// Free ends a request's load.
func (l *Load) Free(n Booking) {
	b := l.bookings[n]
	if b == nil {
		return
	}
	l.Prefilled(n)
	delete(l.bookings, n)
	w := l.workers[b.Worker]
	w.requests--
	w.alone -= b.Alone
	for _, x := range b.Blocks {
		if w.active[x]--; w.active[x] == 0 {
			delete(w.active, x)
		}
	}
	if w.requests == 0 {
		delete(l.workers, b.Worker)
	}
}

// Gone removes a worker that has left, with its cache and its requests.
func (l *Load) Gone(id WorkerID) {
	l.sent.gone(id)
	for n, b := range l.bookings {
		if b.Worker == id {
			delete(l.bookings, n)
		}
	}
	delete(l.workers, id)
}

// Running returns the number of booked requests.
func (l *Load) Running() int { return len(l.bookings) }
