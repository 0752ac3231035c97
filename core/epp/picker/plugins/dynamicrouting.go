package plugins

import (
	"fmt"
	"math"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/datalayer"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// dynamicRouting is document 003's "dynamic routing". As a filter it has three gates: queue below maxQueueLength, more
// than minCacheHit of the prompt cached, and p99 below maxLatencyMs; if no endpoint passes, it keeps all. As a scorer
// it is 0.5 cache + 0.3 load + 0.2 latency, or the weights of its InferencePool's routingPolicy. Only the ratio of the
// weights matters.
type dynamicRouting struct {
	named
	MaxQueue    int64   `json:"maxQueueLength" above:"0"`
	MinCacheHit float64 `json:"minCacheHit"`
	MaxLatency  float64 `json:"maxLatencyMs" above:"0"`
	Weights     struct {
		Cache   float64 `json:"cacheHit" min:"0"`
		Load    float64 `json:"load" min:"0"`
		Latency float64 `json:"latency" min:"0"`
	} `json:"weights"`

	source dataproducer.PrefixSource
}

func newDynamicRouting(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &dynamicRouting{MaxQueue: 10, MinCacheHit: .5, MaxLatency: 500}
	w := &s.Weights
	if !p.At("weights").Given() {
		w.Cache, w.Load, w.Latency = .5, .3, .2
	}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	all := w.Cache + w.Load + w.Latency
	if !(all > 0) || math.IsInf(all, 0) {
		return nil, p.At("weights").Errorf("no weight is above 0 or their sum is no number")
	}
	if all != 1 { // the document's own have to stay what they are
		w.Cache, w.Load, w.Latency = w.Cache/all, w.Load/all, w.Latency/all
	}
	dataproducer.FindPrefix(b, "", name, &s.source)
	return s, nil
}

// p99 returns the endpoint's 99th percentile of latency in milliseconds, 0 when
// unknown.
func p99(s *picker.State) float64 { return math.Max(0, 1000*s.Custom[datalayer.FigureP99]) }

// Why names the gates that the endpoint did not pass.
func (s *dynamicRouting) Why(d *picker.Decision, i int32) string {
	st := &d.View.States[i]
	var why []string
	if st.Waiting >= s.MaxQueue {
		why = append(why, fmt.Sprintf("%d wait", st.Waiting))
	}
	if m := picker.Peek[dataproducer.PrefixMatch](d, s.source); m != nil && m.Ratio(st) <= s.MinCacheHit {
		why = append(why, fmt.Sprintf("%.0f %% of the prompt is cached", 100*m.Ratio(st)))
	}
	if p99(st) >= s.MaxLatency {
		why = append(why, fmt.Sprintf("p99 is %.0f ms", p99(st)))
	}
	return strings.Join(why, ", ")
}

// Filter keeps endpoints that pass all gates.
func (s *dynamicRouting) Filter(c *picker.Cycle, in []int32) []int32 {
	m := s.source.Match(c)
	return keepOr(in, func(i int32) bool {
		st := c.State(i)
		return st.Waiting < s.MaxQueue && m.Ratio(st) > s.MinCacheHit && p99(st) < s.MaxLatency
	}, true)
}

// Score is the document's formula.
func (s *dynamicRouting) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.Match(c)
	for j, i := range in {
		st := c.State(i)
		load := 1 - math.Min(1, math.Max(0, float64(st.Waiting)/float64(s.MaxQueue)))
		latency := 1 - math.Min(1, p99(st)/s.MaxLatency)
		scores[j] = float64(s.Weights.Cache*m.Ratio(st)) + float64(s.Weights.Load*load) +
			float64(s.Weights.Latency*latency)
	}
}
