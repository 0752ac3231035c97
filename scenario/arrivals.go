package scenario

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// Stage is a stretch of time with a rate of its own.
type Stage struct {
	// How long it is.
	Duration time.Duration `json:"duration" min:"1ms" max:"8760h"`
	// Arrivals per second.
	Rate float64 `json:"rate" min:"0" max:"10000000"`
	// Whether the rate changes linearly from the previous stage's rate (in the first stage: from workload.rate) to this
	// one.
	Ramp bool `json:"ramp"`
}

// Bursts are arrivals that stop repeatedly.
type Bursts struct {
	// How long requests arrive, at workload.rate.
	On dist.Dist `json:"on" min:"1ms" max:"24h"`
	// How long no request arrives after that.
	Off dist.Dist `json:"off" min:"1ms" max:"24h"`
}

func (b *Bursts) given() bool { return b.On.Quantile(1) > 0 || b.Off.Quantile(1) > 0 }

// Diurnal is a rate that follows a sine. It begins at the mean and rises.
type Diurnal struct {
	// How long one wave is.
	Period time.Duration `json:"period" min:"1s" max:"8760h"`
	// How far the rate rises above workload.rate and falls below it, as a part of it.
	Swing Share `json:"swing"`
}

// maxRequests is the number of requests of a workload that names only a duration.
const maxRequests = 100_000_000

// checkArrivals checks the times at which requests are sent.
func (s *checker) checkArrivals() {
	add := func(path, found, expected string) { s.bad("workload."+path, found, expected) }
	w := &s.Workload
	shapes := countTrue(len(w.Stages) > 0, w.Bursts.given(), w.Diurnal != Diurnal{})
	peak := 0.0
	for _, g := range w.Stages {
		peak = max(peak, g.Rate)
	}
	switch {
	case shapes > 1:
		add("stages", "several of stages, bursts and diurnal are given", "one of them")
	case len(w.Stages) > 0 && peak == 0 && w.Rate == 0:
		add("stages", "no request arrives in any of them", "a rate above 0 in one of them")
	case len(w.Stages) == 0 && shapes > 0 && w.Rate == 0:
		add("rate", "missing beside bursts or diurnal", "arrivals per second")
	case w.Bursts.given() && (w.Bursts.On.Quantile(1) == 0 || w.Bursts.Off.Quantile(1) == 0):
		add("bursts", "on or off is missing", "both, such as {on: 10s, off: 50s}")
	case (w.Diurnal != Diurnal{}) && (w.Diurnal.Period == 0 || w.Diurnal.Swing == 0):
		add("diurnal", "period or swing is missing", "both, such as {period: 24h, swing: 80%}")
	}
	open := w.Rate > 0 || len(w.Stages) > 0
	if s.written("workload.arrivals") && !open {
		add("arrivals", fmt.Sprintf("%q without a rate: a request is sent when one ends", w.Arrivals),
			"rate beside it, or concurrency alone")
	}
	if s.written("workload.burstiness") && w.Arrivals != GammaArrivals && w.Arrivals != WeibullArrivals {
		add("burstiness", fmt.Sprintf("given, and arrivals are %s", w.Arrivals), "arrivals: gamma or weibull beside it")
	}
	for i, g := range w.Stages {
		s.need(fmt.Sprintf("workload.stages[%d].duration", i), g.Duration > 0, "how long the stage is, such as 30s")
	}
}

// settle derives the number of requests where the arrival times determine it.
func (s *checker) settle() {
	w := &s.Workload
	if s.recorded != nil && !s.untimed || w.Duration == 0 && len(w.Stages) == 0 {
		return
	}
	w.most = cmp.Or(w.most, w.Requests)
	w.Requests = w.most
	if w.Rate == 0 && len(w.Stages) == 0 {
		return // in a closed loop, only the run shows it
	}
	turns := func(own *Workload) *workload.Config {
		c := &workload.Config{Seed: s.Seed}
		if own.Conversations.Turns.Quantile(1) > 1 {
			c.Turns = own.Conversations.Turns.Sample
		}
		return c
	}
	c := turns(w)
	w.arrivals(s.Seed, c)
	s.classes(c, turns)
	if w.Requests = c.Count(w.most); w.Requests == 0 {
		s.bad("workload.duration", fmt.Sprintf("no request arrives in %s", w.Duration),
			"a longer duration, or more requests per second")
	}
}

// Uncounted reports whether the number of requests is unknown before the run.
func (w *Workload) Uncounted() bool {
	return w.Duration > 0 && w.Rate == 0 && len(w.Stages) == 0
}

// arrivals sets the generator's arrivals.
func (w *Workload) arrivals(seed uint64, c *workload.Config) {
	c.Rate, c.Burstiness, c.Until = w.Rate, w.Burstiness, machine.FromDuration(w.Duration)
	switch w.Arrivals {
	case ConstantArrivals:
		c.Process = workload.Constant
	case GammaArrivals:
		c.Process = workload.Gamma
	case WeibullArrivals:
		c.Process = workload.Weibull
	}
	switch {
	case len(w.Stages) > 0:
		c.Rate = w.peak()
		c.Phases = func(i int) (workload.Phase, bool) {
			if i >= len(w.Stages) {
				return workload.Phase{}, false
			}
			g := w.Stages[i]
			p := workload.Phase{For: machine.FromDuration(g.Duration), From: g.Rate, To: g.Rate}
			if g.Ramp && i > 0 {
				p.From = w.Stages[i-1].Rate
			} else if g.Ramp {
				p.From = w.Rate
			}
			return p, true
		}
	case w.Bursts.given():
		c.Phases = func(i int) (workload.Phase, bool) {
			d := machine.NewDraw(seed, "client", "burst", uint64(i))
			if i%2 == 1 {
				return workload.Phase{For: w.Bursts.Off.SampleTime(&d)}, true
			}
			return workload.Phase{For: w.Bursts.On.SampleTime(&d), From: w.Rate, To: w.Rate}, true
		}
	case w.Diurnal != Diurnal{}:
		const parts = 96 // straight lines that approximate one wave
		at := func(i int) float64 {
			// rounded, because processors differ in the last digits
			sine := float64(float32(math.Sin(2 * math.Pi * float64(i%parts) / parts)))
			return max(0, w.Rate*(1+float64(float64(w.Diurnal.Swing)*sine)))
		}
		c.Phases = func(i int) (workload.Phase, bool) {
			return workload.Phase{For: max(1, machine.FromDuration(w.Diurnal.Period)/parts), From: at(i),
				To: at(i + 1)}, true
		}
	}
}

// peak returns the highest rate of the workload.
func (w *Workload) peak() float64 {
	rate := float64(w.Rate * (1 + float64(w.Diurnal.Swing)))
	for _, g := range w.Stages {
		rate = max(rate, g.Rate)
	}
	return rate
}
