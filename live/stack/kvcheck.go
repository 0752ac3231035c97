package stack

import (
	"context"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/report"
)

// settle is how long events may be under way after the last request.
const settle = 3 * time.Second

// CheckKV holds every index of the run against the blocks that the engines
// have, once all events had time to arrive.
func (s *Stack) CheckKV(ctx context.Context) []report.IndexSummary {
	var out []report.IndexSummary
	for _, p := range s.Pools {
		out = append(out, p.CheckKV(ctx)...)
	}
	return out
}

// CheckKV is that of the pool's indexes.
func (s *Pool) CheckKV(ctx context.Context) []report.IndexSummary {
	if s.kv == nil {
		return nil
	}
	deadline := time.Now().Add(settle + s.pool.Events.Interval)
	for {
		checks := s.checkKV()
		equal := !slices.ContainsFunc(checks, func(c report.IndexSummary) bool { return c.Missing+c.Extra > 0 })
		if equal || ctx.Err() != nil || time.Now().After(deadline) {
			return s.askManager(ctx, checks)
		}
		pause.For(ctx, 10*time.Millisecond)
	}
}

// engineBlocks are the blocks that each server's engine has now, by the
// engines' own names for them.
func (s *Pool) engineBlocks() [][]kv.EngineHash {
	out := make([][]kv.EngineHash, len(s.Names))
	for i, server := range s.Fleet.Servers() {
		out[i] = server.Cached()
	}
	return out
}

func (s *Pool) checkKV() []report.IndexSummary {
	engines := s.engineBlocks()
	states := make([][]epp.KVState, len(s.Pickers))
	for i, k := range s.Pickers {
		states[i] = k.now().KVState()
	}
	var managed [][]kv.Key
	if s.kv.manager != nil {
		for _, server := range s.Names {
			managed = append(managed, s.kv.manager.Keys(server))
		}
	}
	s.kv.mu.Lock()
	defer s.kv.mu.Unlock()
	var out []report.IndexSummary
	for n, k := range s.Pickers {
		for i := range states[n] {
			state := &states[n][i]
			late := state.Lost || !s.kv.first.IsZero() && state.Began.After(s.kv.first)
			kept := kvindex.Kept{EngineTokens: s.pool.BlockTokens, MaxBlocks: state.MaxBlocks,
				Displaced: state.Displaced, Lost: late && !state.Replays}
			held := func(i int) []kv.Key { return state.Blocks[s.Endpoints[i]] }
			out = append(out, s.kv.compare(indexName(state.Plugin, k.plan.Told), state.Hasher, kept, engines, held))
		}
	}
	if s.kv.manager != nil {
		tokens := s.pool.BlockTokens
		h, kept := kv.Hasher{BlockTokens: tokens}, kvindex.Kept{EngineTokens: tokens}
		out = append(out, s.kv.compare(managerIndex, h, kept, engines, func(i int) []kv.Key { return managed[i] }))
	}
	return out
}

// compare holds what an index has of each server against what the server's
// engine has. A block that the engine never announced under its name is
// missing. The lock is held.
func (x *announcers) compare(index string, h kv.Hasher, kept kvindex.Kept, engines [][]kv.EngineHash,
	held func(server int) []kv.Key) report.IndexSummary {
	h.BlockTokens = h.Tokens()
	kept.Tokens = h.Tokens()
	c := report.Compared(index, kvindex.Compare(engines, x.names[h], held), kept)
	x.lag[index].Write(&c)
	return c
}
