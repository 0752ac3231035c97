package stats

import (
	"cmp"
	"strconv"

	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// writeState writes the metrics of vLLM's V1 engine about its present state, under vLLM's names
// (vllm/v1/metrics/loggers.py of vLLM 0.33).
func (x *Look) writeState(w metrics.Writer) {
	one(w, "vllm:num_requests_running", float64(x.Engine.Running))
	one(w, "vllm:num_requests_waiting", float64(x.Engine.Waiting))
	series(w, "vllm:num_requests_waiting_by_reason", "reason",
		value{"capacity", float64(x.Engine.Waiting - x.Engine.Pulling)}, value{"deferred", float64(x.Engine.Pulling)})
	if x.Server.KVConsumer {
		series(w, "vllm:num_requests_kv_fetch_by_stage", "stage",
			value{"waiting_to_start", 0}, value{"in_progress", float64(x.Engine.Pulling)},
			value{"completed_waiting", 0})
	}
	x.writeSleep(w)
	one(w, "vllm:kv_cache_usage_perc", x.KVUsage())
}

// writeEngine writes the engine's counters and histograms.
func (x *Look) writeEngine(w metrics.Writer) {
	// To vLLM, blocks from host memory come from a connector.
	host := min(x.CachedTokens, x.Engine.CPUCacheHits)
	device, external, queried := x.CachedTokens-host, x.externalHits+host, x.externalTokens
	if x.Server.Engine.NumCPUBlocks > 0 {
		queried += x.QueriedTokens - min(x.QueriedTokens, device)
	}
	one(w, "vllm:prefix_cache_queries_total", float64(x.QueriedTokens))
	one(w, "vllm:prefix_cache_hits_total", float64(device))
	one(w, "vllm:external_prefix_cache_queries_total", float64(queried))
	one(w, "vllm:external_prefix_cache_hits_total", float64(external))
	one(w, "vllm:mm_cache_queries_total", x.MediaQueries)
	one(w, "vllm:mm_cache_hits_total", x.MediaHits)
	one(w, "vllm:num_preemptions_total", float64(x.preemptions))
	one(w, "vllm:prompt_tokens_total", float64(x.Engine.PromptTokens))
	series(w, "vllm:prompt_tokens_by_source_total", "source",
		value{"local_compute", float64(x.QueriedTokens - min(x.QueriedTokens, device+external))},
		value{"local_cache_hit", float64(device)}, value{"external_kv_transfer", float64(external)})
	one(w, "vllm:prompt_tokens_cached_total", float64(device+external))
	series(w, "vllm:prompt_tokens_cached_by_source_total", "source",
		value{"device", float64(device)}, value{"host", float64(host)}, value{"p2p", float64(x.externalHits)},
		value{"disk", 0}, value{"external_unspecified", 0})
	one(w, "vllm:generation_tokens_total", float64(x.Engine.GenerationTokens))
	var success [finishReasons]value
	for i, name := range finishedNames {
		success[i] = value{name, float64(x.Success[i])}
	}
	series(w, "vllm:request_success_total", "finished_reason", success[:]...)
	all := x.histograms(nil)
	for _, h := range all[:requestHistograms] {
		histogramOf(w, h.name, h.histogram)
	}
	x.writeResidency(w)
	one(w, "vllm:estimated_flops_per_gpu_total", 0)
	one(w, "vllm:estimated_read_bytes_per_gpu_total", 0)
	one(w, "vllm:estimated_write_bytes_per_gpu_total", 0)
	x.writeTransfers(w)
	x.writeOffload(w)
	x.writeSpeculation(w)
	w.Labels(metrics.Label{Name: "model_name", Value: x.Server.Model}) // these families alone have no engine label
	series(w, "vllm:admission_rejections_total", "reason",
		value{"max_num_queued_reqs", float64(x.refused)}, value{"max_num_queued_tokens", 0})
}

// writeTransfers writes the metrics that the server's KV connector registers in vLLM. NIXL's and Mooncake's do
// (nixl/stats.py and mooncake/stats.py below vllm/distributed/kv_transfer/kv_connector/v1). Others register none in
// vLLM; here their transfers appear under NIXL's names.
func (x *Look) writeTransfers(w metrics.Writer) {
	if x.Server.Transfers == "mooncake" {
		histogramOf(w, "vllm:mooncake_xfer_time_seconds", &x.transferSeconds)
		histogramOf(w, "vllm:mooncake_bytes_transferred", &x.transferBytes)
		histogramOf(w, "vllm:mooncake_num_descriptors", &x.descriptors)
		one(w, "vllm:mooncake_num_failed_transfers_total", float64(x.failedTransfers))
		one(w, "vllm:mooncake_num_failed_recvs_total", float64(x.failedTransfers))
		one(w, "vllm:mooncake_num_kv_expired_reqs_total", float64(x.expiredHandles))
		return
	}
	all := x.histograms(nil)
	for _, h := range all[requestHistograms+sampledHistograms:] {
		histogramOf(w, h.name, h.histogram)
	}
	one(w, "vllm:nixl_num_failed_transfers_total", float64(x.failedTransfers))
	one(w, "vllm:nixl_num_failed_notifications_total", 0)
	one(w, "vllm:nixl_num_kv_expired_reqs_total", float64(x.expiredHandles))
	one(w, "vllm:nixl_num_notifications_after_expiry_total", 0)
}

// writeSpeculation writes the counters of speculative decoding if the server is configured for it. It is not simulated,
// so nothing is ever drafted.
func (x *Look) writeSpeculation(w metrics.Writer) {
	n := x.Server.SpeculativeTokens
	if n == 0 {
		return
	}
	one(w, "vllm:spec_decode_num_drafts_total", 0)
	one(w, "vllm:spec_decode_num_draft_tokens_total", 0)
	one(w, "vllm:spec_decode_num_accepted_tokens_total", 0)
	positions := make([]value, n)
	for i := range positions {
		positions[i].of = strconv.Itoa(i)
	}
	series(w, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "position", positions...)
}

func (x *Look) writeSleep(w metrics.Writer) {
	states := []value{{of: "awake"}, {of: "weights_offloaded"}, {of: "discard_all"}}
	if x.SleepLevel < len(states) {
		states[x.SleepLevel].v = 1
	}
	series(w, "vllm:engine_sleep_state", "sleep_state", states...)
}

// writeInfo writes vLLM's metrics whose labels hold the data: the cache's configuration, and the adapters that run and
// wait.
func (x *Look) writeInfo(w metrics.Writer) {
	c := &x.Server.Engine
	if family(w, "vllm:cache_config_info") {
		w.Sample(1, x.Server.cacheConfig()...)
	}
	uses := x.pretended
	if len(uses) == 0 && x.Adapters != nil {
		uses = []FakeUse{{Running: x.Adapters.Running, Waiting: x.Adapters.Waiting}}
	}
	if len(uses) == 0 || !family(w, "vllm:lora_requests_info") {
		return
	}
	for _, u := range uses {
		u.Timestamp = cmp.Or(u.Timestamp, x.Unix)
		w.Sample(u.Timestamp, metrics.Label{Name: "max_lora", Value: strconv.Itoa(c.MaxLoRAs)},
			metrics.Label{Name: "waiting_lora_adapters", Value: u.Waiting},
			metrics.Label{Name: "running_lora_adapters", Value: u.Running})
	}
}

// cacheConfig returns the fields of vLLM's CacheConfig (vllm/config/cache.py) as labels, in its order, each as Python
// prints it. Fields that the engine does not simulate have their defaults.
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

// writeAdapters writes metrics that vLLM does not have: the tiers of the adapters, and the number of loads.
func (x *Look) writeAdapters(w metrics.Writer) {
	if x.Adapters == nil {
		return
	}
	series(w, "windtunnel:lora_adapters",
		"tier",
		value{"gpu", float64(x.Adapters.GPU)}, value{"cpu", float64(x.Adapters.CPU)})
	series(w, "windtunnel:lora_loads_total", "tier",
		value{"cpu", float64(x.Engine.LoRALoads)}, value{"gpu", float64(x.Engine.LoRAActivations)})
}
