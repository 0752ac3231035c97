package engine

import "github.com/windtunnel/windtunnel/core/machine"

// kvLog collects the events of cached blocks during a step. vLLM publishes them when the step ends, and so does flush.
type kvLog struct {
	list   []Effect
	hashes []uint64
}

func (l *kvLog) stored(c *chain, first, n int32, owner RequestID, tier Tier) {
	f := Effect{Kind: BlockStored, Tier: tier, Request: owner, First: first, Count: n, hashFirst: int32(len(l.hashes))}
	if first > 0 {
		f.Parent = c.at(first - 1)
	}
	for p := first; p < first+n; p++ {
		l.hashes = append(l.hashes, c.at(p))
	}
	l.list = append(l.list, f)
}

// removed adds blocks in the order of their eviction, the last block first.
func (l *kvLog) removed(c *chain, first, n int32, tier Tier) {
	l.list = append(l.list, Effect{Kind: BlockRemoved, Tier: tier, Count: n, hashFirst: int32(len(l.hashes))})
	for p := first + n - 1; p >= first; p-- {
		l.hashes = append(l.hashes, c.at(p))
	}
}

func (l *kvLog) flush(at machine.Time, fx *Effects) {
	if l == nil || len(l.list) == 0 {
		return
	}
	shift := int32(len(fx.hashes))
	fx.hashes = append(fx.hashes, l.hashes...)
	for _, f := range l.list {
		f.At = at
		f.hashFirst += shift
		fx.List = append(fx.List, f)
	}
	l.list, l.hashes = l.list[:0], l.hashes[:0]
}
