package enginecore

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver/apiserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
)

// Config is the configuration of a Core.
type Config struct {
	Engine engine.Config
	// Index is the server's number in its fleet, and EngineID its name for other servers.
	Index    int
	EngineID string
	// ViaStore makes the Core look prompts up in the external cache, and write them to it.
	ViaStore bool
	// PeerTimeout is the time that another server may take for the first byte of its answer. After that the transfer
	// has failed, and its blocks are free. Zero is DefaultPeerTimeout.
	PeerTimeout machine.Time
	// Ranks is the number of accelerators of the engine; zero is 1.
	Ranks int
	// Publish makes the Core report KV events (Event).
	Publish bool
	// OutOfMemory is the reason why the server does not fit into its memory, so that it never serves. Nil: it fits.
	OutOfMemory error
	// SampleBlocks is the sampled share of the KV blocks, 0 to 1, whose times are counted. The engine must report its
	// blocks.
	SampleBlocks float64
}

// Core is the part of a model server that all its requests share. It is a machine.Machine[Message, *Effects].
type Core struct {
	c   Config
	cfg engine.Config // with defaults
	eng *engine.Engine
	now machine.Time

	stats *stats.Stats
	fx    *Effects // the caller's, during a call

	sequences machine.Few[engine.RequestID, *Sequence] // in the engine
	over      []engine.RequestID                       // sequences that ended in the effects being processed

	// As holder of caches.
	holds     map[uint64]*Hold // by the engine's handle
	byBlock   map[int]*Hold    // by the first block
	named     map[string]*Hold
	inquiries map[Inquiry]*inquiry
	waiting   map[string][]*inquiry // for a cache that is still to be computed, by its key
	block     int                   // the last block's number

	// As client of other servers.
	calls   map[Call]*call
	serial  Call
	known   *bounded.Store[string, struct{}] // addresses that have answered
	timers  machine.Heap[timer]
	timings uint64 // number of timers set so far

	api apiserver.Queue

	life
}

// timer is a wait that ends at a time.
type timer struct {
	call    *call
	inquiry *inquiry
	seq     *Sequence // in the API server
}

// maxKnown is the number of servers whose answers the Core remembers.
const maxKnown = 4096

// New returns an idle Core.
func New(c Config) (*Core, error) {
	eng, err := engine.New(c.Engine)
	if err != nil {
		return nil, err
	}
	if c.PeerTimeout <= 0 {
		c.PeerTimeout = DefaultPeerTimeout
	}
	c.Ranks = max(1, c.Ranks)
	cfg := eng.Config()
	counts := stats.New(&cfg)
	counts.SampleBlocks(c.SampleBlocks)
	var api apiserver.Costs
	if t, ok := cfg.Timer.(interface{ APICosts() apiserver.Costs }); ok {
		api = t.APICosts()
	}
	return &Core{api: apiserver.New(api), c: c, cfg: cfg, eng: eng, stats: counts,
		holds: map[uint64]*Hold{}, byBlock: map[int]*Hold{}, named: map[string]*Hold{},
		inquiries: map[Inquiry]*inquiry{}, waiting: map[string][]*inquiry{},
		calls: map[Call]*call{}, known: bounded.New[string, struct{}](bounded.Limits{Entries: maxKnown}, nil)}, nil
}

// Config returns the configuration with its defaults filled in.
func (s *Core) Config() *Config { return &s.c }

// Direct reports whether requests may be direct, with at most so many in flight. The Core accepts each of them, and no
// component but the caller needs to know how one ends.
func (s *Core) Direct(most int) bool {
	return s.cfg.MaxInFlight >= most && !s.c.ViaStore && !s.c.Publish && s.c.OutOfMemory == nil
}

// Engine returns the engine, for reading only.
func (s *Core) Engine() *engine.Engine { return s.eng }

// Stats returns the counters and histograms of the server.
func (s *Core) Stats() *stats.Stats { return s.stats }

// Counted iterates over the counts of the completions in the engine.
func (s *Core) Counted(yield func(*stats.Sequence) bool) {
	for _, q := range s.sequences.All {
		if !yield(&q.Counted) {
			return
		}
	}
}

// Holds returns the number of caches kept for other servers.
func (s *Core) Holds() int { return len(s.holds) }

// Awaited returns the number of other servers that wait for caches that are still to be computed.
func (s *Core) Awaited() int {
	n := 0
	for _, list := range s.waiting {
		n += len(list)
	}
	return n
}

// Busy returns the number of completions, kept caches and calls that have not ended.
func (s *Core) Busy() int {
	return s.sequences.Len() + len(s.holds) + len(s.inquiries) + len(s.calls) + s.timers.Len()
}

// Cached returns the engine's own names of the blocks in its KV cache, on any tier.
func (s *Core) Cached() []kv.EngineHash {
	var out []kv.EngineHash
	s.eng.Cached(func(hash uint64, _ engine.Tier) { out = append(out, kv.EngineHash(hash)) })
	return out
}

// Next returns the time of the next Advance.
func (s *Core) Next() (machine.Time, bool) {
	at, _ := s.eng.Next()
	at = min(at, s.nextTimer())
	return at, at != machine.Never
}

func (s *Core) nextTimer() machine.Time {
	if s.timers.Len() == 0 {
		return machine.Never
	}
	k, _ := s.timers.Peek()
	return machine.Time(k.First)
}

// Advance processes everything that is due by now.
func (s *Core) Advance(now machine.Time, fx *Effects) {
	s.fx = fx
	s.advance(now)
	s.fx = nil
}

// advance lets the engine run ahead of the timers, but by less than the shortest timer that its effects can set: events
// in between must be processed in order.
func (s *Core) advance(now machine.Time) {
	now = max(now, s.now)
	for {
		to := min(now, s.nextTimer())
		if at, ok := s.eng.Next(); ok && at < to {
			// effects may be slightly older than their call
			to = min(to, max(at, s.now).Add(min(s.c.PeerTimeout, s.cfg.KVHoldTimeout)-1))
		}
		s.stats.Computed(s.now, to, s.eng.Computing()) // the driver calls at the end of every step
		s.eng.Advance(to, &s.fx.Engine)
		s.applyEffects()
		s.now = to
		if s.nextTimer() <= to {
			_, t := s.timers.Pop()
			s.due(t)
		} else if to == now {
			return
		}
	}
}

func (s *Core) due(t timer) {
	switch {
	case t.call != nil:
		t.call.timer = 0
		s.late(t.call)
	case t.inquiry != nil:
		t.inquiry.timer = 0
		s.inVain(t.inquiry)
	default:
		t.seq.reads = 0
		s.enter(t.seq)
	}
}

// after sets a timer.
func (s *Core) after(wait machine.Time, h *machine.Handle, t timer) {
	s.timings++
	s.timers.Put(h, machine.Key{First: int64(s.now.Add(wait)), Second: s.timings}, t)
}

// Input processes everything that is due, and then a message.
func (s *Core) Input(now machine.Time, m Message, fx *Effects) {
	s.fx = fx
	s.advance(now)
	m.apply(s)
	s.fx = nil
}

// do adds an action, due now.
func (s *Core) do(q *Sequence, a Action) {
	s.fx.List = append(s.fx.List, Effect{At: s.now, Engine: -1, Sequence: q, Do: a})
}

// input gives the engine a message.
func (s *Core) input(m engine.Message) {
	s.eng.Input(s.now, m, &s.fx.Engine)
	s.applyEffects()
}

// applyEffects processes the engine's effects, each at its time.
func (s *Core) applyEffects() {
	x := s.fx
	if x.applied == len(x.Engine.List) {
		return
	}
	for x.applied < len(x.Engine.List) {
		i := x.applied
		x.applied++
		f := &x.Engine.List[i]
		s.now = max(s.now, f.At)
		q, _ := s.sequences.Get(f.Request)
		s.count(f, q)
		switch f.Kind {
		case engine.Accepted:
			continue
		case engine.KVPull:
			s.pull(f, q)
			continue
		case engine.KVRelease:
			s.release(q)
			continue
		case engine.BlockStored, engine.BlockRemoved, engine.AllBlocksCleared:
			s.event(int32(i), q)
			continue
		case engine.Finished, engine.Aborted, engine.Rejected:
			s.ends(f, q)
		}
		x.List = append(x.List, Effect{At: f.At, Engine: int32(i), Sequence: q})
		switch f.Kind {
		case engine.FirstToken:
			s.computed(q)
		case engine.KVHeld:
			s.hold(f, q)
		case engine.KVFreed:
			s.freed(f)
		case engine.ControlDone, engine.ControlRefused:
			s.controlled(f)
		}
	}
	for _, id := range s.over { // their blocks cause no further reports
		s.sequences.Delete(id)
	}
	s.over = s.over[:0]
	s.stats.Delivered()
}

func (s *Core) count(f *engine.Effect, q *Sequence) {
	if q != nil {
		s.stats.Effect(&s.fx.Engine, f, &q.Counted)
	} else {
		s.stats.Effect(&s.fx.Engine, f, nil)
	}
}

// ends notes that the engine no longer has a completion.
func (s *Core) ends(f *engine.Effect, q *Sequence) {
	if q == nil {
		return
	}
	q.state = ended
	s.over = append(s.over, f.Request)
	if f.Kind == engine.Finished {
		s.computed(q)
	}
	if f.Reason == engine.ReasonCrash {
		s.drop(q)
	}
}
