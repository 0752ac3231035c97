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
		e.adapters[m.Adapter] = true
	case OpUnloadAdapter:
		if !e.adapters[m.Adapter] {
			kind = ControlRefused
			break
		}
		delete(e.adapters, m.Adapter)
	case OpSleep:
		if e.life == dead {
			kind = ControlRefused
			break
		}
		e.endAll(ReasonSleep, fx)
		e.life = asleep
	case OpWake:
		if e.life != asleep {
			kind = ControlRefused
			break
		}
		e.life = awake
	case OpResetPrefixCache:
		if len(e.ids) > 0 || len(e.held) > 0 {
			kind = ControlRefused
		}
	case OpDrain:
		if e.life != awake {
			kind = ControlRefused
			break
		}
		e.life, e.drainDone = draining, false
		e.drained(e.now, fx)
		return
	case OpCrash, OpFailRank:
		e.endAll(ReasonCrash, fx)
		e.life = dead
	case OpRestart:
		e.endAll(ReasonCrash, fx)
		e.life = awake
		e.resetAdapters()
	default:
		kind = ControlRefused
	}
	f := fx.add(e.now, kind, 0)
	f.Op, f.First = m.Op, int32(m.Adapter)
}

// endAll ends everything in flight at once, in order of arrival, and gives up
// all handles.
func (e *Engine) endAll(why Reason, fx *Effects) {
	order := make([]int32, 0, len(e.ids))
	for s := range e.reqs {
		if e.reqs[s].phase != phaseFree {
			order = append(order, int32(s))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(e.reqs[a].arrival, e.reqs[b].arrival) })
	for _, s := range order {
		e.end(s, why, fx)
	}
	for e.expired < len(e.expiries) {
		e.release(e.now, e.expiries[e.expired].handle, why, fx)
		e.expired++
	}
}
