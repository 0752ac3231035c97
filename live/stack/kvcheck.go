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

// CheckKV compares every index of the run with the blocks that the engines have, once all events had time to
// arrive.
func (s *Stack) CheckKV(ctx context.Context) []report.IndexSummary {
	var out []report.IndexSummary
	for _, p := range s.Pools {
		out = append(out, p.CheckKV(ctx)...)
	}
	return out
}

// CheckKV compares the pool's indexes.
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

// engineBlocks are the blocks that each server's engine has now, by the engines' names.
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
	add := func(name string, h kv.Hasher, kept kvindex.Kept, held func(server int) []kv.Key) {
		kept.EngineTokens, kept.Deaf = s.pool.BlockTokens, s.kv.deaf
		c, excuse := s.kv.names.Compare(h, kept, engines, held)
		out = append(out, report.Compared(name, c, excuse, s.kv.lag[name]))
	}
	for n, k := range s.Pickers {
		for i := range states[n] {
			x := &states[n][i]
			kept := kvindex.Kept{MaxBlocks: x.MaxBlocks, Displaced: x.Displaced, Replays: x.Replays,
				Lost: x.Lost || !s.kv.first.IsZero() && x.Began.After(s.kv.first)}
			add(report.IndexName(x.Plugin, k.plan.RecordName), x.Hasher, kept,
				func(i int) []kv.Key { return x.Blocks[s.Endpoints[i]] })
		}
	}
	if s.kv.manager != nil {
		add(report.ManagerIndex, kv.Hasher{BlockTokens: s.pool.BlockTokens}, kvindex.Kept{},
			func(i int) []kv.Key { return managed[i] })
	}
	return out
}
