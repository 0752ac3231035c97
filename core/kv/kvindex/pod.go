package kvindex

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// pod is the writer's data about one publisher.
type pod struct {
	podState
	first  uint32 // of its records
	blocks int
	rate   rateWindow

	// odd counts the holdings that records cannot: an engine hash stored more
	// than once, or a second hash for one block. Nearly always empty.
	odd map[atPlace]int
	// shared counts the further engine blocks, beyond one, that stand for a
	// key among several keys: large blocks that differ only behind it.
	shared map[atPlace]int
}

// podState is a pod in a saved state.
type podState struct {
	Name        string         `json:"name"`
	Number      uint16         `json:"number"`
	LastMessage machine.Time   `json:"heard"`               // last message of any kind
	Stale       bool           `json:"stale,omitempty"`     // and its PodStale was emitted
	Lately      bool           `json:"lately,omitempty"`    // it has sent something since makeRoom looked at it
	Capacity    int            `json:"capacity,omitempty"`  // blocks, as its heartbeats say; 0 unknown
	HighWater   int            `json:"highWater,omitempty"` // most blocks it ever held
	Bytes       int64          `json:"bytes,omitempty"`     // per block
	Tokens      int            `json:"tokens,omitempty"`    // per block, as in its last event; 0 unknown
	Evicted     uint64         `json:"evicted,omitempty"`
	Rate        []uint32       `json:"rate,omitempty"`     // in a saved state alone
	RateLast    int64          `json:"rateLast,omitempty"` // likewise
	Asked       uint64         `json:"asked,omitempty"`    // blocks of the requests sent to it
	Found       uint64         `json:"found,omitempty"`    // of these, found there
	Groups      map[int]string `json:"groups,omitempty"`   // kinds of its KV cache groups, as in its last events
}

// maxGroups bounds the KV cache groups of one pod; models have a handful.
const maxGroups = 256

// grouped reports whether a stored event's blocks are kept: all blocks without a group, and whole blocks of a group
// with full attention.
func (p *pod) grouped(e *kv.Event) bool {
	if e.Group == kv.NoGroup {
		return true
	}
	if e.SpecKind != "" && (len(p.Groups) < maxGroups || p.Groups[e.Group] != "") {
		if p.Groups == nil {
			p.Groups = map[int]string{}
		}
		p.Groups[e.Group] = e.SpecKind
	}
	if !kv.FullAttention(p.Groups[e.Group]) {
		return false
	}
	return e.NumTokens() == 0 || e.BlockTokens > 0 && e.NumTokens() == e.BlockTokens*len(e.Hashes)
}

// atPlace is an engine hash or key at a place of a pod.
type atPlace struct {
	of    uint64
	place uint16 // as a bit
}

// stillShared removes one engine block from a key and reports whether another one still shares the key.
func (p *pod) stillShared(key kv.Key, bit uint16) bool {
	x := atPlace{uint64(key), bit}
	n := p.shared[x]
	switch {
	case n > 1:
		p.shared[x] = n - 1
	case n == 1:
		delete(p.shared, x)
	}
	return n > 0
}

// addTo sets a count in a map, which it makes first if it is nil.
func addTo(counts *map[atPlace]int, x atPlace, n int) {
	if *counts == nil {
		*counts = map[atPlace]int{}
	}
	(*counts)[x] = n
}

// rateWindow counts events of the last rateSeconds seconds, one bin each.
type rateWindow struct {
	bins [rateSeconds]uint32
	last int64 // the second of the newest bin
}

const rateSeconds = 60

func (w *rateWindow) turn(now machine.Time) {
	s := int64(now / machine.Second)
	for steps := 0; w.last < s && steps < rateSeconds; steps++ {
		w.last++
		w.bins[w.last%rateSeconds] = 0
	}
	w.last = max(w.last, s)
}

func (w *rateWindow) add(now machine.Time, n uint32) {
	w.turn(now)
	w.bins[w.last%rateSeconds] += n
}

// perSecond returns the mean over the window, or over the run while it is younger.
func (w *rateWindow) perSecond(now machine.Time) float64 {
	w.turn(now)
	var sum uint64
	for _, n := range w.bins {
		sum += uint64(n)
	}
	return float64(sum) / max(1, min(rateSeconds, now.Seconds()))
}
