package virtual

import (
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
)

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
		kept := kvindex.Kept{MaxBlocks: ix.bound, Displaced: m.KV(ix.number).Stats().Displaced > 0,
			Lost: ix.lost || m.Indexes()[ix.number].Lost, Replays: ix.replays}
		add(report.IndexName(ix.name, ix.picker.RecordName), ix.hasher, kept, &ix.lag,
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
