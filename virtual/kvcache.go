package virtual

import (
	"encoding/json"
	"time"

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
	lag    report.Lag
	lost   bool // its picker has died during the run
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
		x.indexes = append(x.indexes, &kvIndex{picker: k, number: i})
		x.replays = x.replays || ix.Sources.ReplayPort > 0
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

// kvManager is document 003's KV-Cache Manager: an index that knows pods by name, with the answers to a picker's
// KVCacheManagerScorer.
type kvManager struct {
	*kvindex.Index
	hasher kv.Hasher
	scorer *kvindex.Scorer
	lag    report.Lag
}

func newKVManager(blockTokens int) *kvManager {
	m := &kvManager{hasher: kv.Hasher{BlockTokens: blockTokens}}
	m.Index = kvindex.New(kvindex.Config{Hasher: m.hasher})
	m.scorer = m.View().Scorer()
	return m
}

// scores returns the manager's answer to a KVCacheManagerScorer.
func (x *kvWire) scores(r *request) ([]byte, error) {
	keys := x.manager.hasher.PromptKeys(x.pool.Model(), "", r.promptTokens())
	return json.Marshal(x.manager.scorer.Answer(keys, nil, nil))
}

// check compares every index, after the last event has arrived, with the blocks of the engines.
func (x *kvWire) check() []report.IndexSummary {
	if x == nil {
		return nil
	}
	p := x.pool
	w := p.w
	w.now = w.now.Add(speculation) // no index expects an event any more
	for _, ix := range x.indexes {
		ix.picker.m.KV(ix.number).Advance(w.now, new(kvindex.Effects))
	}
	engines := make([][]kv.EngineHash, len(p.servers))
	for i, sv := range p.servers {
		engines[i] = sv.core.Cached()
	}
	var out []report.IndexSummary
	add := func(name string, h kv.Hasher, kept kvindex.Kept, lag *report.Lag, held func(server int) []kv.Key) {
		kept.EngineTokens, kept.Deaf = p.BlockTokens, x.deaf
		c, excuse := x.names.Compare(h, kept, engines, held)
		out = append(out, report.Compared(name, c, excuse, lag))
	}
	for _, ix := range x.indexes {
		m := ix.picker.m
		is := m.Indexes()[ix.number]
		kept := kvindex.Kept{MaxBlocks: is.Config.MaxBlocks, Displaced: m.KV(ix.number).Stats().Displaced > 0,
			Lost: ix.lost || is.Lost, Replays: is.Sources.ReplayPort > 0}
		add(report.IndexName(is.Producer.Name(), ix.picker.RecordName), is.Config.Hasher, kept, &ix.lag,
			func(i int) []kv.Key { return m.KV(ix.number).Keys(p.servers[i].endpoint) })
	}
	if m := x.manager; m != nil {
		add(report.ManagerIndex, m.hasher, kvindex.Kept{}, &m.lag,
			func(i int) []kv.Key { return m.Keys(p.servers[i].Name) })
	}
	return out
}

// speculation is longer than any index waits for an expected event.
const speculation = machine.Time(24 * time.Hour)
