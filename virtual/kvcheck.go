package virtual

import (
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
)

// understand lets the names of engines' blocks be translated by one more rule.
func (x *kvWire) understand(h kv.Hasher) {
	h.BlockTokens = h.Tokens()
	if x.names[h].Index == nil {
		x.names[h] = index{kvindex.New(kvindex.Config{Hasher: h, Orphans: 1 << 20})}
	}
}

// managerIndex is what the KV-Cache Manager's index is called in reports.
const managerIndex = "kv-cache-manager"

// check holds every index, after the last event has arrived, against the blocks
// that the engines truly have.
func (x *kvWire) check() []report.IndexSummary {
	if x == nil {
		return nil
	}
	p := x.pool
	w := p.w
	w.now = w.now.Add(speculation) // what was only expected is over
	for _, ix := range x.indexes {
		ix.picker.m.KV(ix.number).Advance(w.now, new(kvindex.Effects))
	}
	engines := make([][]kv.EngineHash, len(p.servers))
	for i, sv := range p.servers {
		engines[i] = sv.core.Cached()
	}
	var out []report.IndexSummary
	for _, ix := range x.indexes {
		m := ix.picker.m
		kept := kvindex.Kept{MaxBlocks: ix.bound, Displaced: m.KV(ix.number).Stats().Displaced > 0,
			Lost: ix.lost || m.Indexes()[ix.number].Lost}
		held := func(i int) []kv.Key { return m.KV(ix.number).Keys(p.servers[i].endpoint) }
		c := x.compare(ix.told(), ix.hasher, kept, engines, held)
		ix.lag.Write(&c)
		out = append(out, c)
	}
	if m := x.manager; m != nil {
		held := func(i int) []kv.Key { return m.Keys(p.servers[i].Name) }
		c := x.compare(managerIndex, m.hasher, kvindex.Kept{}, engines, held)
		m.lag.Write(&c)
		out = append(out, c)
	}
	return out
}

// speculation is longer than any index waits for an event that it expects.
const speculation = machine.Time(24 * time.Hour)

// compare holds what an index has of each server against what its engine has.
// A block that the engine never announced under its name is missing.
func (x *kvWire) compare(index string, h kv.Hasher, kept kvindex.Kept, engines [][]kv.EngineHash,
	held func(server int) []kv.Key) report.IndexSummary {
	h.BlockTokens = h.Tokens()
	kept.EngineTokens, kept.Tokens = x.pool.servers[0].engine.Config().BlockSize, h.Tokens()
	return report.Compared(index, kvindex.Compare(engines, x.names[h].Index, held), kept)
}

// told is what the index is called, with its picker where there are several.
func (ix *kvIndex) told() string {
	if ix.picker.Told == "" {
		return ix.name
	}
	return ix.name + " of " + ix.picker.Told
}
