package virtual

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
)

// lag is the time from the moment at which an engine makes an event to the one
// at which an index has it, in microseconds.
type lag struct {
	hist *hdrhistogram.Histogram
	max  machine.Time
}

const longestLag = machine.Time(time.Hour)

func newLag() *lag {
	return &lag{hist: hdrhistogram.New(1, int64(longestLag/machine.Microsecond), 3)}
}

func (l *lag) note(t machine.Time) {
	l.max = max(l.max, t)
	// The value is inside the histogram's bounds, the only error there is.
	_ = l.hist.RecordValue(int64(min(t, longestLag) / machine.Microsecond))
}

func (l *lag) tell(s *report.IndexSummary) {
	at := func(q float64) float64 { return min(float64(l.hist.ValueAtQuantile(q))/1e6, l.max.Seconds()) }
	s.Events, s.P50, s.P90, s.P99, s.Max = int(l.hist.TotalCount()), at(50), at(90), at(99), l.max.Seconds()
}

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
		c := x.compare(ix.told(), ix.hasher, engines, func(i int) []kv.Key { return ix.picker.m.KV(ix.number).Keys(p.servers[i].endpoint) })
		ix.lag.tell(&c)
		c.Excuse = x.excuse(ix, &c)
		out = append(out, c)
	}
	if m := x.manager; m != nil {
		c := x.compare(managerIndex, m.hasher, engines, func(i int) []kv.Key { return m.Keys(p.servers[i].name) })
		m.lag.tell(&c)
		out = append(out, c)
	}
	return out
}

// speculation is longer than any index waits for an event that it expects.
const speculation = machine.Time(24 * time.Hour)

// compare holds what an index has of each server against what its engine has.
// A block that the engine never announced under its name is missing.
func (x *kvWire) compare(index string, h kv.Hasher, engines [][]kv.EngineHash, held func(server int) []kv.Key) report.IndexSummary {
	h.BlockTokens = h.Tokens()
	found := kvindex.Compare(engines, x.names[h].Index, held)
	return report.IndexSummary{Index: index, Pods: found.Pods, Blocks: found.Blocks, Missing: found.Missing, Extra: found.Extra}
}

// told is what the index is called, with its picker where there are several.
func (ix *kvIndex) told() string {
	if ix.picker.name == "" {
		return ix.name
	}
	return ix.name + " of " + ix.picker.name
}

// excuse is why an index cannot be the union of the engines' blocks.
func (x *kvWire) excuse(ix *kvIndex, c *report.IndexSummary) string {
	own, index := x.pool.servers[0].engine.Config().BlockSize, ix.hasher.Tokens()
	switch {
	case c.Missing+c.Extra == 0:
	case own%index != 0:
		return fmt.Sprintf("the engines' blocks have %d tokens, the index's %d", own, index)
	case c.Extra > 0:
	case ix.picker.m.KV(ix.number).Stats().Displaced > 0:
		return fmt.Sprintf("it keeps at most %d blocks", ix.bound)
	case ix.lost:
		return "it was lost in the middle of the run"
	}
	return ""
}
