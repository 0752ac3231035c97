package engine

import "github.com/windtunnel/windtunnel/core/machine"

// handle is the KV of a finished prefill that another engine may fetch. KVReleased or its deadline releases it.
type handle struct {
	holding
	request RequestID
	count   int32 // blocks, even if the engine accounts for none
	until   machine.Time
}

// expiry is a handle's deadline. Deadlines are in order because the engine holds every handle equally long.
type expiry struct {
	at     machine.Time
	handle uint64
}

func (e *Engine) holdKV(at machine.Time, r *request, fx *Effects) {
	size := int32(e.cfg.BlockSize)
	blocks := (r.prompt + r.made - 1 + size - 1) / size
	h := uint64(r.id)
	until := at.Add(e.cfg.KVHoldTimeout)
	e.held[h] = handle{r.holding, r.id, blocks, until}
	if e.expired > 256 && e.expired > len(e.expiries)/2 {
		e.expiries = e.expiries[:copy(e.expiries, e.expiries[e.expired:])]
		e.expired = 0
	}
	e.expiries = append(e.expiries, expiry{until, h})
	f := fx.add(at, KVHeld, r.id)
	f.Handle, f.Count, f.Until = h, blocks, until
}

// nextExpiry returns the earliest deadline of a handle that is still held, or Never.
func (e *Engine) nextExpiry() machine.Time {
	for e.expired < len(e.expiries) {
		x := e.expiries[e.expired]
		if h, ok := e.held[x.handle]; ok && h.until == x.at {
			return x.at
		}
		e.expired++
	}
	e.expiries, e.expired = e.expiries[:0], 0
	return machine.Never
}

func (e *Engine) release(at machine.Time, h uint64, why Reason, fx *Effects) {
	held, ok := e.held[h]
	if !ok {
		return
	}
	delete(e.held, h)
	f := fx.add(at, KVFreed, held.request)
	f.Handle, f.Count, f.Reason = h, held.count, why
	if e.pool != nil {
		e.pool.drop(&held.holding)
		e.freed()
	}
}
