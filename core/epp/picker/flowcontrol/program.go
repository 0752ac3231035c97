package flowcontrol

import (
	"cmp"
	"errors"
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Program has the parameters of program-aware-fairness: least attained service first. A program is all requests of one
// fairness id. Its service is prompt tokens + 2 x completion tokens of its answers.
type Program struct {
	Strategy      string  `json:"strategy"` // only "las"
	WeightService float64 `json:"lasWeightService"`
	WeightWait    float64 `json:"lasWeightHeadWait"` // weight of how long its first request has waited

	// DecayFactor multiplies a program's service in every dispatch cycle in which it neither waits nor runs. If
	// HalfLifeSeconds is above 0, the service halves in that time instead.
	DecayFactor     float64 `json:"lasDecayFactor"`
	HalfLifeSeconds float64 `json:"lasHalfLifeSeconds"`

	// A program without work for EvictionTTL, in seconds, is removed; 0 is never. EvictionSweep has no effect: an
	// arrival removes programs.
	EvictionTTL   float64 `json:"evictionTtlSeconds" min:"0"`
	EvictionSweep float64 `json:"evictionSweepSeconds" above:"0"`
}

// DefaultProgram returns the real plug-in's default parameters.
func DefaultProgram() Program {
	return Program{
		Strategy: "las", WeightService: 0.8, WeightWait: 0.2, DecayFactor: 0.99997,
		EvictionTTL: 3600, EvictionSweep: 300,
	}
}

// Validate returns an error that lists all parameters out of range.
func (p Program) Validate() error {
	var errs problems
	errs.unless(!(p.Strategy != "" && p.Strategy != "las"), "unknown strategy %q, must be \"las\"", p.Strategy)
	errs.unless(p.WeightService >= 0 && p.WeightWait >= 0,
		"lasWeightService and lasWeightHeadWait must be non-negative, got %g and %g", p.WeightService, p.WeightWait)
	errs.unless(p.DecayFactor > 0 && p.DecayFactor <= 1, "lasDecayFactor must be in (0, 1], got %g", p.DecayFactor)
	errs.unless(p.HalfLifeSeconds >= 0, "lasHalfLifeSeconds must be non-negative, got %g", p.HalfLifeSeconds)
	return errors.Join(errs...)
}

// programs holds the programs of one plug-in instance.
type programs struct {
	Program
	byID map[string]*program
}

type program struct {
	ID         string       `json:"id"`
	Service    float64      `json:"service,omitempty"`    // at WorkedAt
	WorkedAt   machine.Time `json:"workedAt,omitempty"`   // time of the last work
	RestCycles int64        `json:"restCycles,omitempty"` // dispatch cycles without work since then
	RestUntil  machine.Time `json:"restUntil,omitempty"`  // time of the last such cycle
	Running    int          `json:"running,omitempty"`
	Waiting    int          `json:"waiting,omitempty"`
	Dispatched int64        `json:"dispatched,omitempty"`
	WaitSumMs  float64      `json:"waitSumMs,omitempty"`
	LastDone   machine.Time `json:"lastDone,omitempty"`

	weighed bool // its flow was a candidate of pick
}

func newPrograms(config Program) *programs {
	return &programs{Program: config, byID: map[string]*program{}}
}

func (p *programs) get(id string, now machine.Time) *program {
	q := p.byID[id]
	if q == nil {
		q = &program{ID: id, WorkedAt: now, LastDone: now}
		p.byID[id] = q
	}
	return q
}

// decayed returns a program's service after its rest, computed for the whole rest at once, so that it does not depend
// on how often it is called.
func (p *programs) decayed(q *program) float64 {
	switch {
	case q.RestCycles == 0 || q.Service == 0:
		return q.Service
	case p.HalfLifeSeconds > 0:
		return q.Service * math.Pow(0.5, (q.RestUntil-q.WorkedAt).Seconds()/p.HalfLifeSeconds)
	}
	return q.Service * math.Pow(p.DecayFactor, float64(q.RestCycles))
}

// work ends a program's rest.
func (p *programs) work(q *program, now machine.Time) {
	q.Service = p.decayed(q)
	q.WorkedAt, q.RestCycles = now, 0
}

func (p *programs) done(q *program, promptTokens, completionTokens int64, now machine.Time) {
	p.work(q, now)
	q.Running--
	q.Service += float64(promptTokens + 2*completionTokens)
	q.LastDone = now
}

// sweep removes programs that have had no work for EvictionTTL and, if there are more than maxIdleFlows idle ones,
// those that worked longest ago.
func (p *programs) sweep(now machine.Time) {
	var idle []*program
	for id, q := range p.byID {
		switch {
		case q.Running > 0 || q.Waiting > 0:
		case p.EvictionTTL > 0 && (now-q.LastDone).Seconds() >= p.EvictionTTL:
			delete(p.byID, id)
		default:
			idle = append(idle, q)
		}
	}
	if len(idle) <= maxIdleFlows {
		return
	}
	machine.SortFunc(idle, func(x, y *program) int {
		return cmp.Or(cmp.Compare(x.LastDone, y.LastDone), cmp.Compare(x.ID, y.ID))
	})
	for _, q := range idle[:len(idle)-maxIdleFlows/2] {
		delete(p.byID, q.ID)
	}
}

// ProgramStats has the metrics of one program.
type ProgramStats struct {
	ID              string
	AttainedService float64 // tokens; completion tokens count twice
	AverageWaitMs   float64
	InFlight        int
	// Dispatched counts its dispatched requests. Weighed is true once its flow was a candidate.
	Dispatched int64
	Weighed    bool
}

// stats lists the programs by id, and Jain's fairness index over their average waits, which is 1 if all waits are
// equal.
func (p *programs) stats() (list []ProgramStats, index float64) {
	n := 0 // programs that waited
	for id, q := range p.byID {
		s := ProgramStats{ID: id, AttainedService: p.decayed(q), InFlight: q.Running, Dispatched: q.Dispatched,
			Weighed: q.weighed || q.Dispatched > 0}
		if q.Dispatched > 0 {
			s.AverageWaitMs = q.WaitSumMs / float64(q.Dispatched)
			n++
		}
		list = append(list, s)
	}
	machine.SortFunc(list, func(a, b ProgramStats) int { return cmp.Compare(a.ID, b.ID) })
	sum, squares := 0.0, 0.0
	for _, s := range list {
		sum += s.AverageWaitMs
		squares += float64(s.AverageWaitMs * s.AverageWaitMs)
	}
	if n < 2 || squares == 0 {
		return list, 1
	}
	return list, sum * sum / (float64(n) * squares)
}

// programAware is program-aware-fairness in one band.
type programAware struct {
	waiting
	*programs
	resting []*flow // flows of the band without waiting requests
}

func (p *programAware) admit(f *flow) {
	f.program = p.get(f.id, f.idleSince)
	p.rest(f)
}

func (p *programAware) join(f *flow) {
	f.program = p.get(f.id, f.head().Arrived) // it may have been removed
	f.program.Waiting++
	p.work(f.program, f.head().Arrived)
	p.waiting.join(f)
	p.forget(f)
}

func (p *programAware) leave(f *flow) {
	f.program.Waiting--
	p.waiting.leave(f)
	p.rest(f)
}

func (p *programAware) rest(f *flow) {
	p.resting = append(p.resting, f)
	f.restsAt = len(p.resting)
}

func (p *programAware) forget(f *flow) {
	if f.restsAt == 0 {
		return
	}
	last := len(p.resting) - 1
	p.resting[f.restsAt-1] = p.resting[last]
	p.resting[f.restsAt-1].restsAt = f.restsAt
	p.resting[last], p.resting, f.restsAt = nil, p.resting[:last], 0
}

func (p *programAware) idle(now machine.Time, cycles int64) {
	for _, f := range p.resting {
		if q := f.program; q.Running == 0 && q.Waiting == 0 {
			q.RestCycles += cycles
			q.RestUntil = now
		}
	}
}

// pick scores the flows. Little service and a long wait are good, each scaled to [0, 1] over the waiting flows. Equal
// scores go by id; the real plug-in's choice is arbitrary.
func (p *programAware) pick(now machine.Time) *flow {
	p.idle(now, 1)
	low, high := math.Inf(1), math.Inf(-1)
	short, long := math.Inf(1), math.Inf(-1)
	for _, f := range p.flows {
		f.program.weighed = true
		low, high = min(low, f.program.Service), max(high, f.program.Service)
		w := waitMs(f, now)
		short, long = min(short, w), max(long, w)
	}
	var best *flow
	bestScore := math.Inf(-1)
	for _, f := range p.flows {
		score := float64(p.WeightService*(1-spread(f.program.Service, low, high))) +
			float64(p.WeightWait*spread(waitMs(f, now), short, long))
		if score > bestScore {
			best, bestScore = f, score
		}
	}
	return best
}

func waitMs(f *flow, now machine.Time) float64 {
	return float64((now - f.head().Arrived) / machine.Millisecond)
}

func spread(v, low, high float64) float64 {
	if high <= low {
		return 0
	}
	return (v - low) / (high - low)
}

func (p *programAware) picked(it *item, now machine.Time) {
	q := it.flow.program
	q.Running++
	q.Dispatched++
	q.WaitSumMs += float64((now - it.Arrived) / machine.Millisecond)
}
