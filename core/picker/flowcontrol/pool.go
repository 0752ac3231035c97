package flowcontrol

import "github.com/windtunnel/windtunnel/core/machine"

// pool is the endpoints' loads with the saturation that follows from them.
type pool struct {
	detector Detector
	loads    []Load

	// Sums for the concurrency-detector, kept as loads change. reserved is
	// what has been dispatched and is not yet in the endpoints' loads.
	requests, tokens                 int64
	reservedRequests, reservedTokens int64

	// The utilization-detector's last answer, good from then until.
	dirty           bool
	value           float64
	from, untilTime machine.Time
}

func (p *pool) empty() bool { return len(p.loads) == 0 }

func (p *pool) set(loads []Load) {
	p.loads = append(p.loads[:0], loads...)
	p.requests, p.tokens = 0, 0
	for _, l := range p.loads {
		p.requests += l.Requests
		p.tokens += l.Tokens
	}
	p.dirty = true
}

// change replaces one load; an endpoint that does not exist is ignored.
func (p *pool) change(i int, l Load) {
	if i < 0 || i >= len(p.loads) {
		return
	}
	old := &p.loads[i]
	p.requests += l.Requests - old.Requests
	p.tokens += l.Tokens - old.Tokens
	if l.Waiting != old.Waiting || l.KVUsage != old.KVUsage || l.UpdatedAt != old.UpdatedAt || l.Scraped != old.Scraped {
		p.dirty = true
	}
	*old = l
}

func (p *pool) reserve(requests, tokens int64) {
	p.reservedRequests += requests
	p.reservedTokens += tokens
}

func (p *pool) saturation(now machine.Time) float64 {
	if p.detector.Kind == ConcurrencyDetectorType {
		return p.detector.Concurrency.of(p.requests+p.reservedRequests, p.tokens+p.reservedTokens, len(p.loads))
	}
	if p.dirty || now < p.from || now >= p.untilTime {
		u := p.detector.Utilization
		p.value, p.from, p.untilTime, p.dirty = u.Saturation(p.loads, now), now, machine.Never, false
		for _, l := range p.loads {
			if !u.Stale(l, now) {
				p.untilTime = min(p.untilTime, l.UpdatedAt.Add(u.MetricsStalenessThreshold).Add(1))
			}
		}
	}
	return p.value
}

// until is when the saturation changes without a message.
func (p *pool) until(now machine.Time) machine.Time {
	if p.detector.Kind == ConcurrencyDetectorType {
		return machine.Never
	}
	p.saturation(now)
	return p.untilTime
}
