package stats

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// histogram counts values by upper bounds, as Prometheus does. Copies share the bounds, but not the counts.
type histogram struct {
	bounds []float64
	counts []uint64 // per bound, not cumulative; the last is above all bounds
	sum    float64
	n      uint64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) { h.observeN(v, 1) }

func (h *histogram) observeN(v float64, n uint64) {
	if n == 0 {
		return
	}
	v = max(v, 0)
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i] += n
	h.sum += v * float64(n)
	h.n += n
}

func (h *histogram) clone() histogram {
	c := *h
	c.counts = slices.Clone(h.counts)
	return c
}

// quantile estimates a quantile by linear interpolation inside its bucket.
func (h *histogram) quantile(q float64) float64 {
	if h.n == 0 {
		return 0
	}
	want := q * float64(h.n)
	below, lower := 0.0, 0.0
	for i, c := range h.counts {
		if i == len(h.bounds) {
			return lower
		}
		if float64(c) > 0 && below+float64(c) >= want {
			return lower + (h.bounds[i]-lower)*(want-below)/float64(c)
		}
		below, lower = below+float64(c), h.bounds[i]
	}
	return lower
}

// The bounds of vLLM's histograms (vllm/v1/metrics/loggers.py), in seconds and tokens.
var (
	ttftBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
		20, 40, 80, 160, 640, 2560}
	itlBounds = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
		40, 80}
	e2eBounds = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
		7680}
	stepBounds      = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	nBounds         = []float64{1, 2, 5, 10, 20}
	preemptBounds   = []float64{1, 2, 3, 4, 5, 10, 20}
	residencyBounds = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300,
		600, 1200, 1800}
	postBounds = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5}
	xferBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5}
	descBounds = []float64{10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000}
	byteBounds = []float64{2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20,
		512 << 20, 2 << 30, 8 << 30}
)

// tokenBounds are 1, 2, 5, 10, … up to the model's length.
func tokenBounds(maxModelLen int) []float64 {
	var b []float64
	for unit := 1; ; unit *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*unit > maxModelLen {
				return b
			}
			b = append(b, float64(m*unit))
		}
	}
}

func (s *Stats) init(maxModelLen int) {
	for _, h := range s.histograms(tokenBounds(maxModelLen)) {
		*h.histogram = newHistogram(h.bounds)
	}
}

// named is a histogram with vLLM's name and bounds.
type named struct {
	name string
	*histogram
	bounds []float64
}

// The number of histograms that every server has, and the number after them for a sample of blocks. The rest are about
// transfers.
const requestHistograms, sampledHistograms = 16, 3

// histograms returns all histograms, in vLLM's order.
func (s *Stats) histograms(tokens []float64) [23]named {
	return [...]named{
		{"vllm:request_prompt_tokens", &s.promptTokens, tokens},
		{"vllm:request_generation_tokens", &s.generationTokens, tokens},
		{"vllm:iteration_tokens_total", &s.iterationTokens, stepBounds},
		{"vllm:request_max_num_generation_tokens", &s.maxGeneration, tokens},
		{"vllm:request_params_n", &s.paramN, nBounds},
		{"vllm:request_params_max_tokens", &s.paramMaxTokens, tokens},
		{"vllm:time_to_first_token_seconds", &s.ttft, ttftBounds},
		{"vllm:inter_token_latency_seconds", &s.itl, itlBounds},
		{"vllm:request_time_per_output_token_seconds", &s.tpot, itlBounds},
		{"vllm:e2e_request_latency_seconds", &s.e2e, e2eBounds},
		{"vllm:request_queue_time_seconds", &s.queue, e2eBounds},
		{"vllm:request_inference_time_seconds", &s.inference, e2eBounds},
		{"vllm:request_prefill_time_seconds", &s.prefill, e2eBounds},
		{"vllm:request_decode_time_seconds", &s.decode, e2eBounds},
		{"vllm:request_prefill_kv_computed_tokens", &s.kvComputed, tokens},
		{"vllm:request_num_preemptions", &s.preemptionsEach, preemptBounds},
		{"vllm:kv_block_lifetime_seconds", &s.blockLifetime, residencyBounds},
		{"vllm:kv_block_idle_before_evict_seconds", &s.blockIdle, residencyBounds},
		{"vllm:kv_block_reuse_gap_seconds", &s.blockReuse, residencyBounds},
		{"vllm:nixl_xfer_time_seconds", &s.transferSeconds, xferBounds},
		{"vllm:nixl_post_time_seconds", &s.postSeconds, postBounds},
		{"vllm:nixl_bytes_transferred", &s.transferBytes, byteBounds},
		{"vllm:nixl_num_descriptors", &s.descriptors, descBounds},
	}
}

// Snapshot returns a copy that does not change any more.
func (s *Stats) Snapshot() *Stats {
	c := *s
	c.steps = stepTimes{} // of requests that continue to be counted
	c.latest = latest{values: slices.Clone(s.latest.values)}
	for _, h := range c.histograms(nil) {
		*h.histogram = h.clone()
	}
	return &c
}

// rates keeps the counts of each of the last seconds, for those of document 003's metrics that are rates.
type rates struct {
	seconds [rateWindow]rateSecond
}

const rateWindow = 16 // seconds kept; rates are over the last rateSpan whole ones
const rateSpan = 10

type rateSecond struct {
	second               int64
	generated, prefilled uint64
	busy                 machine.Time
	computed, moved      machine.Time // times that the steps would take at peak arithmetic, and at full bandwidth
}

func (r *rates) at(now machine.Time) *rateSecond {
	sec := int64(now / machine.Second)
	s := &r.seconds[sec%rateWindow]
	if s.second != sec {
		*s = rateSecond{second: sec}
	}
	return s
}

func (r *rates) add(at machine.Time, generated, prefilled uint64) {
	s := r.at(at)
	s.generated += generated
	s.prefilled += prefilled
}

// busySpan adds a span in which the engine computed.
func (r *rates) busySpan(from, to machine.Time) {
	for from < to {
		next := min(to, (from/machine.Second+1)*machine.Second)
		r.at(from).busy += next - from
		from = next
	}
}

// recent returns the sum of the last whole seconds before now. span is the number of these seconds, at least one.
func (r *rates) recent(now machine.Time) (sum rateSecond, span float64) {
	last := int64(now / machine.Second)
	first := max(0, last-rateSpan)
	for i := range r.seconds {
		s := &r.seconds[i]
		if s.second >= first && s.second < last {
			sum.generated += s.generated
			sum.prefilled += s.prefilled
			sum.busy += s.busy
			sum.computed += s.computed
			sum.moved += s.moved
		}
	}
	return sum, float64(max(1, last-first))
}
