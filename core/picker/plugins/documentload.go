package plugins

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
)

// Names under which the scrapers of document 003 keep figures that are not
// fields of picker.Metrics (Metrics.Custom).
const (
	FigureGPU       = "gpu_utilization"       // share of the time that the accelerator is busy, 0..1
	FigureTokenRate = "tokens_per_second"     // output tokens per second
	FigureP99       = "request_latency_p99"   // seconds
	FigureHitRate   = "kv_cache_hit_rate"     // share of prompt tokens that were cached, 0..1
	FigureHashes    = "kv_cache_prefix_hashes" // blocks that the engine can find by hash
)

// queueGPU is queue-gpu-load-scorer, document 003's LoadAwareScorer:
//
//	(queueLengthWeight * (1 - queue/maxQueueLength) + gpuUtilWeight * (1 - gpu)) / sum of the weights
//
// A queue at maxQueueLength (older: threshold) counts as full. A figure that is missing or
// was forgotten scores 0: an endpoint that nobody hears of is not idle.
type queueGPU struct {
	named
	QueueWeight float64 `json:"queueLengthWeight"`
	GPUWeight   float64 `json:"gpuUtilWeight"`
	MaxQueue    float64 `json:"maxQueueLength"`
	Threshold   float64 `json:"threshold"`
}

func newQueueGPU(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &queueGPU{named: base("queue-gpu-load-scorer", name), QueueWeight: .6, GPUWeight: .4, MaxQueue: 10}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	if s.Threshold != 0 {
		s.MaxQueue = s.Threshold
	}
	switch {
	case s.QueueWeight < 0 || s.GPUWeight < 0 || s.QueueWeight+s.GPUWeight <= 0:
		return nil, p.Errorf("queueLengthWeight and gpuUtilWeight must not be negative, and one must be above 0; found %v and %v", s.QueueWeight, s.GPUWeight)
	case s.MaxQueue <= 0:
		return nil, p.Errorf("maxQueueLength must be above 0, found %v", s.MaxQueue)
	}
	return s, nil
}

// Score prefers short queues and idle accelerators.
func (s *queueGPU) Score(c *picker.Cycle, in []int32, scores []float64) {
	for j, i := range in {
		st := c.State(i)
		gpu := 0.0
		if v, ok := st.Custom[FigureGPU]; ok {
			gpu = 1 - v
		}
		scores[j] = (float64(s.QueueWeight*room(st, s.MaxQueue)) + float64(s.GPUWeight*min(1, max(0, gpu)))) / (s.QueueWeight + s.GPUWeight)
	}
}

// room is how much of a queue's length is free, 0 when nothing is known.
func room(s *picker.State, longest float64) float64 {
	if !s.Scraped {
		return 0
	}
	return max(0, 1-float64(s.Waiting)/longest)
}

// realtime is realtime-load-balancer, document 003's "Real-Time Load
// Balancing": three gates (queue < 10, cache hit > 50 %, p99 < 500 ms) and
// behind them 0.5 cache + 0.3 load + 0.2 latency. As a filter it is the gates,
// one after the other; a gate that no candidate passes is left open, or the
// first request of all could go nowhere. The load score is 1 - queue/maxQueueLength, the
// latency score 1 - p99/maxLatency. Figures that are missing pass the gate and
// score 0.
type realtime struct {
	named
	CacheWeight   float64         `json:"cacheWeight"`
	LoadWeight    float64         `json:"loadWeight"`
	LatencyWeight float64         `json:"latencyWeight"`
	MaxQueue      float64         `json:"maxQueueLength"`
	MinHit        float64         `json:"minCacheHit"`
	MaxLatency    config.Duration `json:"maxLatency"`
	Prefix        string          `json:"prefixMatchInfoProducerName"`

	source prefixSource
}

func newRealtime(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &realtime{named: base("realtime-load-balancer", name), CacheWeight: .5, LoadWeight: .3, LatencyWeight: .2,
		MaxQueue: 10, MinHit: .5, MaxLatency: config.Duration(500 * machine.Millisecond)}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	switch {
	case s.CacheWeight < 0 || s.LoadWeight < 0 || s.LatencyWeight < 0 || s.CacheWeight+s.LoadWeight+s.LatencyWeight > 1+1e-9:
		return nil, p.Errorf("cacheWeight, loadWeight and latencyWeight must not be negative nor exceed 1 together")
	case s.MaxQueue <= 0 || s.MaxLatency <= 0:
		return nil, p.Errorf("maxQueueLength and maxLatency must be above 0")
	case s.MinHit < 0 || s.MinHit >= 1:
		return nil, p.Errorf("minCacheHit must be at least 0 and below 1, found %v", s.MinHit)
	}
	findPrefix(b, s.Prefix, name, &s.source)
	return s, nil
}

// p99 is an endpoint's 99th percentile of latency over the limit.
func (s *realtime) p99(st *picker.State) (share float64, known bool) {
	v, ok := st.Custom[FigureP99]
	return v / s.MaxLatency.Time().Seconds(), ok
}

// gates are the document's three questions, in its order.
func (s *realtime) gates(st *picker.State, m *prefixMatch) [3]bool {
	late, known := s.p99(st)
	return [3]bool{float64(st.Waiting) < s.MaxQueue, m.ratio(st) > s.MinHit, !known || late < 1}
}

// Filter applies the gates.
func (s *realtime) Filter(c *picker.Cycle, in []int32) []int32 {
	m := s.source.match(c)
	for gate := range 3 {
		passes := func(i int32) bool { return s.gates(c.State(i), m)[gate] }
		for _, i := range in {
			if passes(i) {
				in = keep(in, passes)
				break
			}
		}
	}
	return in
}

// Why names the first gate that an endpoint did not pass.
func (s *realtime) Why(d *picker.Decision, i int32) string {
	m := picker.Peek[prefixMatch](d, s.source)
	if m == nil {
		return ""
	}
	st := &d.View.States[i]
	for gate, why := range [3]string{"its queue is too long", "too little of the prompt is cached there", "its p99 latency is too high"} {
		if !s.gates(st, m)[gate] {
			return why
		}
	}
	return ""
}

// Score weighs cache, load and latency.
func (s *realtime) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.match(c)
	for j, i := range in {
		st := c.State(i)
		latency := 0.0
		if late, known := s.p99(st); known {
			latency = min(1, max(0, 1-late))
		}
		scores[j] = float64(s.CacheWeight*m.ratio(st)) + float64(s.LoadWeight*room(st, s.MaxQueue)) + float64(s.LatencyWeight*latency)
	}
}
