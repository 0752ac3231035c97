package stats

import "github.com/windtunnel/windtunnel/core/wire/metrics"

// The families that SkipUsage leaves out.
const (
	computeFamily   = "vllm_gpu_compute_utilization_percent"
	bandwidthFamily = "vllm_gpu_memory_bandwidth_utilization_percent"
)

// UsageFamilies are the metrics of the share of the hardware that the steps use.
var UsageFamilies = []string{computeFamily, bandwidthFamily}

// writeDocument writes the metrics that document 003 names, under its names. They equal vLLM's own where both exist.
// The others are computed from the engine: how busy it was in the last ten seconds, and the content of its memory.
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
	series(w, "vllm_requests_total", "status", value{"success", float64(succeeded)}, value{"failure", float64(failed)})
	histogramOf(w, "vllm_request_duration_seconds", &x.e2e)
	one(w, "vllm_active_requests", float64(x.Engine.Running))
	one(w, "vllm_queue_length", float64(x.Engine.Waiting))
	one(w, "vllm_tokens_generated_total", float64(x.Engine.GenerationTokens))
	one(w, "vllm_tokens_per_second", float64(recent.generated)/span)
	one(w, "vllm_prefill_tokens_total", float64(x.Engine.PromptTokens))
	one(w, "vllm_decode_tokens_total", float64(x.Engine.GenerationTokens-min(x.Engine.GenerationTokens, x.ttft.n)))
	one(w, "vllm_kv_cache_usage_percent", 100*x.KVUsage())
	one(w, "vllm_kv_cache_hit_rate", x.HitRate())
	one(w, "vllm_kv_cache_size_bytes", kvBytes)
	one(w, "vllm_kv_cache_prefix_hashes", float64(x.KVFindable))
	one(w, "vllm_gpu_memory_used_bytes", float64(s.MemoryBytes)+
		float64(s.Engine.NumGPUBlocks)*float64(s.Engine.BlockSize)*float64(s.Engine.KVBytesPerToken)/float64(
			max(1, s.TensorParallel)))
	one(w, "windtunnel:accelerators", float64(max(1, s.TensorParallel)))
	one(w, "vllm_gpu_utilization_percent", 100*busy)
	one(w, "vllm_gpu_utilization", busy)
	if x.hardware != nil {
		one(w, computeFamily, 100*min(1, recent.computed.Seconds()/span))
		one(w, bandwidthFamily, 100*min(1, recent.moved.Seconds()/span))
		one(w, "vllm_gpu_memory_total_bytes", float64(x.hardware.Accelerator.MemoryBytes))
	}
	one(w, "vllm_gpu_cache_usage_percent", 100*x.KVUsage())
	if family(w, "vllm_request_latency_p50") {
		w.Sample(x.latency(0.5))
	}
	if family(w, "vllm_request_latency_p99") {
		w.Sample(x.latency(0.99))
	}
}
