package engine

import "github.com/windtunnel/windtunnel/core/machine"

// A held handle is the KV of a finished prefill that another engine may fetch.
// It is released by KVReleased or by its deadline.
type handle struct {
	request RequestID
	blocks  int32
	until   machine.Time
}

// expiry is a handle's deadline; deadlines are in order because every handle is
// held equally long.
type expiry struct {
	at     machine.Time
	handle uint64
}

func (e *Engine) holdKV(at machine.Time, r *request, blocks int32, fx *Effects) {
	h := uint64(r.id)
	until := at.Add(e.cfg.KVHoldTimeout)
	e.held[h] = handle{r.id, blocks, until}
	e.expiries = append(e.expiries, expiry{until, h})
	f := fx.add(at, KVHeld, r.id)
	f.Handle, f.Count, f.Until = h, blocks, until
}

// nextExpiry is the earliest deadline of a handle that is still held.
func (e *Engine) nextExpiry() (machine.Time, bool) {
	for e.expired < len(e.expiries) {
		x := e.expiries[e.expired]
		if h, ok := e.held[x.handle]; ok && h.until == x.at {
			return x.at, true
		}
		e.expired++
	}
	e.expiries, e.expired = e.expiries[:0], 0
	return machine.Never, false
}

func (e *Engine) release(at machine.Time, h uint64, why Reason, fx *Effects) {
	held, ok := e.held[h]
	if !ok {
		return
	}
	delete(e.held, h)
	f := fx.add(at, KVFreed, held.request)
	f.Handle, f.Count, f.Reason = h, held.blocks, why
}

// askKV asks the driver to fetch tokens of a request's prompt.
func (e *Engine) askKV(s int32, tokens int, fx *Effects) {
	r := &e.reqs[s]
	f := fx.add(e.now, KVPull, r.id)
	f.Handle, f.From, f.Count = r.remote.Handle, r.remote.From, int32(tokens)
	f.Bytes = int64(tokens) * e.cfg.KVBytesPerToken
}

// releaseRemote tells the other engine, through the driver, that its KV is no
// longer needed.
func (e *Engine) releaseRemote(r *request, fx *Effects) {
	f := fx.add(e.now, KVRelease, r.id)
	f.Handle, f.From = r.remote.Handle, r.remote.From
}
