package plugins

import (
	"math"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// latencySteps: the results of latency-scorer are whole hundredths.
const latencySteps = 100

// latencyScorer is latency-scorer. With predictions it scores headroom under
// the objectives; without, a composite of free KV cache, queue and prefix.
type latencyScorer struct {
	named
	TTFTWeight      float64 `json:"ttftWeight"`
	TPOTWeight      float64 `json:"tpotWeight"`
	Strategy        string  `json:"headroomSelectionStrategy"`
	KVWeight        float64 `json:"compositeKVWeight"`
	QueueWeight     float64 `json:"compositeQueueWeight"`
	PrefixWeight    float64 `json:"compositePrefixWeight"`
	Prefix          string  `json:"prefixMatchInfoProducerName"`
	LatencyProducer string  `json:"latencyPredictionInfoProducerName"`

	source  dataproducer.PrefixSource
	latency *dataproducer.Predicted
}

var newLatencyScorer = picker.Of(latencyScorer{TTFTWeight: .8, TPOTWeight: .2, Strategy: "least",
	KVWeight: 1, QueueWeight: 1, PrefixWeight: 1})

// Complete implements picker.Completer.
func (s *latencyScorer) Complete(b *picker.Builder, name string) {
	dataproducer.FindPrefix(b, s.Prefix, name, &s.source)
	dataproducer.FindPredicted(b, s.LatencyProducer, name, &s.latency)
}

// Score prefers endpoints that meet the objectives.
func (s *latencyScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	var have, negative bool
	allNegative := true
	for _, i := range in {
		if p := s.latency.Of(c, i); p != nil {
			have = true
			if p.Negative() {
				negative = true
				continue
			}
		}
		allNegative = false
	}
	switch {
	case !have:
		s.composite(c, in, scores)
	case !negative || !allNegative:
		s.bucket(c, in, scores, false, func(p *dataproducer.Prediction) bool { return p == nil || !p.Negative() })
	default:
		for _, in1 := range []func(p *dataproducer.Prediction) bool{
			func(p *dataproducer.Prediction) bool { return p.Dispatched == 0 },
			func(p *dataproducer.Prediction) bool { return p.TTFTHeadroom >= 0 },
			func(p *dataproducer.Prediction) bool { return p.TPOTHeadroom >= 0 },
			func(p *dataproducer.Prediction) bool { return true },
		} {
			if s.bucket(c, in, scores, true, in1) {
				return
			}
		}
	}
}

// bucket scores the endpoints that belong to it and reports whether any does.
func (s *latencyScorer) bucket(c *picker.Cycle, in []int32, scores []float64, least bool,
	belongs func(*dataproducer.Prediction) bool) bool {
	const eps = 1e-9
	var zero dataproducer.Prediction
	at := func(i int32) (*dataproducer.Prediction, bool) {
		p := s.latency.Of(c, i)
		if !belongs(p) {
			return nil, false
		}
		if p == nil {
			p = &zero
		}
		return p, true
	}
	minT, maxT, minP, maxP := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	any := false
	for _, i := range in {
		if p, ok := at(i); ok {
			any = true
			t, o := math.Abs(p.TTFTHeadroom), math.Abs(p.TPOTHeadroom)
			minT, maxT, minP, maxP = math.Min(minT, t), math.Max(maxT, t), math.Min(minP, o), math.Max(maxP, o)
		}
	}
	if !any {
		return false
	}
	a, b := 1.0, 0.0
	if sum := s.TTFTWeight + s.TPOTWeight; sum > 0 {
		a, b = s.TTFTWeight/sum, s.TPOTWeight/sum
	}
	spanT, spanP := maxT-minT, maxP-minP
	if spanT <= eps && spanP > eps {
		a, b = 0, 1
	} else if spanP <= eps && spanT > eps {
		a, b = 1, 0
	}
	for j, i := range in {
		p, ok := at(i)
		if !ok {
			continue
		}
		nT, nP := .5, .5
		if spanT > eps {
			nT = (math.Abs(p.TTFTHeadroom) - minT) / spanT
		}
		if spanP > eps {
			nP = (math.Abs(p.TPOTHeadroom) - minP) / spanP
		}
		combined := float64(a*nT) + float64(b*nP)
		if least || s.Strategy != "most" {
			combined = 1 - combined
		}
		scores[j] = float64(int(combined*latencySteps)+1) / latencySteps
	}
	return true
}

func (s *latencyScorer) composite(c *picker.Cycle, in []int32, scores []float64) {
	wk, wq, wp := s.KVWeight, s.QueueWeight, s.PrefixWeight
	sum := wk + wq + wp
	if sum <= 0 {
		wk, wq, wp, sum = 1, 0, 0, 1
	}
	m := s.source.Match(c)
	var most int64
	for _, i := range in {
		most = max(most, c.State(i).Waiting)
	}
	for j, i := range in {
		st := c.State(i)
		free := 1.0
		if most > 0 {
			free = float64(most-st.Waiting) / float64(most)
		}
		v := float64(wk/sum*(1-st.KVUsage)) + float64(wq/sum*free) + float64(wp/sum*m.Ratio(st))
		scores[j] = math.Round(latencySteps*v) / latencySteps
	}
}

// headroomTier is slo-headroom-tier-filter: endpoints that meet the objectives
// if any does, with a small chance to explore the others.
type headroomTier struct {
	named
	Epsilon  float64 `json:"epsilonExploreNeg" min:"0" max:"1"`
	Producer string  `json:"latencyPredictionInfoProducerName"`

	latency *dataproducer.Predicted
}

var newHeadroomTier = picker.Of(headroomTier{Epsilon: .01})

// Complete implements picker.Completer.
func (f *headroomTier) Complete(b *picker.Builder, name string) {
	dataproducer.FindPredicted(b, f.Producer, name, &f.latency)
}

// Filter keeps one tier.
func (f *headroomTier) Filter(c *picker.Cycle, in []int32) []int32 {
	if len(in) <= 1 {
		return in
	}
	positive, predictions := 0, 0
	for _, i := range in {
		if p := f.latency.Of(c, i); p != nil {
			predictions++
			if !p.Negative() {
				positive++
			}
		}
	}
	if predictions == 0 || positive == 0 || positive == len(in) {
		return in
	}
	d := c.Draw("headroom-tier")
	explore := d.Float64() < f.Epsilon
	return keep(in, func(i int32) bool {
		p := f.latency.Of(c, i)
		return (p != nil && !p.Negative()) != explore
	})
}
