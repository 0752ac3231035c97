package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
)

// kvWire carries the KV events of the engines to the indexes of the pickers. Like a live publisher, a server collects
// events for an interval and sends them together. A message arrives after the delay.
type kvWire struct {
	pool            *pool
	interval, delay machine.Time
	indexes         []*kvIndex
	manager         *kvManager    // document 003's; nil without one
	names           kvindex.Names // the meaning of engines' names of blocks, by each index's rule
	replays         bool          // some index asks for earlier messages
	deaf            bool          // some events were lost
}

// kvIndex is an index of a picker, by its number there.
type kvIndex struct {
	picker *picking
	number int
	name   string
	hasher kv.Hasher
	bound  int // of its blocks; 0 is none
	lag    report.Lag
	lost   bool // its picker has died during the run
	// replays: it asks for messages that were published before it listened.
	replays bool
}

// kvOutbox holds the KV events of one server.
type kvOutbox struct {
	pending kvMessage // since the last message was sent
	sent    []kvMessage
	past    [][]kv.Event // delivered messages that can be replayed
}

// kvMessage is a message of several events, with the time of each.
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

// connect adds a picker's indexes.
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

// replayed is how many messages of a server can be replayed, as in vLLM's publisher.
const replayed = 10000

// dial connects an index to a server. The server's publisher replays its messages, in no time, if the index asks.
func (k *picking) dial(number int, t *epp.Target) {
	x, sv := k.pool.kv, k.pool.byAddr[t.HostPort()]
	if x == nil || sv == nil || k.m.Indexes()[number].Sources.ReplayPort == 0 {
		return
	}
	for _, events := range sv.kv.past {
		k.Input(epp.KVEvents{Index: number, From: sv.topic(), Events: events})
	}
}

// announce collects an event of the engine.
func (s *server) announce(e *kv.Event) {
	x := s.pool.kv
	if x == nil {
		return
	}
	x.names.Note(s.topic(), *e)
	m := &s.kv.pending
	if m.events == nil {
		s.w.queue.Push(s.w.now.Add(x.interval), machine.ClassTimer, event{then, s.sendKV})
	}
	m.events, m.made = append(m.events, *e), append(m.made, s.w.now)
}

func (s *server) topic() kv.Topic { return kv.Topic{Pod: s.endpoint, Model: s.pool.Model()} }

// sendKV ends an interval.
func (s *server) sendKV() {
	if s.mute {
		s.kv.pending, s.pool.kv.deaf = kvMessage{}, true
		return
	}
	s.kv.sent = append(s.kv.sent, s.kv.pending)
	s.kv.pending = kvMessage{}
	// The last event at its time: like a scrape, it does not affect decisions at the same time.
	s.w.queue.Push(s.w.now.Add(s.pool.kv.delay), machine.ClassTimer, event{then, s.deliverKV})
}

// deliverKV delivers the oldest message under way to the indexes.
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
		m.Input(s.w.now, &kvindex.Events{From: kv.Topic{Pod: s.Name, Model: from.Model}, List: sent.events},
			new(kvindex.Effects))
		for _, made := range sent.made {
			m.lag.Note((s.w.now - made).Duration(), 1)
		}
	}
}
