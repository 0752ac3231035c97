package plugins

import (
	"math"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// prefixAffinity is prefix-cache-affinity-filter: endpoints that hold at least
// affinityThreshold of the prompt, unless the best of them would answer more
// than maxTTFTPenaltyMs later than the best of the others.
type prefixAffinity struct {
	named
	Threshold   float64 `json:"affinityThreshold" max:"1"`
	Exploration float64 `json:"explorationProbability" min:"0" max:"1"`
	PenaltyMs   float64 `json:"maxTTFTPenaltyMs" min:"0"`
	// PenaltyTokens is the newer form of the penalty, in tokens in flight.
	PenaltyTokens int64   `json:"maxTokensInFlightPenalty" min:"0"`
	TTFTSource    string  `json:"ttftSource" oneof:"prefillThroughput,latencyPredictor"`
	Throughput    float64 `json:"peakPrefillThroughput" min:"0"` // tokens per second
	Prefix        string  `json:"prefixMatchInfoProducerName"`
	Latency       string  `json:"latencyPredictionInfoProducerName"`
	Inflight      string  `json:"inFlightLoadProducerName"`

	source  dataproducer.PrefixSource
	load    *dataproducer.Inflight
	latency *dataproducer.Predicted
}

var newPrefixAffinity = picker.Of(prefixAffinity{Threshold: .8, PenaltyMs: 18000,
	TTFTSource: "prefillThroughput", Throughput: 15928})

// Configure implements picker.Configurer.
func (f *prefixAffinity) Configure(b *picker.Builder, name string, p picker.Params) error {
	if f.TTFTSource == "prefillThroughput" && f.PenaltyMs > 0 && f.Throughput == 0 {
		return p.At("peakPrefillThroughput").Expected("a number above zero, since ttftSource is prefillThroughput")
	}
	dataproducer.FindPrefix(b, f.Prefix, name, &f.source)
	if f.PenaltyMs > 0 && f.TTFTSource == "latencyPredictor" {
		dataproducer.FindPredicted(b, f.Latency, name, &f.latency)
	} else if f.PenaltyMs > 0 || f.PenaltyTokens > 0 {
		dataproducer.FindInflight(b, f.Inflight, name, &f.load)
	}
	return nil
}

// Filter keeps the endpoints that hold the prompt, if that is worth it.
func (f *prefixAffinity) Filter(c *picker.Cycle, in []int32) []int32 {
	if len(in) <= 1 || f.Threshold <= 0 {
		return in
	}
	if f.Exploration > 0 {
		if d := c.Draw("affinity-exploration"); d.Float64() < f.Exploration {
			return in
		}
	}
	m := f.source.Match(c)
	sticky := 0
	bestSticky, bestOther := math.Inf(1), math.Inf(1)
	for _, i := range in {
		s := c.State(i)
		if m.Ratio(s) >= f.Threshold {
			sticky++
			bestSticky = math.Min(bestSticky, f.cost(c, i))
		} else {
			bestOther = math.Min(bestOther, f.cost(c, i))
		}
	}
	if sticky == 0 {
		return in
	}
	if limit := f.limit(); limit > 0 && sticky < len(in) && bestSticky-bestOther > limit {
		return in
	}
	return keep(in, func(i int32) bool { return m.Ratio(c.State(i)) >= f.Threshold })
}

func (f *prefixAffinity) limit() float64 {
	if f.PenaltyMs > 0 {
		return f.PenaltyMs
	}
	return float64(f.PenaltyTokens)
}

// cost returns an endpoint's expected time to first token in milliseconds, or its
// tokens in flight when the penalty is in tokens.
func (f *prefixAffinity) cost(c *picker.Cycle, i int32) float64 {
	switch {
	case f.latency != nil:
		if p := f.latency.Of(c, i); p != nil {
			return p.TTFTMs
		}
		return math.MaxFloat64
	case f.load == nil:
		return 0
	case f.PenaltyMs > 0:
		return float64(f.load.TokensAt(c.State(i).Slot())) / f.Throughput * 1000
	}
	return float64(f.load.TokensAt(c.State(i).Slot()))
}
