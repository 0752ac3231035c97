package epp

import (
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
)

// index is the index of KV blocks of one precise-prefix producer.
type index struct {
	*kvindex.Index
	producer *dataproducer.PrecisePrefix
	sources  dataproducer.KVSources
	block    int                // tokens
	known    map[string]*Target // by "namespace/name"
	names    map[string]string  // pod name in document 003 → address and port
	warned   map[string]int     // pod → block size of its engine, where it differs from the index's
	lost     bool               // LoseIndexes emptied it
}

// Index describes one index of KV blocks. Effects and messages refer to it by its number.
type Index struct {
	Producer *dataproducer.PrecisePrefix
	Sources  dataproducer.KVSources
	Config   kvindex.Config
	// Lost is true once LoseIndexes has emptied the index.
	Lost bool
}

// openIndexes gives every precise-prefix producer an index of its own.
func (m *Machine) openIndexes() {
	for _, pl := range m.p.Plugins() {
		p := dataproducer.Precise(pl)
		if p == nil {
			continue
		}
		cfg := p.Index()
		ix := &index{producer: p, sources: p.Sources(), block: cfg.Hasher.Tokens(), known: map[string]*Target{},
			names: map[string]string{}, warned: map[string]int{}}
		m.open(ix)
		m.indexes = append(m.indexes, ix)
	}
}

// open starts an empty index.
func (m *Machine) open(ix *index) {
	ix.Index = kvindex.New(ix.producer.Index())
	ix.producer.Connect(dataproducer.KVIndex{View: ix.View(),
		Speculate: func(pod string, keys []kv.Key, ttl machine.Time) {
			m.inputIndex(ix, kvindex.Speculate{Pod: pod, Keys: keys, TTL: ttl})
		}})
}

// loseIndexes starts with empty indexes and reconnects to all publishers, which may send their blocks again.
func (m *Machine) loseIndexes() {
	for n, ix := range m.indexes {
		m.open(ix)
		ix.lost = true
		if !ix.sources.Discover {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(ix.known)) {
			m.emit(Effect{Kind: Hangup, Target: ix.known[id], Source: n})
			m.emit(Effect{Kind: Dial, Target: ix.known[id], Source: n})
		}
	}
}

// Indexes returns the indexes of KV blocks.
func (m *Machine) Indexes() []Index {
	out := make([]Index, len(m.indexes))
	for i, ix := range m.indexes {
		out[i] = Index{ix.producer, ix.sources, ix.producer.Index(), ix.lost}
	}
	return out
}

// KV returns index i. The caller reads it during the Machine's turn.
func (m *Machine) KV(i int) *kvindex.Index { return m.indexes[i].Index }

// followIndex dials the pool's new endpoints and drops those that left, with all their blocks.
func (m *Machine) followIndex(n int, ix *index, view *picker.View) {
	there := make(map[string]*Target, len(view.States))
	for i := range view.States {
		e := view.States[i].Endpoint
		there[e.ID()] = m.scraping.targets[e.ID()]
	}
	for _, id := range slices.Sorted(maps.Keys(ix.known)) {
		t := ix.known[id]
		if now := there[id]; now != nil && now.HostPort() == t.HostPort() {
			continue
		}
		delete(ix.known, id)
		delete(ix.warned, t.HostPort())
		m.inputIndex(ix, kvindex.DropPod{Pod: t.HostPort()})
		if ix.sources.Discover {
			m.emit(Effect{Kind: Hangup, Target: t, Source: n})
		}
	}
	clear(ix.names)
	for i := range view.States {
		e := view.States[i].Endpoint
		ix.names[e.Name] = e.HostPort()
		if ix.known[e.ID()] != nil {
			continue
		}
		ix.known[e.ID()] = there[e.ID()]
		if ix.sources.Discover {
			m.emit(Effect{Kind: Dial, Target: there[e.ID()], Source: n})
		}
	}
}

// maxWarned bounds the pods whose mismatch is remembered.
const maxWarned = 10_000

// kvEvents applies events to their index. Document 003's JSON has pods' names; the index has addresses and ports.
func (m *Machine) kvEvents(x *KVEvents) {
	ix, in := m.indexes[x.Index], &m.kvMessage
	var unlike []Effect
	in.From = x.From
	if len(x.Events) == 0 {
		m.inputIndex(ix, in)
	}
	for i := range x.Events {
		e := &x.Events[i]
		if e.Pod != "" {
			if hostPort := ix.names[e.Pod]; hostPort != "" {
				e.Pod = hostPort
			}
		}
		if e.Kind == kv.Stored && e.BlockTokens > 0 && e.BlockTokens != ix.block &&
			ix.warned[x.From.Pod] != e.BlockTokens && len(ix.warned) < maxWarned {
			ix.warned[x.From.Pod] = e.BlockTokens
			unlike = append(unlike, Effect{Kind: Mismatch, Source: x.Index, Count: e.BlockTokens,
				Target: ix.target(x.From.Pod)})
		}
		in.List = x.Events[i : i+1]
		m.inputIndex(ix, in)
		if m.log != nil {
			x.Keys = append(x.Keys, slices.Clone(ix.Made()))
		}
	}
	m.logged(*x) // only now are the keys known
	for _, e := range unlike {
		m.emit(e)
	}
	in.List = nil
}

// inputIndex passes a message to an index. It drops the effects: an index applies what is due before anyone reads it.
func (m *Machine) inputIndex(ix *index, msg kvindex.Message) {
	ix.Input(m.now, msg, &m.indexFx)
	m.indexFx.Reset()
}

// target returns the endpoint at an address, nil where the pool has no such endpoint.
func (ix *index) target(hostPort string) *Target {
	for _, t := range ix.known {
		if t.HostPort() == hostPort {
			return t
		}
	}
	return nil
}
