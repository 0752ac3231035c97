package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
)

// kvWire carries the KV events of the run's engines to the indexes of its
// picker: as live publishers do, a server gathers events for an interval and
// sends them together; then they are under way for the delay.
type kvWire struct {
	pool            *pool
	interval, delay machine.Time
	indexes         []*kvIndex
	manager         *kvManager // document 003's, where the scenario has it
	// names are what engines' names of blocks mean, by each index's rule.
	names kvindex.Names
	// replays says that some index asks for what was published before.
	replays bool
}

// index is one of blocks. Nobody asks what it does because of the time, only
// what it knows then.
type index struct{ *kvindex.Index }

func (ix index) input(now machine.Time, m kvindex.Message) { ix.Input(now, m, new(kvindex.Effects)) }

// kvIndex is one of a picker's indexes, by its number there.
type kvIndex struct {
	picker *picking
	number int
	name   string
	hasher kv.Hasher
	bound  int // blocks that it keeps; 0 is no bound
	lag    report.Lag
	lost   bool // with its picker, in the middle of the run
	// replays says that it asks for what was published before it listens.
	replays bool
}

// kvOutbox is what one server has to tell.
type kvOutbox struct {
	pending kvMessage // since the last message was sent
	sent    []kvMessage
	past    [][]kv.Event // delivered messages that can be asked for again
}

// kvMessage is events that travel together, and when each was made.
type kvMessage struct {
	events []kv.Event
	made   []machine.Time
}

func newKVWire(of *pool) *kvWire {
	e := of.Events
	if e == nil {
		return nil
	}
	x := &kvWire{pool: of, interval: machine.FromDuration(e.Interval),
		delay: machine.FromDuration(e.Delay), names: kvindex.Names{}}
	if e.Manager != nil {
		x.manager = newKVManager(of.BlockTokens)
		x.names.Understand(x.manager.hasher)
	}
	return x
}

// connect learns of a picker's indexes.
func (x *kvWire) connect(k *picking) {
	if x == nil {
		return
	}
	for i, ix := range k.m.Indexes() {
		x.names.Understand(ix.Config.Hasher)
		c := &ix.Config
		own := &kvIndex{picker: k, number: i, name: ix.Producer.Name(), hasher: c.Hasher, bound: c.MaxBlocks,
			replays: ix.Sources.ReplayPort > 0}
		x.indexes, x.replays = append(x.indexes, own), x.replays || own.replays
	}
}

// replayed is how many messages of a server can be asked for again, as of vLLM's publisher.
const replayed = 10000

// dial has an index hear a server, whose publisher sends again what it still has where it is asked to, in no time.
func (k *picking) dial(number int, t *epp.Target) {
	x, sv := k.pool.kv, k.pool.byAddr[t.HostPort()]
	if x == nil || sv == nil || k.m.Indexes()[number].Sources.ReplayPort == 0 {
		return
	}
	for _, events := range sv.kv.past {
		k.Input(epp.KVEvents{Index: number, From: sv.topic(), Events: events})
	}
}

// announce takes what the engine says of its blocks.
func (s *server) announce(e *kv.Event) {
	x := s.pool.kv
	if x == nil {
		return
	}
	x.names.Note(s.topic(), *e)
	m := &s.kv.pending
	if m.events == nil {
		s.w.queue.Push(s.w.now.Add(x.interval), machine.ClassTimer, event{sendKV, s})
	}
	m.events, m.made = append(m.events, *e), append(m.made, s.w.now)
}

func (s *server) topic() kv.Topic { return kv.Topic{Pod: s.endpoint, Model: s.pool.Model()} }

// sendKV ends an interval.
func (s *server) sendKV() {
	s.kv.sent = append(s.kv.sent, s.kv.pending)
	s.kv.pending = kvMessage{}
	// Last of its moment: who is decided just then is decided without it, as
	// without a scrape of that moment.
	s.w.queue.Push(s.w.now.Add(s.pool.kv.delay), machine.ClassTimer, event{deliverKV, s})
}

// deliverKV brings the oldest message that is under way to the indexes.
func (s *server) deliverKV() {
	sent := s.kv.sent[0]
	s.kv.sent = s.kv.sent[1:]
	from := s.topic()
	if s.pool.kv.replays {
		s.kv.past = append(s.kv.past, sent.events)
		s.kv.past = s.kv.past[max(0, len(s.kv.past)-replayed):]
	}
	for _, ix := range s.pool.kv.indexes {
		ix.picker.Input(epp.KVEvents{Index: ix.number, From: from, Events: sent.events})
		for _, made := range sent.made {
			ix.lag.Note((s.w.now - made).Duration(), 1)
		}
	}
	if m := s.pool.kv.manager; m != nil {
		m.input(s.w.now, &kvindex.Events{From: kv.Topic{Pod: s.Name, Model: from.Model}, List: sent.events})
		for _, made := range sent.made {
			m.lag.Note((s.w.now - made).Duration(), 1)
		}
	}
}
