package modelserver

// writeDocument writes the metrics that document 003 names, under its names.
// They say the same as vLLM's own where both exist; what only the document has
// is computed from the engine: how busy it was in the last ten seconds, what
// its memory holds.
func (s *Server) writeDocument(t *promText, x *scrape) {
	recent, span := x.rates.recent(x.now)
	var failed, succeeded uint64
	for i, n := range x.success {
		if i == finishedStop || i == finishedLength {
			succeeded += n
		} else {
			failed += n
		}
	}
	busy := min(1, recent.busy.Seconds()/span)
	hits := 0.0
	if x.queriedTokens > 0 {
		hits = float64(x.cachedTokens) / float64(x.queriedTokens)
	}
	kvBytes := float64(x.kvBlocks) * float64(s.cfg.BlockSize) * float64(s.cfg.KVBytesPerToken)
	t.family("vllm_requests_total", "counter", "Requests that ended.")
	t.sample("vllm_requests_total", `status="success"`, float64(succeeded))
	t.sample("vllm_requests_total", `status="failure"`, float64(failed))
	t.histogram("vllm_request_duration_seconds", "Time from a request's arrival to its end.", &x.e2e)
	t.gauge("vllm_active_requests", "Requests in the batch.", float64(x.engine.Running))
	t.gauge("vllm_queue_length", "Requests that wait.", float64(x.engine.Waiting))
	t.counter("vllm_tokens_generated_total", "Output tokens.", float64(x.engine.GenerationTokens))
	t.gauge("vllm_tokens_per_second", "Output tokens per second over the last ten seconds.", float64(recent.generated)/span)
	t.counter("vllm_prefill_tokens_total", "Prompt tokens.", float64(x.engine.PromptTokens))
	t.counter("vllm_decode_tokens_total", "Output tokens after the first of each request.", float64(x.engine.GenerationTokens-min(x.engine.GenerationTokens, x.ttft.n)))
	t.gauge("vllm_kv_cache_usage_percent", "Used part of the KV cache, in percent.", 100*x.kvUsage(s))
	t.gauge("vllm_kv_cache_hit_rate", "Part of the prompt tokens that the prefix cache held.", hits)
	t.gauge("vllm_kv_cache_size_bytes", "Bytes of KV in use.", kvBytes)
	t.gauge("vllm_kv_cache_prefix_hashes", "Blocks that the prefix cache can find by hash.", float64(x.kvStored-min(x.kvStored, x.kvRemoved)))
	t.gauge("vllm_gpu_memory_used_bytes", "Memory of one accelerator in use: weights, activations and the KV cache as reserved.", float64(s.opts.MemoryBytes)+
		float64(s.cfg.NumGPUBlocks)*float64(s.cfg.BlockSize)*float64(s.cfg.KVBytesPerToken)/float64(max(1, s.opts.TensorParallel)))
	t.gauge("vllm_gpu_utilization_percent", "Part of the last ten seconds in which the engine computed, in percent.", 100*busy)
	t.gauge("vllm_gpu_utilization", "Part of the last ten seconds in which the engine computed.", busy)
	if x.hardware != nil {
		t.gauge("vllm_gpu_compute_utilization_percent", "Part of the accelerator's peak arithmetic that the last ten seconds used (MFU), in percent.", 100*min(1, recent.computed.Seconds()/span))
		t.gauge("vllm_gpu_memory_bandwidth_utilization_percent", "Part of its memory bandwidth that they used (MBU), in percent.", 100*min(1, recent.moved.Seconds()/span))
		t.gauge("vllm_gpu_memory_total_bytes", "Memory of one accelerator.", float64(x.hardware.Accelerator.MemoryBytes))
	}
	t.gauge("vllm_gpu_cache_usage_percent", "As vllm_kv_cache_usage_percent.", 100*x.kvUsage(s))
	t.gauge("vllm_request_latency_p99", "99th percentile of the time from arrival to end, in seconds.", x.e2e.quantile(0.99))
}
