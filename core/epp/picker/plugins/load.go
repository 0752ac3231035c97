package plugins

import (
	"cmp"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/datalayer"
)

// queue is queue-scorer: (max-q)/(max-min) over the candidates' waiting
// requests; all equal is 1.
type queue struct{ named }

// Score prefers short queues.
func (s *queue) Score(c *picker.Cycle, in []int32, scores []float64) { ranged(s, c, in, scores) }

// Figure implements picker.RangeScorer.
func (s *queue) Figure(st *picker.State) int64 { return st.Waiting }

// ranged scores a figure of each candidate.
func ranged(s picker.RangeScorer, c *picker.Cycle, in []int32, scores []float64) {
	states := c.View.States
	low, high := s.Figure(&states[in[0]]), s.Figure(&states[in[0]])
	for _, i := range in {
		v := s.Figure(&states[i])
		low, high = min(low, v), max(high, v)
	}
	for j, i := range in {
		scores[j] = picker.Ranged(s.Figure(&states[i]), low, high)
	}
}

// running is running-requests-size-scorer: like queue-scorer, on the requests
// in the engine's batch.
type running struct{ named }

// Score prefers small batches.
func (s *running) Score(c *picker.Cycle, in []int32, scores []float64) { ranged(s, c, in, scores) }

// Figure implements picker.RangeScorer.
func (s *running) Figure(st *picker.State) int64 { return st.Running }

// kvUsage is kv-cache-utilization-scorer: 1 - usage.
type kvUsage struct{ named }

// Score prefers free KV cache.
func (s *kvUsage) Score(c *picker.Cycle, in []int32, scores []float64) {
	for j, i := range in {
		scores[j] = s.ScoreState(&c.View.States[i])
	}
}

// ScoreState implements picker.StateScorer.
func (s *kvUsage) ScoreState(st *picker.State) float64 { return 1 - st.KVUsage }

// loadAware is load-aware-scorer: 0.5 with nothing waiting, falling to 0 at
// the threshold.
type loadAware struct {
	named
	Threshold int `json:"threshold"`
}

var newLoadAware = picker.Of(loadAware{named{}, 128})

// Complete implements picker.Completer.
func (s *loadAware) Complete(_ *picker.Builder, _ string) {
	s.Threshold = cmp.Or(max(s.Threshold, 0), 128)
}

// Score prefers short queues on an absolute scale.
func (s *loadAware) Score(c *picker.Cycle, in []int32, scores []float64) {
	for j, i := range in {
		scores[j] = s.ScoreState(&c.View.States[i])
	}
}

// ScoreState implements picker.StateScorer.
func (s *loadAware) ScoreState(st *picker.State) float64 {
	t, w := float64(s.Threshold), float64(st.Waiting)
	switch {
	case w == 0:
		return .5
	case w >= t:
		return 0
	}
	return .5 * (1 - w/t)
}

// lora is lora-affinity-scorer: an endpoint that runs the request's adapter 1,
// one with room for another .8, one where it waits .6, else 0.
type lora struct{ named }

// Score prefers endpoints that have the adapter.
func (s *lora) Score(c *picker.Cycle, in []int32, scores []float64) {
	model := c.Request.TargetModel
	for j, i := range in {
		l := c.View.States[i].LoRA
		if l == nil {
			continue
		}
		switch {
		case slices.Contains(l.Running, model):
			scores[j] = 1
		case len(l.Running)+len(l.Waiting) < l.Max:
			scores[j] = .8
		case slices.Contains(l.Waiting, model):
			scores[j] = .6
		}
	}
}

// load01 returns an endpoint's load from 0 to 1: by requests per second if the endpoint announces them, else by its
// queue (five are full) and KV cache.
func load01(s *picker.State) float64 {
	if v := s.Announced; v != nil && v.MaxQPS > 0 {
		return max(0, min(1, v.QPS/v.MaxQPS))
	}
	return max(0, min(1, max(float64(s.Waiting)/5, s.KVUsage)))
}

// weightedLoad is LoadAwareScorer with document 003's arguments:
// queueLengthWeight*(1 - queue/maxQueueLength) + gpuUtilWeight*(1 - gpu), over
// the sum of the weights. gpu is the custom metric gpu_utilization (0..1 or
// percent), else the KV-cache usage. With threshold, as in its third flow, the
// score is 1 - queue/threshold, kept within 0.1 and 0.9.
type weightedLoad struct {
	named
	QueueWeight float64 `json:"queueLengthWeight" min:"0"`
	GPUWeight   float64 `json:"gpuUtilWeight" min:"0"`
	MaxQueue    float64 `json:"maxQueueLength" above:"0"`
	Threshold   float64 `json:"threshold" min:"0"`
}

var newWeightedLoad = picker.Of(weightedLoad{QueueWeight: .6, GPUWeight: .4, MaxQueue: 10})

// Configure implements picker.Configurer.
func (s *weightedLoad) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	for _, other := range []string{"queueLengthWeight", "gpuUtilWeight", "maxQueueLength"} {
		if s.Threshold > 0 && p.At(other).Given() {
			return p.At("threshold").Errorf("expected either it or %s", other)
		}
	}
	if s.QueueWeight+s.GPUWeight == 0 {
		return p.Errorf("queueLengthWeight and gpuUtilWeight are both zero")
	}
	return nil
}

// Score prefers short queues and idle accelerators.
func (s *weightedLoad) Score(c *picker.Cycle, in []int32, scores []float64) {
	sum := s.QueueWeight + s.GPUWeight
	for j, i := range in {
		st := c.State(i)
		if s.Threshold > 0 {
			scores[j] = math.Min(.9, math.Max(.1, 1-float64(st.Waiting)/s.Threshold))
			continue
		}
		q := 1 - math.Min(1, math.Max(0, float64(st.Waiting)/s.MaxQueue))
		scores[j] = (float64(s.QueueWeight*q) + float64(s.GPUWeight*(1-gpu(st)))) / sum
	}
}

func gpu(s *picker.State) float64 {
	v, ok := s.Custom[datalayer.MetricGPU]
	if !ok {
		v = s.KVUsage
	} else if v > 1 {
		v /= 100
	}
	return math.Max(0, math.Min(1, v))
}
