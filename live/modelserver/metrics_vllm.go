package modelserver

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// writeVLLM writes the metrics of vLLM's V1 engine under its own names
// (vllm/v1/metrics/loggers.py).
func (s *Server) writeVLLM(t *promText, x *scrape) {
	t.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", float64(x.engine.Running))
	t.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", float64(x.engine.Waiting))
	t.family("vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason: capacity (no room), deferred (KV on its way).")
	t.sample("vllm:num_requests_waiting_by_reason", `reason="capacity"`, float64(x.engine.Waiting-x.engine.Pulling))
	t.sample("vllm:num_requests_waiting_by_reason", `reason="deferred"`, float64(x.engine.Pulling))
	s.writeSleep(t)
	t.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", x.kvUsage(s))
	t.gauge("vllm:gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage. DEPRECATED: Use vllm:kv_cache_usage_perc instead.", x.kvUsage(s))
	t.counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", float64(x.queriedTokens))
	t.counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", float64(x.cachedTokens))
	t.counter("vllm:external_prefix_cache_queries_total", "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.", float64(x.externalTokens))
	t.counter("vllm:external_prefix_cache_hits_total", "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.", float64(x.externalHits))
	queries, hits := s.seen.counts()
	t.counter("vllm:mm_cache_queries_total", "Multi-modal cache queries, in terms of number of queried items.", queries)
	t.counter("vllm:mm_cache_hits_total", "Multi-modal cache hits, in terms of number of cached items.", hits)
	t.counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", float64(x.preemptions))
	t.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", float64(x.engine.PromptTokens))
	t.counter("vllm:generation_tokens_total", "Number of generation tokens processed.", float64(x.engine.GenerationTokens))
	t.family("vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by source.")
	t.sample("vllm:prompt_tokens_by_source_total", `source="local_compute"`, float64(x.queriedTokens-min(x.queriedTokens, x.cachedTokens+x.externalHits)))
	t.sample("vllm:prompt_tokens_by_source_total", `source="local_cache_hit"`, float64(x.cachedTokens))
	t.sample("vllm:prompt_tokens_by_source_total", `source="external_kv_transfer"`, float64(x.externalHits))
	t.counter("vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).", float64(x.cachedTokens+x.externalHits))
	t.counter("vllm:corrupted_requests_total", "Corrupted requests, in terms of total number of requests with NaNs in logits.", 0)
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
	t.histogram("vllm:nixl_xfer_time_seconds", "Histogram of transfer duration for NIXL KV Cache transfers.", &x.transferSeconds)
	t.histogram("vllm:nixl_post_time_seconds", "Histogram of transfer post time for NIXL KV Cache transfers.", &x.postSeconds)
	t.histogram("vllm:nixl_num_descriptors", "Histogram of number of descriptors per NIXL KV Cache transfers.", &x.descriptors)
	t.histogram("vllm:nixl_bytes_transferred", "Histogram of bytes transferred per NIXL KV Cache transfers.", &x.transferBytes)
	t.counter("vllm:nixl_num_failed_transfers_total", "Number of failed NIXL KV Cache transfers.", float64(x.failedTransfers))
	t.counter("vllm:nixl_num_kv_expired_reqs_total", "Number of requests that had their KV expire.", float64(x.expiredHandles))
	t.counter("vllm:nixl_num_failed_notifications_total", "Number of failed NIXL KV Cache notifications.", 0)
	t.family("vllm:admission_rejections_total", "counter", "Number of admission attempts rejected.")
	t.sample("vllm:admission_rejections_total", `reason="max_num_queued_reqs"`, float64(x.refused))
	s.writeSpeculation(t)
	s.writeInfo(t, x)
}

// writeSpeculation writes the counters of speculative decoding where the server
// is said to have it. It is not simulated, so nothing is ever drafted.
func (s *Server) writeSpeculation(t *promText) {
	if s.opts.SpeculativeTokens == 0 {
		return
	}
	t.counter("vllm:spec_decode_num_drafts_total", "Number of spec decoding drafts.", 0)
	t.counter("vllm:spec_decode_num_draft_tokens_total", "Number of draft tokens.", 0)
	t.counter("vllm:spec_decode_num_accepted_tokens_total", "Number of accepted tokens.", 0)
	t.family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "Accepted tokens per draft position.")
	for i := range s.opts.SpeculativeTokens {
		t.sample("vllm:spec_decode_num_accepted_tokens_per_pos_total", `position="`+strconv.Itoa(i)+`"`, 0)
	}
}

func (s *Server) writeSleep(t *promText) {
	level := s.sleepLevel.Load()
	t.family("vllm:engine_sleep_state", "gauge", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "+
		"weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.")
	for i, name := range []string{"awake", "weights_offloaded", "discard_all"} {
		on := 0.0
		if int(level) == i {
			on = 1
		}
		t.sample("vllm:engine_sleep_state", `sleep_state="`+name+`"`, on)
	}
}

// writeInfo writes what vLLM tells as labels: the cache's configuration, and
// which adapters run and wait.
func (s *Server) writeInfo(t *promText, x *scrape) {
	own := t.labels
	t.labels = ""
	t.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	caching := "True"
	if s.cfg.DisablePrefixCaching {
		caching = "False"
	}
	t.sample("vllm:cache_config_info", `block_size="`+strconv.Itoa(s.cfg.BlockSize)+`",cache_dtype="auto",enable_prefix_caching="`+caching+
		`",engine="0",num_cpu_blocks="`+strconv.Itoa(s.cfg.NumCPUBlocks)+`",num_gpu_blocks="`+strconv.Itoa(s.cfg.NumGPUBlocks)+`"`, 1)
	uses := x.pretended
	if len(uses) == 0 && x.adapters != nil {
		uses = []FakeUse{{Running: x.adapters.running, Waiting: x.adapters.waiting}}
	}
	if len(uses) > 0 {
		t.family("vllm:lora_requests_info", "gauge", "Running stats on lora requests.")
	}
	for _, u := range uses {
		if u.Timestamp == 0 {
			u.Timestamp = unixSeconds(time.Now())
		}
		t.sample("vllm:lora_requests_info", `max_lora="`+strconv.Itoa(s.cfg.MaxLoRAs)+`",`+promLabel("waiting_lora_adapters", u.Waiting)+
			`,`+promLabel("running_lora_adapters", u.Running), u.Timestamp)
	}
	t.labels = own
	if x.adapters != nil {
		s.writeAdapters(t, x)
	}
}

// writeAdapters writes what vLLM does not tell: where its adapters lie, and how
// many were brought there.
func (s *Server) writeAdapters(t *promText, x *scrape) {
	t.family("windtunnel:lora_adapters", "gauge", "LoRA adapters in the accelerator's slots (gpu) and in host memory (cpu, those of the slots among them).")
	t.sample("windtunnel:lora_adapters", `tier="gpu"`, float64(x.gpu))
	t.sample("windtunnel:lora_adapters", `tier="cpu"`, float64(x.cpu))
	t.family("windtunnel:lora_loads_total", "counter", "LoRA adapters brought from disk to host memory (cpu), and into a slot (gpu).")
	t.sample("windtunnel:lora_loads_total", `tier="cpu"`, float64(x.engine.LoRALoads))
	t.sample("windtunnel:lora_loads_total", `tier="gpu"`, float64(x.engine.LoRAActivations))
}

// adapterUse names the adapters of running and of waiting requests, each once,
// with commas.
type adapterUse struct{ running, waiting string }

// adaptersInUse runs in the loop.
func (l *loop) adaptersInUse() *adapterUse {
	var running, waiting []string
	for _, q := range l.seqs {
		switch {
		case q.request.LoRA == "":
		case q.scheduled == 0:
			waiting = append(waiting, q.request.LoRA)
		default:
			running = append(running, q.request.LoRA)
		}
	}
	join := func(names []string) string {
		slices.Sort(names)
		return strings.Join(slices.Compact(names), ",")
	}
	return &adapterUse{join(running), join(waiting)}
}
