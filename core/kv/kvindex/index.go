package kvindex

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Config shapes an Index. The zero value is usable.
type Config struct {
	Hasher kv.Hasher

	// TTL drops blocks that were not stored, updated or asked for in this long; 0 keeps them for ever (document 003:
	// INDEX_TTL, 3600 s).
	TTL machine.Time
	// MaxBlocks bounds the different blocks; the pair of block and pod that
	// was quiet longest goes first. 0 is no bound (INDEX_MAX_BLOCKS, 10000).
	MaxBlocks int
	// CleanupInterval is the time between two checks of the TTL; 0 means one minute (INDEX_CLEANUP_INTERVAL).
	CleanupInterval machine.Time
	// StaleAfter is how long a pod may be silent before it counts as unhealthy; 0 means never. Its blocks stay: an idle
	// engine that sends no heartbeats still holds them.
	StaleAfter machine.Time
	// ForgetAfter drops a pod that was silent this long with all its blocks;
	// 0 means never.
	ForgetAfter machine.Time

	// Weights are the scores of a block by medium, 1 for media that are missing. Nil means {"cpu": 0.8}, as in
	// llm-d-router.
	Weights map[string]float64

	// MaxPods bounds the pods; 0 means 32,767, the most. A further pod replaces one that sent nothing lately, with its
	// blocks.
	MaxPods int
	Orphans int   // engine hashes remembered after their blocks are gone; default 65,536
	Bytes   int64 // per block, for pods whose events do not say
}

// Index keeps which pod holds which block: a machine (see core/machine) whose inputs are events and the time. One
// goroutine at a time may call its methods. View gives any number of other goroutines look-ups that take no lock and so
// never wait for a burst of events. The other methods answer as of the index's own time: the latest that it got.
//
// What happens in the cases that the wire allows:
//
//   - An unknown parent, from any pod: the index drops the event and counts it
//     (UnknownParent), since it would give wrong keys. Parents are looked up over all pods,
//     and engine hashes are remembered for a while after their blocks are gone, because
//     AllBlocksCleared comes before the next child.
//   - A block stored twice by one pod under one engine hash must be removed twice. Under two
//     engine hashes, the first removal removes it.
//   - A removal removes only blocks that were stored on the same medium and in the same
//     group. Any other one is counted (UnknownRemoved) and has no effect.
//   - An engine block larger than Hasher.BlockTokens has several keys. Two of them that begin
//     alike share their first keys, which go with the last of the two. Several smaller ones
//     share a key, and the first removal removes it. Tokens that fill no whole block of the
//     index leave nothing.
//   - An engine hash that comes again with other tokens or another parent names the new block
//     from then on (counted as Renamed: most likely the publisher sent an impossible parent).
//     The old block ages out.
//   - A Stored event without tokens refers to earlier blocks, on another medium (offloading);
//     unknown ones are counted (Unresolved).
//   - Groups that are not full attention give no score and are not kept.
//   - Events of document 003 without tokens are known by name: their hash is their key, a
//     repeated BLOCK_CREATED or one for another layer only refreshes, and BLOCK_UPDATED of an
//     unknown block creates it.
//   - A pod exists from its first message on, at any time.
type Index struct {
	cfg     Config
	blocks  blockSet
	aliases table                      // engine hash → key of its last block
	wide    map[kv.EngineHash][]kv.Key // engine hashes that stand for several keys
	names   map[kv.Key]string          // what document 003 called a block, where Key.Name does not say
	recs    records
	orphans []kv.EngineHash // ring
	orphan  int

	pods     map[string]*pod
	byNumber []*pod
	rested   []uint16 // numbers of pods that are gone, longest first
	hand     int      // which number was looked at last to make room
	places   []place
	readers  readers

	now     machine.Time
	cleanup machine.Time
	quiet   machine.Time // no pod turns stale or forgotten before this
	spec    speculation
	stats   Stats

	keys   []kv.Key // scratch
	made   []kv.Key // of the last event's tokens
	extra  [][]string
	warmed uint64
}

// place is one (medium, group) where blocks can be.
type place struct {
	Medium string `json:"medium"`
	Group  int    `json:"group"`
}

// speculativeGroup sets speculative blocks apart from all that engines report.
const speculativeGroup = -2

// readers holds the data for look-ups besides the blocks.
type readers struct {
	pods    atomic.Pointer[[]string] // by number; "" is unused
	weights atomic.Pointer[[maxPlaces]float64]
}

// New makes an empty index.
func New(cfg Config) *Index {
	cfg.CleanupInterval = cmp.Or(max(cfg.CleanupInterval, 0), 60*machine.Second)
	if cfg.MaxPods <= 0 || cfg.MaxPods > maxPods {
		cfg.MaxPods = maxPods
	}
	cfg.Orphans = cmp.Or(max(cfg.Orphans, 0), 65536)
	if cfg.Weights == nil {
		cfg.Weights = map[string]float64{kv.MediumCPU: 0.8}
	}
	ix := &Index{cfg: cfg, wide: map[kv.EngineHash][]kv.Key{}, names: map[kv.Key]string{}, pods: map[string]*pod{},
		quiet: machine.Never}
	ix.readers.pods.Store(&[]string{})
	ix.readers.weights.Store(new([maxPlaces]float64))
	ix.placeOf(kv.MediumGPU, kv.NoGroup)
	return ix
}

// Input takes a message.
func (ix *Index) Input(now machine.Time, m Message, fx *Effects) {
	ix.Advance(now, fx)
	ix.made = nil
	switch m := m.(type) {
	case *Events:
		for i := range m.List {
			ix.event(ix.now, m.From, &m.List[i], fx)
		}
		if len(m.List) == 0 {
			ix.podOf(ix.now, m.From.Pod, fx)
		}
	case Asked:
		ix.asked(&m)
	case Speculate:
		ix.speculate(&m, fx)
	case DropBlocks:
		if p := ix.pods[m.Pod]; p != nil {
			ix.clear(p)
		}
	case DropPod:
		if p := ix.pods[m.Pod]; p != nil {
			ix.dropPod(p)
		}
	}
}

func (ix *Index) event(now machine.Time, from kv.Topic, e *kv.Event, fx *Effects) {
	if e.Pod != "" {
		from.Pod = e.Pod
	}
	if e.Model != "" {
		from.Model = e.Model
	}
	if int(e.Kind) < len(ix.stats.Events) {
		ix.stats.Events[e.Kind]++
	}
	p := ix.podOf(now, from.Pod, fx)
	if e.BlockBytes > 0 {
		p.Bytes = e.BlockBytes
	}
	if e.BlockTokens > 0 {
		p.Tokens = e.BlockTokens
	}
	switch e.Kind {
	case kv.Stored, kv.Updated:
		ix.store(now, p, from.Model, e)
	case kv.Removed:
		ix.remove(now, p, e)
	case kv.Cleared:
		ix.clear(p)
	case kv.Heartbeat:
		if e.Capacity > 0 {
			p.Capacity = e.Capacity
		}
	}
}

// podOf returns the pod of a name, and makes a new one.
func (ix *Index) podOf(now machine.Time, name string, fx *Effects) *pod {
	p := ix.pods[name]
	if p != nil {
		p.Lately = true
	} else {
		p = ix.addPod(name, fx)
	}
	p.LastMessage = now
	if p.Stale {
		p.Stale = false
		fx.Add(Effect{At: now, Kind: PodHealthy, Pod: name})
	}
	ix.quiet = min(ix.quiet, ix.silentAt(p))
	return p
}

func (ix *Index) addPod(name string, fx *Effects) *pod {
	if len(ix.pods) >= ix.cfg.MaxPods {
		ix.makeRoom(fx)
	}
	var n int
	// A number rests before it is given out again, so that a look-up that
	// began before the old pod went does not take the new one for it.
	if len(ix.rested) > 64 || len(ix.byNumber) >= maxPods {
		n = int(ix.rested[0])
		ix.rested = ix.rested[1:]
	} else {
		n = len(ix.byNumber)
		ix.byNumber = append(ix.byNumber, nil)
	}
	p := &pod{podState: podState{Name: name, Number: uint16(n), Bytes: ix.cfg.Bytes}}
	ix.pods[name], ix.byNumber[n] = p, p
	ix.publishPod(n, name)
	return p
}

// makeRoom forgets a pod that has sent nothing since the last call's look at it.
func (ix *Index) makeRoom(fx *Effects) {
	for {
		ix.hand = (ix.hand + 1) % len(ix.byNumber)
		p := ix.byNumber[ix.hand]
		if p == nil {
			continue
		}
		if !p.Lately {
			ix.stats.DisplacedPods++
			fx.Add(Effect{At: ix.now, Kind: PodForgotten, Pod: p.Name, Blocks: p.blocks})
			ix.dropPod(p)
			return
		}
		p.Lately = false
	}
}

// publishPod publishes a number's present pod to readers.
func (ix *Index) publishPod(n int, name string) {
	names := *ix.readers.pods.Load()
	if n == len(names) { // a reader of the shorter list does not read behind its end
		names = append(names, name)
	} else {
		names = slices.Clone(names)
		names[n] = name
	}
	ix.readers.pods.Store(&names)
}

func (ix *Index) dropPod(p *pod) {
	ix.clear(p)
	delete(ix.pods, p.Name)
	ix.byNumber[p.Number] = nil
	ix.rested = append(ix.rested, p.Number)
	ix.publishPod(int(p.Number), "")
}

func (ix *Index) clear(p *pod) {
	for p.first != 0 {
		ix.dropRecord(p.first, ix.recs.at(p.first))
	}
	odd := p.odd
	p.odd, p.shared = nil, nil
	for _, x := range saveCounts(odd) {
		if k, ok := ix.keyOf(kv.EngineHash(x.Of)); ok {
			ix.retireUnused(kv.EngineHash(x.Of), k)
		}
	}
}

// placeOf returns the number of a (medium, group); -1 if there are too many.
func (ix *Index) placeOf(medium string, group int) int {
	if i := slices.Index(ix.places, place{medium, group}); i >= 0 {
		return i
	}
	if len(ix.places) == maxPlaces {
		return -1
	}
	ix.places = append(ix.places, place{medium, group})
	var w [maxPlaces]float64
	for i, pl := range ix.places {
		w[i] = 1
		if v, ok := ix.cfg.Weights[pl.Medium]; ok {
			w[i] = v
		}
	}
	ix.readers.weights.Store(&w)
	return len(ix.places) - 1
}
