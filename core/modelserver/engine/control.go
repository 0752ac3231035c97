package engine

import (
	"cmp"
	"slices"
)

func (e *Engine) control(m Control, fx *Effects) {
	kind := ControlDone
	switch m.Op {
	case OpLoadAdapter:
		if m.Adapter == 0 || e.life == dead {
			kind = ControlRefused
			break
		}
		e.loadAdapter(m.Adapter)
	case OpUnloadAdapter:
		if !e.loras.known[m.Adapter] {
			kind = ControlRefused
			break
		}
		delete(e.loras.known, m.Adapter)
	case OpSleep:
		if e.life == dead {
			kind = ControlRefused
			break
		}
		e.life = asleep
		e.endAll(ReasonSleep, fx)
	case OpWake:
		if e.life != asleep {
			kind = ControlRefused
			break
		}
		e.life = awake
	case OpResetPrefixCache:
		if e.KVBlocksUsed() > 0 {
			kind = ControlRefused
			break
		}
		e.clearCache(fx)
	case OpDrain:
		if e.life != awake {
			kind = ControlRefused
			break
		}
		e.life, e.drainDone = draining, false
		e.drained(e.now, fx)
		return
	case OpCrash, OpFailRank:
		e.life = dead
		e.endAll(ReasonCrash, fx)
	case OpRestart:
		e.life = awake
		e.endAll(ReasonCrash, fx)
		e.resetAdapters()
	case OpPace:
		if e.independent() || m.Percent < 1 || m.Percent > MaxPace {
			kind = ControlRefused
			break
		}
		e.pace = Fixed(m.Percent)
	default:
		kind = ControlRefused
	}
	f := fx.add(e.now, kind, 0)
	f.Op, f.First = m.Op, int32(m.Adapter)
}

// endAll ends everything in flight at once, in order of arrival, and forgets all KV.
func (e *Engine) endAll(why Reason, fx *Effects) {
	if e.run.active {
		e.reportSteps(e.now, fx)
		e.stats.Busy += e.now - e.run.schedule.Start
		e.load.Prompts += min(e.run.prompts, e.now-e.run.schedule.Start)
	}
	if e.pool != nil {
		e.pool.log.flush(e.now, fx)
	}
	order := make([]int32, 0, e.ids.Len())
	for s := range e.reqs {
		if e.reqs[s].phase != phaseFree {
			order = append(order, int32(s))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(e.reqs[a].arrival, e.reqs[b].arrival) })
	for _, s := range order {
		r := &e.reqs[s]
		switch {
		case e.independent():
			e.leaveTimeline(s, fx)
		case r.phase == phaseDecode:
			e.leave(s)
		}
		if r.remote.Tokens > 0 && why != ReasonCrash {
			e.releaseRemote(e.now, r, fx)
		}
		e.finish(e.now, s, why, fx)
	}
	for ; e.expired < len(e.expiries); e.expired++ {
		e.release(e.now, e.expiries[e.expired].handle, why, fx)
	}
	e.empty()
	e.clearCache(fx)
}

// clearCache forgets all cached blocks. The caller has checked that none is in use.
func (e *Engine) clearCache(fx *Effects) {
	if e.pool == nil {
		return
	}
	e.pool.clear()
	if e.pool.log != nil {
		e.pool.log.flush(e.now, fx)
		fx.add(e.now, AllBlocksCleared, 0)
	}
}
