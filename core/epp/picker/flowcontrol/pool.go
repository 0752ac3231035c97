package flowcontrol

import "github.com/windtunnel/windtunnel/core/machine"

// pool holds the endpoints' loads and computes their saturation. It also keeps the metrics that only the other detector
// needs, since they are cheap.
type pool struct {
	detector Detector
	loads    []Load

	// Sums for the concurrency-detector, updated with the loads. reserved counts requests that were dispatched and are
	// not yet in the endpoints' loads.
	requests, tokens                 int64
	reservedRequests, reservedTokens int64

	// For the utilization-detector: each endpoint's score, and when its metrics become stale (Never: they already are).
	// A changed score makes the mean be summed again in the endpoints' order, so that it is always the same number.
	scores  []float64
	staleAt []machine.Time
	changed bool
	mean    float64

	// next is when the first endpoint becomes stale. While loose, it may be too early.
	next  machine.Time
	loose bool
}

func (p *pool) empty() bool { return len(p.loads) == 0 }

func (p *pool) set(loads []Load, now machine.Time) {
	p.loads = append(p.loads[:0], loads...)
	p.scores = append(p.scores[:0], make([]float64, len(loads))...)
	p.staleAt = append(p.staleAt[:0], make([]machine.Time, len(loads))...)
	p.requests, p.tokens = 0, 0
	for i, l := range p.loads {
		p.requests += l.Requests
		p.tokens += l.Tokens
		p.score(i, now)
	}
	p.changed, p.next, p.loose = true, 0, true
}

// change replaces one load. It ignores an endpoint that does not exist.
func (p *pool) change(i int, l Load, now machine.Time) {
	if i < 0 || i >= len(p.loads) {
		return
	}
	old := p.loads[i]
	p.loads[i] = l
	p.requests += l.Requests - old.Requests
	p.tokens += l.Tokens - old.Tokens
	if l.Waiting == old.Waiting && l.KVUsage == old.KVUsage && l.UpdatedAt == old.UpdatedAt &&
		l.Scraped == old.Scraped {
		return
	}
	score, stale := p.scores[i], p.staleAt[i]
	p.score(i, now)
	p.changed = p.changed || p.scores[i] != score
	p.loose = p.loose || stale == p.next
	p.next = min(p.next, p.staleAt[i])
}

// score computes the values of endpoint i.
func (p *pool) score(i int, now machine.Time) {
	u := p.detector.Utilization
	p.scores[i], p.staleAt[i] = u.Score(p.loads[i], now), machine.Never
	if !u.Stale(p.loads[i], now) {
		p.staleAt[i] = p.loads[i].UpdatedAt.Add(u.MetricsStalenessThreshold).Add(1)
	}
}

func (p *pool) reserve(requests, tokens int64) {
	p.reservedRequests += requests
	p.reservedTokens += tokens
}

// saturation returns the saturation at a time that never goes back.
func (p *pool) saturation(now machine.Time) float64 {
	if p.detector.Kind == ConcurrencyDetectorType {
		return p.detector.Concurrency.of(p.requests+p.reservedRequests, p.tokens+p.reservedTokens, len(p.loads))
	}
	if now >= p.next {
		p.settle(now)
	}
	if p.changed {
		total := 0.0
		for _, s := range p.scores {
			total += s
		}
		p.mean, p.changed = total/float64(len(p.scores)), false
		if len(p.scores) == 0 {
			p.mean = 1
		}
	}
	return p.mean
}

// settle updates the endpoints whose metrics have become stale, and next.
func (p *pool) settle(now machine.Time) {
	p.next, p.loose = machine.Never, false
	for i, at := range p.staleAt {
		if at <= now {
			p.scores[i], p.staleAt[i], p.changed = 1, machine.Never, true
			continue
		}
		p.next = min(p.next, at)
	}
}

// until returns when the saturation next changes without a message.
func (p *pool) until(now machine.Time) machine.Time {
	if p.detector.Kind == ConcurrencyDetectorType {
		return machine.Never
	}
	if p.loose || now >= p.next {
		p.settle(now)
	}
	return p.next
}

// at returns the saturation at a later time without advancing the pool.
func (p *pool) at(now machine.Time) float64 {
	if p.detector.Kind == ConcurrencyDetectorType {
		return p.saturation(now)
	}
	return p.detector.Utilization.Saturation(p.loads, now)
}
