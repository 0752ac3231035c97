package stats

import (
	"strconv"

	"github.com/windtunnel/windtunnel/core/metrics"
)

// writeState writes what vLLM's V1 engine says of the moment, under its own names
// (vllm/v1/metrics/loggers.py).
func (x *Look) writeState(w metrics.Writer) {
	metrics.Gauge(w, "vllm:num_requests_running", "Number of requests in model execution batches.", float64(x.Engine.Running))
	metrics.Gauge(w, "vllm:num_requests_waiting", "Number of requests waiting to be processed.", float64(x.Engine.Waiting))
	series(w, "vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason: capacity (no room), deferred (KV on its way).", "reason",
		value{"capacity", float64(x.Engine.Waiting - x.Engine.Pulling)}, value{"deferred", float64(x.Engine.Pulling)})
	x.writeSleep(w)
	metrics.Gauge(w, "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", x.KVUsage())
	metrics.Gauge(w, "vllm:gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage. DEPRECATED: Use vllm:kv_cache_usage_perc instead.", x.KVUsage())
}

// writeEngine writes what it counts and measures.
func (x *Look) writeEngine(w metrics.Writer) {
	metrics.Counter(w, "vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", float64(x.QueriedTokens))
	metrics.Counter(w, "vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", float64(x.CachedTokens))
	metrics.Counter(w, "vllm:external_prefix_cache_queries_total", "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.", float64(x.externalTokens))
	metrics.Counter(w, "vllm:external_prefix_cache_hits_total", "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.", float64(x.externalHits))
	metrics.Counter(w, "vllm:mm_cache_queries_total", "Multi-modal cache queries, in terms of number of queried items.", x.MediaQueries)
	metrics.Counter(w, "vllm:mm_cache_hits_total", "Multi-modal cache hits, in terms of number of cached items.", x.MediaHits)
	metrics.Counter(w, "vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", float64(x.preemptions))
	metrics.Counter(w, "vllm:prompt_tokens_total", "Number of prefill tokens processed.", float64(x.Engine.PromptTokens))
	metrics.Counter(w, "vllm:generation_tokens_total", "Number of generation tokens processed.", float64(x.Engine.GenerationTokens))
	series(w, "vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by source.", "source",
		value{"local_compute", float64(x.QueriedTokens - min(x.QueriedTokens, x.CachedTokens+x.externalHits))},
		value{"local_cache_hit", float64(x.CachedTokens)}, value{"external_kv_transfer", float64(x.externalHits)})
	metrics.Counter(w, "vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).", float64(x.CachedTokens+x.externalHits))
	series(w, "vllm:prompt_tokens_cached_by_source_total", "counter", "Number of cached prompt tokens by where they were, counted at admission.", "source",
		value{"device", float64(x.CachedTokens - min(x.CachedTokens, x.Engine.CPUCacheHits))}, value{"host", float64(x.Engine.CPUCacheHits)}, value{"p2p", float64(x.externalHits)}, value{"disk", 0}, value{"external_unspecified", 0})
	metrics.Counter(w, "vllm:corrupted_requests_total", "Corrupted requests, in terms of total number of requests with NaNs in logits.", 0)
	var success [finishReasons]value
	for i, name := range finishedNames {
		success[i] = value{name, float64(x.Success[i])}
	}
	series(w, "vllm:request_success_total", "counter", "Count of successfully processed requests.", "finished_reason", success[:]...)
	histogramOf(w, "vllm:request_prompt_tokens", "Number of prefill tokens processed.", &x.promptTokens)
	histogramOf(w, "vllm:request_generation_tokens", "Number of generation tokens processed.", &x.generationTokens)
	histogramOf(w, "vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", &x.iterationTokens)
	histogramOf(w, "vllm:request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", &x.maxGeneration)
	histogramOf(w, "vllm:request_params_n", "Histogram of the n request parameter.", &x.paramN)
	histogramOf(w, "vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", &x.paramMaxTokens)
	histogramOf(w, "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &x.ttft)
	histogramOf(w, "vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &x.itl)
	histogramOf(w, "vllm:time_per_output_token_seconds", "Histogram of time per output token in seconds. DEPRECATED: Use vllm:inter_token_latency_seconds instead.", &x.itl)
	histogramOf(w, "vllm:request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", &x.tpot)
	histogramOf(w, "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &x.e2e)
	histogramOf(w, "vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", &x.queue)
	histogramOf(w, "vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", &x.inference)
	histogramOf(w, "vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", &x.prefill)
	histogramOf(w, "vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", &x.decode)
	histogramOf(w, "vllm:request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).", &x.kvComputed)
	histogramOf(w, "vllm:request_num_preemptions", "Histogram of the number of preemptions per request.", &x.preemptionsEach)
	x.writeResidency(w)
	for _, unit := range [...][2]string{{"flops", "floating point operations"}, {"read_bytes", "bytes read from memory"}, {"write_bytes", "bytes written to memory"}} {
		metrics.Counter(w, "vllm:estimated_"+unit[0]+"_per_gpu_total", "Estimated number of "+unit[1]+" per GPU (with --enable-mfu-metrics).", 0)
	}
	histogramOf(w, "vllm:nixl_xfer_time_seconds", "Histogram of transfer duration for NIXL KV Cache transfers.", &x.transferSeconds)
	histogramOf(w, "vllm:nixl_post_time_seconds", "Histogram of transfer post time for NIXL KV Cache transfers.", &x.postSeconds)
	histogramOf(w, "vllm:nixl_num_descriptors", "Histogram of number of descriptors per NIXL KV Cache transfers.", &x.descriptors)
	histogramOf(w, "vllm:nixl_bytes_transferred", "Histogram of bytes transferred per NIXL KV Cache transfers.", &x.transferBytes)
	metrics.Counter(w, "vllm:nixl_num_failed_transfers_total", "Number of failed NIXL KV Cache transfers.", float64(x.failedTransfers))
	metrics.Counter(w, "vllm:nixl_num_kv_expired_reqs_total", "Number of requests that had their KV expire.", float64(x.expiredHandles))
	metrics.Counter(w, "vllm:nixl_num_failed_notifications_total", "Number of failed NIXL KV Cache notifications.", 0)
	series(w, "vllm:admission_rejections_total", "counter", "Number of admission attempts rejected.", "reason", value{"max_num_queued_reqs", float64(x.refused)})
	x.writeSpeculation(w)
}

// writeSpeculation writes the counters of speculative decoding where the server
// is said to have it. It is not simulated, so nothing is ever drafted.
func (x *Look) writeSpeculation(w metrics.Writer) {
	n := x.Server.SpeculativeTokens
	if n == 0 {
		return
	}
	metrics.Counter(w, "vllm:spec_decode_num_drafts_total", "Number of spec decoding drafts.", 0)
	metrics.Counter(w, "vllm:spec_decode_num_draft_tokens_total", "Number of draft tokens.", 0)
	metrics.Counter(w, "vllm:spec_decode_num_accepted_tokens_total", "Number of accepted tokens.", 0)
	positions := make([]value, n)
	for i := range positions {
		positions[i].of = strconv.Itoa(i)
	}
	series(w, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "Accepted tokens per draft position.", "position", positions...)
}

func (x *Look) writeSleep(w metrics.Writer) {
	states := []value{{of: "awake"}, {of: "weights_offloaded"}, {of: "discard_all"}}
	if x.SleepLevel < len(states) {
		states[x.SleepLevel].v = 1
	}
	series(w, "vllm:engine_sleep_state", "gauge", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "+
		"weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.", "sleep_state", states...)
}

// writeInfo writes what vLLM tells as labels: the cache's configuration, and
// which adapters run and wait.
func (x *Look) writeInfo(w metrics.Writer) {
	c := &x.Server.Engine
	if w.Family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig") {
		caching := "True"
		if c.DisablePrefixCaching {
			caching = "False"
		}
		w.Sample(1, metrics.Label{Name: "block_size", Value: strconv.Itoa(c.BlockSize)}, metrics.Label{Name: "cache_dtype", Value: "auto"},
			metrics.Label{Name: "enable_prefix_caching", Value: caching}, metrics.Label{Name: "engine", Value: "0"},
			metrics.Label{Name: "num_cpu_blocks", Value: strconv.Itoa(c.NumCPUBlocks)}, metrics.Label{Name: "num_gpu_blocks", Value: strconv.Itoa(c.NumGPUBlocks)})
	}
	uses := x.pretended
	if len(uses) == 0 && x.Adapters != nil {
		uses = []FakeUse{{Running: x.Adapters.Running, Waiting: x.Adapters.Waiting}}
	}
	if len(uses) == 0 || !w.Family("vllm:lora_requests_info", "gauge", "Running stats on lora requests.") {
		return
	}
	for _, u := range uses {
		if u.Timestamp == 0 {
			u.Timestamp = x.Unix
		}
		w.Sample(u.Timestamp, metrics.Label{Name: "max_lora", Value: strconv.Itoa(c.MaxLoRAs)},
			metrics.Label{Name: "waiting_lora_adapters", Value: u.Waiting}, metrics.Label{Name: "running_lora_adapters", Value: u.Running})
	}
}

// writeAdapters writes what vLLM does not tell: where its adapters lie, and how
// many were brought there.
func (x *Look) writeAdapters(w metrics.Writer) {
	if x.Adapters == nil {
		return
	}
	series(w, "windtunnel:lora_adapters", "gauge", "LoRA adapters in the accelerator's slots (gpu) and in host memory (cpu, those of the slots among them).", "tier",
		value{"gpu", float64(x.Adapters.GPU)}, value{"cpu", float64(x.Adapters.CPU)})
	series(w, "windtunnel:lora_loads_total", "counter", "LoRA adapters brought from disk to host memory (cpu), and into a slot (gpu).", "tier",
		value{"cpu", float64(x.Engine.LoRALoads)}, value{"gpu", float64(x.Engine.LoRAActivations)})
}
