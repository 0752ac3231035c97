package workload

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// Process is the distribution of the times between arrivals.
type Process uint8

// The processes. Gamma and Weibull have a shape (Config.Burstiness).
const (
	Poisson Process = iota
	Constant
	Gamma
	Weibull
)

// Phase is a stretch of time in which the rate changes linearly, in arrivals per second.
type Phase struct {
	For      machine.Time
	From, To float64
}

// area returns the expected arrivals in the first t seconds of a phase.
func (p *Phase) area(t float64) float64 {
	slope := (p.To - p.From) / p.For.Seconds()
	return float64(p.From*t) + float64(float64(slope*t)*t)/2
}

// after is the inverse of area: it returns the time in seconds. area is at most the whole phase's.
func (p *Phase) after(area float64) float64 {
	length := p.For.Seconds()
	slope := (p.To - p.From) / length
	root := math.Sqrt(max(0, float64(p.From*p.From)+float64(2*float64(slope*area))))
	if p.From+root <= 0 {
		return length
	}
	return min(length, 2*area/(p.From+root))
}

// Arrivals yields the arrival times of the conversations of an open loop, in order, since the beginning.
type Arrivals struct {
	c     *Config
	index int
	now   machine.Time

	phase  Phase // the current one, with its number and beginning
	number int
	began  machine.Time
	come   float64 // expected arrivals in the phase so far
	gaps   Gaps
}

// Arrivals returns the arrivals of the workload.
func (c *Config) Arrivals() *Arrivals {
	return &Arrivals{c: c, gaps: NewGaps(c.Process, c.Burstiness), number: -1}
}

// Next returns the next arrival; more is false after the last one.
func (a *Arrivals) Next() (at machine.Time, more bool) {
	c, index := a.c, a.index
	a.index++
	switch {
	case c.Recorded != nil && index >= len(c.Recorded):
		return a.now, false
	case c.Recorded != nil && !c.Untimed:
		a.now = max(a.now, c.Recorded[index].At)
	case c.Phases != nil:
		if !a.within(a.gap(index)) {
			return a.now, false
		}
	case c.Rate > 0:
		a.now = a.now.Add(machine.Time(min(a.gap(index)/c.Rate*1e9, 1<<62)))
	}
	return a.now, c.Until == 0 || a.now < c.Until
}

// within advances by a number of expected arrivals. It is false after the last phase.
func (a *Arrivals) within(gap float64) bool {
	const still = 1 << 20 // consecutive phases without arrivals
	for range still {
		if a.number >= 0 {
			if whole := a.phase.area(a.phase.For.Seconds()); a.come+gap <= whole && whole > 0 {
				a.come += gap
				a.now = max(a.now, a.began.Add(machine.Time(a.phase.after(a.come)*1e9)))
				return true
			} else if whole > 0 {
				gap -= whole - a.come
			}
			a.began = a.began.Add(a.phase.For)
			if a.c.Until > 0 && a.began >= a.c.Until {
				return false
			}
		}
		a.number++
		p, more := a.c.Phases(a.number)
		if !more {
			return false
		}
		a.phase, a.come = p, 0
	}
	return false
}

// gap draws the time to the next arrival, as a multiple of the mean.
func (a *Arrivals) gap(index int) float64 {
	d := machine.NewDraw(a.c.Seed, "client", "arrival", uint64(index))
	return a.gaps.Draw(&d)
}

// Gaps are the times between arrivals, as multiples of their mean.
type Gaps struct {
	process Process
	shape   float64
	weight  float64 // normalizes the mean to 1
}

// NewGaps returns the gaps of a process. Gamma and Weibull have a shape above 0.
func NewGaps(p Process, shape float64) Gaps {
	g := Gaps{process: p, shape: shape, weight: 1}
	if p == Weibull {
		// Rounded, because processors differ in the last digits of the function.
		g.weight = float64(float32(1 / math.Gamma(1+1/shape)))
	}
	return g
}

// Draw draws the time to the next arrival.
func (g *Gaps) Draw(d *machine.Draw) float64 {
	switch {
	case g.process == Constant:
		return 1
	case g.process == Gamma && g.shape != 1:
		return gamma(d, g.shape) / g.shape
	case g.process == Weibull && g.shape != 1:
		return g.weight * dist.Exp(dist.Log(-dist.Log(1-d.Float64()-0x1p-54))/g.shape)
	}
	return -dist.Log(1 - d.Float64())
}

// gamma draws from the gamma distribution with a shape and the scale 1 (Marsaglia and Tsang, 2000).
func gamma(d *machine.Draw, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		boost = dist.Exp(dist.Log(open(d)) / shape)
		shape++
	}
	third := shape - 1.0/3
	c := 1 / math.Sqrt(9*third)
	for {
		x := dist.Normal(open(d))
		v := 1 + float64(c*x)
		if v <= 0 {
			continue
		}
		v = float64(float64(v*v) * v)
		if dist.Log(open(d)) < float64(float64(x*x)/2)+float64(third*(1-v+dist.Log(v))) {
			return float64(float64(third*v) * boost)
		}
	}
}

// open draws uniformly from (0, 1).
func open(d *machine.Draw) float64 { return (float64(d.Uint64()>>12) + 0.5) / (1 << 52) }

// Count returns the number of requests of an open loop, at most the given number.
func (c *Config) Count(most int) (requests int) {
	a := c.Arrivals()
	for index := 0; requests < most; index++ {
		if _, more := a.Next(); !more {
			break
		}
		requests += c.class(index).turns(index)
	}
	return min(requests, most)
}
