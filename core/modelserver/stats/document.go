package stats

import "github.com/windtunnel/windtunnel/core/metrics"

// What SkipUsage leaves out.
const (
	computeFamily   = "vllm_gpu_compute_utilization_percent"
	bandwidthFamily = "vllm_gpu_memory_bandwidth_utilization_percent"
)

// UsageFamilies tell how much of the hardware the steps used.
var UsageFamilies = []string{computeFamily, bandwidthFamily}

// writeDocument writes the metrics that document 003 names, under its names.
// They say the same as vLLM's own where both exist; what only the document has
// is computed from the engine: how busy it was in the last ten seconds, what
// its memory holds.
func (x *Look) writeDocument(w metrics.Writer) {
	s := x.Server
	recent, span := x.rates.recent(x.Now)
	var failed, succeeded uint64
	for i, n := range x.Success {
		if i == finishedStop || i == finishedLength {
			succeeded += n
		} else {
			failed += n
		}
	}
	busy := min(1, recent.busy.Seconds()/span)
	kvBytes := float64(x.KVHeld) * float64(s.Engine.BlockSize) * float64(s.Engine.KVBytesPerToken)
	series(w, "vllm_requests_total", "counter", "Requests that ended.", "status", value{"success", float64(succeeded)},
		value{"failure", float64(failed)})
	histogramOf(w, "vllm_request_duration_seconds", "Time from a request's arrival to its end.", &x.e2e)
	metrics.Gauge(w, "vllm_active_requests", "Requests in the batch.", float64(x.Engine.Running))
	metrics.Gauge(w, "vllm_queue_length", "Requests that wait.", float64(x.Engine.Waiting))
	metrics.Counter(w, "vllm_tokens_generated_total", "Output tokens.", float64(x.Engine.GenerationTokens))
	metrics.Gauge(w, "vllm_tokens_per_second", "Output tokens per second over the last ten seconds.",
		float64(recent.generated)/span)
	metrics.Counter(w, "vllm_prefill_tokens_total", "Prompt tokens.", float64(x.Engine.PromptTokens))
	metrics.Counter(w, "vllm_decode_tokens_total", "Output tokens after the first of each request.",
		float64(x.Engine.GenerationTokens-min(x.Engine.GenerationTokens, x.ttft.n)))
	metrics.Gauge(w, "vllm_kv_cache_usage_percent", "Used part of the KV cache, in percent.", 100*x.KVUsage())
	metrics.Gauge(w, "vllm_kv_cache_hit_rate",
		"Part of the prompt tokens that the server's own prefix cache held; what came from other servers is none of "+
			"it.", x.HitRate())
	metrics.Gauge(w, "vllm_kv_cache_size_bytes",
		"Bytes of KV that the cache holds, of running requests and of those that have ended.", kvBytes)
	metrics.Gauge(w, "vllm_kv_cache_prefix_hashes", "Blocks that the prefix cache can find by hash.",
		float64(x.KVFindable))
	metrics.Gauge(w, "vllm_gpu_memory_used_bytes",
		"Memory of one accelerator in use: weights, activations and the KV cache as reserved.", float64(s.MemoryBytes)+
			float64(s.Engine.NumGPUBlocks)*float64(s.Engine.BlockSize)*float64(s.Engine.KVBytesPerToken)/float64(
				max(1, s.TensorParallel)))
	metrics.Gauge(w, "windtunnel:accelerators",
		"Accelerators of the server, by which document 003 divides its active requests.",
		float64(max(1, s.TensorParallel)))
	metrics.Gauge(w, "vllm_gpu_utilization_percent",
		"Part of the last ten seconds in which the engine computed, in percent.", 100*busy)
	metrics.Gauge(w, "vllm_gpu_utilization", "Part of the last ten seconds in which the engine computed.", busy)
	if x.hardware != nil {
		metrics.Gauge(w, computeFamily,
			"Part of the accelerator's peak arithmetic that the last ten seconds used (MFU), in percent.",
			100*min(1, recent.computed.Seconds()/span))
		metrics.Gauge(w, bandwidthFamily, "Part of its memory bandwidth that they used (MBU), in percent.",
			100*min(1, recent.moved.Seconds()/span))
		metrics.Gauge(w, "vllm_gpu_memory_total_bytes", "Memory of one accelerator.",
			float64(x.hardware.Accelerator.MemoryBytes))
	}
	metrics.Gauge(w, "vllm_gpu_cache_usage_percent", "As vllm_kv_cache_usage_percent.", 100*x.KVUsage())
	if w.Family("vllm_request_latency_p99", "gauge",
		"99th percentile of the time from arrival to end, in seconds, of the last 512 requests.") {
		w.Sample(x.p99())
	}
}
