package virtual

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/scenario"
)

// kvWire carries the KV events of the run's engines to the indexes of its
// picker: as live publishers do, a server gathers events for an interval and
// sends them together; then they are under way for the delay.
type kvWire struct {
	w               *world
	model           string
	interval, delay machine.Time
	indexes         []*kvIndex
	manager         *kvManager // document 003's, where the scenario has it
	// heard, if not nil, is told of every event at once, without the wire.
	heard func(from kv.Topic, e *kv.Event)
}

// kvIndex is the index of one precise-prefix producer.
type kvIndex struct {
	*kv.Index
	plugin *plugins.PrecisePrefix
}

// kvOutbox is what one server has to tell.
type kvOutbox struct {
	pending []kv.Event // since the last message was sent
	sent    [][]kv.Event
	prompts map[engine.RequestID][]uint32 // of requests in the engine
	over    []engine.RequestID            // finished in the effects that are being played
}

func newKVWire(w *world, p *scenario.Pool) *kvWire {
	e := &p.ModelServer.KVEvents
	if !e.Published() {
		return nil
	}
	x := &kvWire{w: w, model: p.Model, interval: machine.FromDuration(e.Interval), delay: machine.FromDuration(e.Delay)}
	if p.KVManager {
		x.manager = newKVManager(p)
	}
	return x
}

// connect gives every precise-prefix producer an index.
func (x *kvWire) connect(p *picker.Picker) {
	if x == nil {
		return
	}
	for _, pl := range p.Plugins() {
		s := plugins.Precise(pl)
		if s == nil {
			continue
		}
		ix := &kvIndex{kv.NewIndex(s.Index()), s}
		s.Connect(plugins.KVIndex{View: ix.View(), Speculate: func(pod string, keys []kv.Key, ttl machine.Time) {
			ix.Speculate(x.w.now, pod, keys, ttl)
		}})
		x.indexes = append(x.indexes, ix)
	}
}

// advance lets what indexes expect of the time come true before somebody looks.
func (x *kvWire) advance() {
	if x == nil {
		return
	}
	for _, ix := range x.indexes {
		ix.Advance(x.w.now, func(kv.Effect) {})
	}
}

// submitted notes whose blocks the engine will report.
func (s *server) submitted(id engine.RequestID, prompt []uint32) {
	if s.w.kv == nil {
		return
	}
	if s.kv.prompts == nil {
		s.kv.prompts = map[engine.RequestID][]uint32{}
	}
	s.kv.prompts[id] = prompt
}

// announce takes what the engine says of its blocks.
func (s *server) announce(f *engine.Effect) {
	x := s.w.kv
	if x == nil {
		return
	}
	e := kv.Event{Medium: f.Tier.String(), Group: kv.NoGroup}
	for _, h := range s.fx.BlockHashes(f) {
		e.Hashes = append(e.Hashes, kv.EngineHash(h))
	}
	block := s.engine.Config().BlockSize
	switch f.Kind {
	case engine.BlockStored:
		e.Kind, e.BlockTokens = kv.Stored, block
		if f.Tier == engine.TierGPU {
			e.Parent = kv.EngineHash(f.Parent)
			e.Tokens = s.tokensOf(f.Request, int(f.First)*block, int(f.Count)*block)
		}
	case engine.BlockRemoved:
		e.Kind = kv.Removed
	case engine.AllBlocksCleared:
		e.Kind = kv.Cleared
	}
	if x.heard != nil {
		x.heard(s.topic(), &e)
	}
	if s.kv.pending == nil {
		s.w.queue.Push(s.w.now.Add(x.interval), machine.ClassTimer, event{kind: sendKV, server: s})
	}
	s.kv.pending = append(s.kv.pending, e)
}

// tokensOf are some of a request's tokens. Generated ones are made up: unlike
// those of any other request, as a live server's random words are.
func (s *server) tokensOf(id engine.RequestID, first, count int) []uint32 {
	prompt := s.kv.prompts[id]
	out := make([]uint32, 0, count)
	if first < len(prompt) {
		out = append(out, prompt[first:min(len(prompt), first+count)]...)
	}
	for i := first + len(out); len(out) < count; i++ {
		d := machine.NewDraw(uint64(id), s.name, "generated token", uint64(i))
		out = append(out, uint32(d.Uint64()))
	}
	return out
}

// told forgets requests that are over, once all that the engine says of their
// blocks has been heard.
func (s *server) told() {
	for _, id := range s.kv.over {
		delete(s.kv.prompts, id)
	}
	s.kv.over = s.kv.over[:0]
}

func (s *server) topic() kv.Topic { return kv.Topic{Pod: s.endpoint, Model: s.w.kv.model} }

// sendKV ends an interval.
func (s *server) sendKV() {
	s.kv.sent = append(s.kv.sent, s.kv.pending)
	s.kv.pending = nil
	s.w.queue.Push(s.w.now.Add(s.w.kv.delay), machine.ClassTimer, event{kind: deliverKV, server: s})
}

// deliverKV brings the oldest message that is under way to the indexes.
func (s *server) deliverKV() {
	events := s.kv.sent[0]
	s.kv.sent = s.kv.sent[1:]
	from := s.topic()
	for i := range events {
		for _, ix := range s.w.kv.indexes {
			ix.Input(s.w.now, from, &events[i])
		}
		if m := s.w.kv.manager; m != nil {
			m.Input(s.w.now, kv.Topic{Pod: s.name, Model: from.Model}, &events[i])
		}
	}
}
