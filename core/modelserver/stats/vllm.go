package stats

import (
	"strconv"

	"github.com/windtunnel/windtunnel/core/metrics"
)

// writeState writes what vLLM's V1 engine says of the moment, under its own names
// (vllm/v1/metrics/loggers.py of vLLM 0.33).
func (x *Look) writeState(w metrics.Writer) {
	metrics.Gauge(w, "vllm:num_requests_running", "Number of requests in model execution batches.",
		float64(x.Engine.Running))
	metrics.Gauge(w, "vllm:num_requests_waiting", "Number of requests waiting to be processed.",
		float64(x.Engine.Waiting))
	series(w, "vllm:num_requests_waiting_by_reason", "gauge",
		"Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "+
			"'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all "+
			"reasons equals vllm:num_requests_waiting.", "reason",
		value{"capacity", float64(x.Engine.Waiting - x.Engine.Pulling)}, value{"deferred", float64(x.Engine.Pulling)})
	if x.Server.KVConsumer {
		series(w, "vllm:num_requests_kv_fetch_by_stage", "gauge",
			"Number of waiting requests by async KV load stage. Stage labels: "+
				"'waiting_to_start' = needs an async KV load that has not started; 'in_progress' = load started and "+
				"not "+
				"yet reported finished; "+
				"'completed_waiting' = load finished, request not running yet.", "stage",
			value{"waiting_to_start", 0}, value{"in_progress", float64(x.Engine.Pulling)},
			value{"completed_waiting", 0})
	}
	x.writeSleep(w)
	metrics.Gauge(w, "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", x.KVUsage())
}

// writeEngine writes what it counts and measures.
func (x *Look) writeEngine(w metrics.Writer) {
	// What host memory gave back came from a connector, as vLLM sees it.
	host := min(x.CachedTokens, x.Engine.CPUCacheHits)
	device, external, queried := x.CachedTokens-host, x.externalHits+host, x.externalTokens
	if x.Server.Engine.NumCPUBlocks > 0 {
		queried += x.QueriedTokens - min(x.QueriedTokens, device)
	}
	metrics.Counter(w, "vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.",
		float64(x.QueriedTokens))
	metrics.Counter(w, "vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.",
		float64(device))
	metrics.Counter(w, "vllm:external_prefix_cache_queries_total",
		"External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried "+
			"tokens.", float64(queried))
	metrics.Counter(w, "vllm:external_prefix_cache_hits_total",
		"External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached "+
			"tokens.", float64(external))
	metrics.Counter(w, "vllm:mm_cache_queries_total", "Multi-modal cache queries, in terms of number of queried items.",
		x.MediaQueries)
	metrics.Counter(w, "vllm:mm_cache_hits_total", "Multi-modal cache hits, in terms of number of cached items.",
		x.MediaHits)
	metrics.Counter(w, "vllm:num_preemptions_total", "Cumulative number of preemption from the engine.",
		float64(x.preemptions))
	metrics.Counter(w, "vllm:prompt_tokens_total", "Number of prefill tokens processed.",
		float64(x.Engine.PromptTokens))
	series(w, "vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by source.", "source",
		value{"local_compute", float64(x.QueriedTokens - min(x.QueriedTokens, device+external))},
		value{"local_cache_hit", float64(device)}, value{"external_kv_transfer", float64(external)})
	metrics.Counter(w, "vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).",
		float64(device+external))
	series(w, "vllm:prompt_tokens_cached_by_source_total", "counter",
		"Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), "+
			"disk, "+
			"p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to "+
			"vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.", "source",
		value{"device", float64(device)}, value{"host", float64(host)}, value{"p2p", float64(x.externalHits)},
		value{"disk", 0}, value{"external_unspecified", 0})
	metrics.Counter(w, "vllm:generation_tokens_total", "Number of generation tokens processed.",
		float64(x.Engine.GenerationTokens))
	var success [finishReasons]value
	for i, name := range finishedNames {
		success[i] = value{name, float64(x.Success[i])}
	}
	series(w, "vllm:request_success_total", "counter", "Count of successfully processed requests.", "finished_reason",
		success[:]...)
	histogramOf(w, "vllm:request_prompt_tokens", "Number of prefill tokens processed.", &x.promptTokens)
	histogramOf(w, "vllm:request_generation_tokens", "Number of generation tokens processed.", &x.generationTokens)
	histogramOf(w, "vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", &x.iterationTokens)
	histogramOf(w, "vllm:request_max_num_generation_tokens",
		"Histogram of maximum number of requested generation tokens.", &x.maxGeneration)
	histogramOf(w, "vllm:request_params_n", "Histogram of the n request parameter.", &x.paramN)
	histogramOf(w, "vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.",
		&x.paramMaxTokens)
	histogramOf(w, "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &x.ttft)
	histogramOf(w, "vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &x.itl)
	histogramOf(w, "vllm:request_time_per_output_token_seconds",
		"Histogram of time_per_output_token_seconds per request.", &x.tpot)
	histogramOf(w, "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &x.e2e)
	histogramOf(w, "vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", &x.queue)
	histogramOf(w, "vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.",
		&x.inference)
	histogramOf(w, "vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.",
		&x.prefill)
	histogramOf(w, "vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.",
		&x.decode)
	histogramOf(w, "vllm:request_prefill_kv_computed_tokens",
		"Histogram of new KV tokens computed during prefill (excluding cached tokens).", &x.kvComputed)
	histogramOf(w, "vllm:request_num_preemptions", "Histogram of the number of times a request was preempted.",
		&x.preemptionsEach)
	x.writeResidency(w)
	for _, unit := range [...][2]string{{"flops", "floating point operations"},
		{"read_bytes", "bytes read from memory"}, {"write_bytes", "bytes written to memory"}} {
		metrics.Counter(w, "vllm:estimated_"+unit[0]+"_per_gpu_total",
			"Estimated number of "+unit[1]+" per GPU (for Model Flops Utilization calculations).", 0)
	}
	x.writeTransfers(w)
	x.writeOffload(w)
	x.writeSpeculation(w)
	w.Labels(metrics.Label{Name: "model_name", Value: x.Server.Model}) // these alone have no engine
	series(w, "vllm:admission_rejections_total", "counter",
		"Number of admission attempts rejected by a queue limit, by reason.", "reason",
		value{"max_num_queued_reqs", float64(x.refused)}, value{"max_num_queued_tokens", 0})
}

// writeTransfers writes what the server's KV connector registers in vLLM: NIXL's
// and Mooncake's do (nixl/stats.py and mooncake/stats.py below
// vllm/distributed/kv_transfer/kv_connector/v1). Others register nothing there; here
// they tell their transfers under NIXL's names.
func (x *Look) writeTransfers(w metrics.Writer) {
	const expired = "Number of requests that had their KV expire. NOTE: This metric is tracked on the P instance."
	if x.Server.Transfers == "mooncake" {
		histogramOf(w, "vllm:mooncake_xfer_time_seconds",
			"Histogram of transfer duration for Mooncake KV Cache transfers.", &x.transferSeconds)
		histogramOf(w, "vllm:mooncake_bytes_transferred",
			"Histogram of bytes transferred per Mooncake KV Cache transfer.", &x.transferBytes)
		histogramOf(w, "vllm:mooncake_num_descriptors",
			"Histogram of number of descriptors per Mooncake KV Cache transfer.", &x.descriptors)
		metrics.Counter(w, "vllm:mooncake_num_failed_transfers_total", "Number of failed Mooncake KV Cache transfers.",
			float64(x.failedTransfers))
		metrics.Counter(w, "vllm:mooncake_num_failed_recvs_total", "Number of failed Mooncake KV Cache receives.",
			float64(x.failedTransfers))
		metrics.Counter(w, "vllm:mooncake_num_kv_expired_reqs_total", expired, float64(x.expiredHandles))
		return
	}
	histogramOf(w, "vllm:nixl_xfer_time_seconds", "Histogram of transfer duration for NIXL KV Cache transfers.",
		&x.transferSeconds)
	histogramOf(w, "vllm:nixl_post_time_seconds", "Histogram of transfer post time for NIXL KV Cache transfers.",
		&x.postSeconds)
	histogramOf(w, "vllm:nixl_bytes_transferred", "Histogram of bytes transferred per NIXL KV Cache transfers.",
		&x.transferBytes)
	histogramOf(w, "vllm:nixl_num_descriptors", "Histogram of number of descriptors per NIXL  KV Cache transfers.",
		&x.descriptors)
	metrics.Counter(w, "vllm:nixl_num_failed_transfers_total",
		"Number of failed NIXL KV Cache transfers, including handshake and notification failures. "+
			"NOTE: KV expiry is tracked separately in vllm:nixl_num_kv_expired_reqs.", float64(x.failedTransfers))
	metrics.Counter(w, "vllm:nixl_num_failed_notifications_total",
		"Number of failed NIXL KV Cache notifications. Retained for compatibility; "+
			"these failures are also included in vllm:nixl_num_failed_transfers.", 0)
	metrics.Counter(w, "vllm:nixl_num_kv_expired_reqs_total", expired, float64(x.expiredHandles))
	metrics.Counter(w, "vllm:nixl_num_notifications_after_expiry_total",
		"Number of completion notifications for requests that were no longer tracked, usually because "+
			"their KV lease expired. The KV blocks may have been reused before the transfer finished. Counted per "+
			"notification (one per remote rank), not per request.", 0)
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
	series(w, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "Accepted tokens per draft position.",
		"position", positions...)
}

func (x *Look) writeSleep(w metrics.Writer) {
	states := []value{{of: "awake"}, {of: "weights_offloaded"}, {of: "discard_all"}}
	if x.SleepLevel < len(states) {
		states[x.SleepLevel].v = 1
	}
	series(w, "vllm:engine_sleep_state", "gauge",
		"Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "+
			"weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.", "sleep_state", states...)
}

// writeInfo writes what vLLM tells as labels: the cache's configuration, and
// which adapters run and wait.
func (x *Look) writeInfo(w metrics.Writer) {
	c := &x.Server.Engine
	if w.Family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig") {
		w.Sample(1, x.Server.cacheConfig()...)
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
			metrics.Label{Name: "waiting_lora_adapters", Value: u.Waiting},
			metrics.Label{Name: "running_lora_adapters", Value: u.Running})
	}
}

// cacheConfig are the fields of vLLM's CacheConfig (vllm/config/cache.py) as labels,
// in its order, each as Python writes it. What the engine does not simulate has its
// default.
func (s *Server) cacheConfig() []metrics.Label {
	if s.cache != nil {
		return s.cache
	}
	c := &s.Engine
	number := func(n int) string {
		if n == 0 {
			return "None"
		}
		return strconv.Itoa(n)
	}
	caching := "True"
	if c.DisablePrefixCaching {
		caching = "False"
	}
	size, held := strconv.Itoa(c.BlockSize), c.NumGPUBlocks*c.BlockSize
	concurrency := "None"
	if held > 0 && c.MaxModelLen > 0 {
		concurrency = strconv.FormatFloat(float64(held)/float64(c.MaxModelLen), 'g', -1, 64)
	}
	var out []metrics.Label
	for _, l := range [...][2]string{
		{"block_size", size}, {"user_specified_block_size", "False"}, {"kv_cache_layout", "None"},
		{"prefix_match_unit", "None"}, {"gpu_memory_utilization", "0.92"}, {"cache_dtype", "auto"},
		{"is_attention_free", "False"}, {"num_gpu_blocks_override", "None"}, {"sliding_window", "None"},
		{"enable_prefix_caching", caching}, {"prefix_caching_hash_algo", "sha256"},
		{"prefix_cache_retention_interval", "0"}, {"kv_cache_dtype_skip_layers", "[]"},
		{"mamba_page_size_padded", "None"}, {"skip_page_size_padded", "None"}, {"mamba_block_size", "None"},
		{"mamba_cache_dtype", "auto"}, {"mamba_ssm_cache_dtype", "auto"}, {"mamba_cache_mode", "none"},
		{"enable_mamba_shared_prefix_checkpoint", "False"}, {"replayssm_buffer_len", "16"},
		{"use_replayssm", "False"}, {"use_kda_recoverssm", "False"}, {"num_gpu_blocks", strconv.Itoa(c.NumGPUBlocks)},
		{"num_cpu_blocks", strconv.Itoa(c.NumCPUBlocks)}, {"simple_cpu_offload_num_blocks", "None"},
		{"effective_attention_block_size", size}, {"kv_cache_size_tokens", number(held)},
		{"kv_cache_max_concurrency", concurrency}, {"hash_block_size", size}, {"cache_hit_alignment_tokens", size},
		{"kv_sharing_fast_prefill", "False"}, {"swa_bounded_replay", "True"}, {"kv_cache_memory_bytes", "None"},
		{"kv_offloading_size", "None"}, {"kv_offloading_backend", "native"},
		{"_block_size_resolved", "True"}, {"engine", "0"},
	} {
		out = append(out, metrics.Label{Name: l[0], Value: l[1]})
	}
	return out
}

// writeAdapters writes what vLLM does not tell: where its adapters lie, and how
// many were brought there.
func (x *Look) writeAdapters(w metrics.Writer) {
	if x.Adapters == nil {
		return
	}
	series(w, "windtunnel:lora_adapters", "gauge",
		"LoRA adapters in the accelerator's slots (gpu) and in host memory (cpu, those of the slots among them).",
		"tier",
		value{"gpu", float64(x.Adapters.GPU)}, value{"cpu", float64(x.Adapters.CPU)})
	series(w, "windtunnel:lora_loads_total", "counter",
		"LoRA adapters brought from disk to host memory (cpu), and into a slot (gpu).", "tier",
		value{"cpu", float64(x.Engine.LoRALoads)}, value{"gpu", float64(x.Engine.LoRAActivations)})
}
