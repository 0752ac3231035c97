package kvindex

import (
	"cmp"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Stats are counts since the index was made.
type Stats struct {
	Events         [kv.Heartbeat + 1]uint64 // by Kind
	UnknownParent  uint64                   // Stored events dropped, since no pod had stored their parent
	UnknownRemoved uint64                   // hashes removed that the pod had not stored
	Unresolved     uint64                   // hashes stored without tokens that no pod had stored with them
	TooShort       uint64                   // Stored events without one whole block
	OtherAttention uint64                   // Stored events of sliding-window and state-space groups
	Renamed        uint64                   // engine hashes that came again with other content
	TooManyMedia   uint64                   // events dropped: more than 16 media and groups
	DisplacedPods  uint64                   // pods that gave way to others: Config.MaxPods
	Displaced      uint64                   // pairs of block and pod that gave way to MaxBlocks
	Expired        uint64                   // pairs that the TTL took
	// blocks of the index stored, as often as they were, also those only expected
	Admitted     uint64
	Forwarded    uint64 // hashes whose removal was not a repetition of a store's, also unknown ones
	Suppressed   uint64 // hashes removed that were stored more than once, and so stay
	Unexpected   uint64 // blocks that were only expected (Speculate) and whose time was over
	Asked, Found uint64 // blocks of the prompts that were routed, and those found there
}

// Stats returns the index's counts.
func (ix *Index) Stats() Stats { return ix.stats }

func (ix *Index) asked(m *Asked) {
	found := min(m.Found, len(m.Keys))
	ix.stats.Asked += uint64(len(m.Keys))
	ix.stats.Found += uint64(found)
	p := ix.pods[m.Pod]
	if p == nil {
		return
	}
	p.Asked += uint64(len(m.Keys))
	p.Found += uint64(found)
	for _, k := range m.Keys[:found] {
		if slot, places := ix.at(p, k); places != 0 {
			id, rec := ix.pair(slot, p.Number)
			rec.hits++
			ix.recs.young(id, rec, ix.now, false)
		}
	}
}

// State is the cache of all pods in figures (document 003, "Get Global Cache
// State").
type State struct {
	Pairs       int // pairs of block and pod; the document's total_blocks
	Blocks      int // different blocks; unique_blocks
	Pods        int
	Utilization float64 // mean over the pods
	HitRate     float64 // of the blocks of all routed prompts, 0 to 1
	Bytes       int64
}

// State sums all pods up.
func (ix *Index) State() State {
	s := State{Pairs: ix.recs.live, Blocks: ix.blocks.table.live, Pods: len(ix.pods),
		HitRate: ratio(ix.stats.Found, ix.stats.Asked)}
	for _, p := range ix.byNumber {
		if p != nil {
			s.Utilization += p.utilization()
			s.Bytes += int64(p.blocks) * p.Bytes
		}
	}
	if s.Pods > 0 {
		s.Utilization /= float64(s.Pods)
	}
	return s
}

// PodInfo is one pod's cache in figures.
type PodInfo struct {
	Pod          string
	Blocks       int
	Capacity     int     // blocks; 0 if its heartbeats do not say
	Utilization  float64 // of the capacity, or of the most it ever held; 0 to 1
	Bytes        int64
	HitRate      float64 // of the blocks of the prompts sent to it, 0 to 1
	Evicted      uint64  // blocks it reported removed
	EvictionRate float64 // blocks per second, over the last minute
	LastMessage  machine.Time
	Healthy      bool // not silent for StaleAfter
}

func (p *pod) utilization() float64 {
	return min(1, ratio(uint64(p.blocks), uint64(cmp.Or(p.Capacity, p.HighWater))))
}

// Pod returns one pod's figures, and whether the pod is known.
func (ix *Index) Pod(name string) (PodInfo, bool) {
	p := ix.pods[name]
	if p == nil {
		return PodInfo{}, false
	}
	return PodInfo{Pod: name, Blocks: p.blocks, Capacity: p.Capacity, Utilization: p.utilization(),
		Bytes:   int64(p.blocks) * p.Bytes,
		HitRate: ratio(p.Found, p.Asked), Evicted: p.Evicted, EvictionRate: p.rate.perSecond(ix.now),
		LastMessage: p.LastMessage, Healthy: !p.Stale}, true
}

// PodNames returns the known pods, sorted.
func (ix *Index) PodNames() []string {
	return slices.Sorted(maps.Keys(ix.pods))
}

// Holding is one block on one pod.
type Holding struct {
	Key     kv.Key
	Name    string // as document 003 writes a block_hash
	Pod     string
	Media   []string // where it lies, in the order in which the index met them
	Stored  machine.Time
	Touched machine.Time // last stored, updated or asked for
	Hits    int          // access_count
	Tokens  int          // in the pod's own blocks, as in its last event; 0 unknown
}

// Holders returns the pods that hold a block, sorted by name, and its popularity:
// accesses / (accesses + 4), which gives document 003's 0.85 for its 23
// accesses and 0.42 for its 3.
func (ix *Index) Holders(key kv.Key) (holdings []Holding, popularity float64) {
	slot, ok := ix.blocks.table.find(nameOf(uint64(key)))
	if !ok || slot.word == 0 {
		return nil, 0
	}
	hits := 0
	for id := ix.blocks.head(slot); id != 0; id = ix.recs.at(id).sibling {
		h := ix.holding(ix.recs.at(id))
		hits += h.Hits
		holdings = append(holdings, h)
	}
	machine.SortFunc(holdings, func(a, b Holding) int { return cmp.Compare(a.Pod, b.Pod) })
	return holdings, float64(hits) / float64(hits+4)
}

// Top returns a pod's n most asked-for blocks: most hits first, then the youngest.
func (ix *Index) Top(podName string, n int) []Holding {
	p := ix.pods[podName]
	if p == nil || n <= 0 {
		return nil
	}
	before := func(a, b *record) int {
		return cmp.Or(cmp.Compare(b.hits, a.hits), cmp.Compare(b.touched, a.touched), cmp.Compare(a.key, b.key))
	}
	var top []*record
	for id := p.first; id != 0; id = ix.recs.at(id).podNext {
		rec := ix.recs.at(id)
		if len(top) == n && before(rec, top[n-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, rec, before)
		top = slices.Insert(top, at, rec)
		top = top[:min(n, len(top))]
	}
	out := make([]Holding, len(top))
	for i, rec := range top {
		out[i] = ix.holding(rec)
	}
	return out
}

// Keys returns all blocks that a pod holds, sorted, without those that are only
// expected (Speculate). It is for checks, such as that the index is the union
// of what the engines hold.
func (ix *Index) Keys(podName string) []kv.Key {
	p := ix.pods[podName]
	if p == nil {
		return nil
	}
	expected := uint16(0)
	for i, pl := range ix.places {
		if pl.Group == speculativeGroup {
			expected = 1 << i
		}
	}
	keys := make([]kv.Key, 0, p.blocks)
	for id := p.first; id != 0; id = ix.recs.at(id).podNext {
		if rec := ix.recs.at(id); rec.places != expected {
			keys = append(keys, rec.key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Names returns the keys of an engine's block, none if no event named it.
func (ix *Index) Names(h kv.EngineHash) []kv.Key {
	if _, ok := ix.keyOf(h); !ok {
		return nil
	}
	return slices.Clone(ix.keysOf(h))
}

func (ix *Index) holding(rec *record) Holding {
	h := Holding{Key: rec.key, Name: ix.names[rec.key], Pod: ix.byNumber[rec.pod].Name, Stored: rec.stored,
		Touched: rec.touched, Hits: int(rec.hits), Tokens: ix.byNumber[rec.pod].Tokens}
	if h.Name == "" {
		h.Name = cmp.Or(rec.engine, kv.EngineHash(rec.key)).Name()
	}
	for i, pl := range ix.places {
		if rec.places&(1<<i) != 0 && pl.Group != speculativeGroup {
			h.Media = append(h.Media, pl.Medium)
		}
	}
	return h
}

func ratio(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
