package modelserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vllmFamilies are what vLLM registers (vllm/v1/metrics/loggers.py,
// vllm/v1/spec_decode/metrics.py, the NIXL connector's stats.py and
// prometheus-fastapi-instrumentator), without what Python tells of itself.
// Those with ! need their flag.
const vllmFamilies = `
gauge vllm:num_requests_running vllm:num_requests_waiting vllm:num_requests_waiting_by_reason vllm:engine_sleep_state vllm:kv_cache_usage_perc vllm:cache_config_info
counter vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:external_prefix_cache_queries_total vllm:external_prefix_cache_hits_total
counter vllm:mm_cache_queries_total vllm:mm_cache_hits_total vllm:corrupted_requests_total vllm:num_preemptions_total
counter vllm:prompt_tokens_total vllm:prompt_tokens_by_source_total vllm:prompt_tokens_cached_total vllm:prompt_tokens_cached_by_source_total vllm:generation_tokens_total
counter vllm:request_success_total vllm:estimated_flops_per_gpu_total vllm:estimated_read_bytes_per_gpu_total vllm:estimated_write_bytes_per_gpu_total
histogram vllm:request_prompt_tokens vllm:request_generation_tokens vllm:iteration_tokens_total vllm:request_max_num_generation_tokens vllm:request_params_n vllm:request_params_max_tokens
histogram vllm:time_to_first_token_seconds vllm:inter_token_latency_seconds vllm:request_time_per_output_token_seconds vllm:e2e_request_latency_seconds
histogram vllm:request_queue_time_seconds vllm:request_inference_time_seconds vllm:request_prefill_time_seconds vllm:request_decode_time_seconds
histogram vllm:request_prefill_kv_computed_tokens vllm:request_num_preemptions
histogram vllm:nixl_xfer_time_seconds vllm:nixl_post_time_seconds vllm:nixl_bytes_transferred vllm:nixl_num_descriptors
counter vllm:nixl_num_failed_transfers_total vllm:nixl_num_failed_notifications_total vllm:nixl_num_kv_expired_reqs_total
histogram !vllm:kv_block_lifetime_seconds !vllm:kv_block_idle_before_evict_seconds !vllm:kv_block_reuse_gap_seconds
counter !vllm:spec_decode_num_drafts_total !vllm:spec_decode_num_draft_tokens_total !vllm:spec_decode_num_accepted_tokens_total !vllm:spec_decode_num_accepted_tokens_per_pos_total
counter http_requests_total
summary http_request_size_bytes http_response_size_bytes
histogram http_request_duration_highr_seconds http_request_duration_seconds
gauge process_virtual_memory_bytes process_resident_memory_bytes process_start_time_seconds process_open_fds process_max_fds
counter process_cpu_seconds_total
`

// Whoever has a dashboard or an alert for vLLM finds every family there, with
// its kind, those with a flag where the flag is given.
func TestEveryFamilyOfVLLM(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string]bool{"plain": false, "with the flags": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want, got []string
			for line := range strings.Lines(vllmFamilies) {
				fields := strings.Fields(line)
				for _, family := range fields[min(1, len(fields)):] {
					if bare, flagged := strings.CutPrefix(family, "!"); flags || !flagged {
						want = append(want, bare+" "+fields[0])
					}
				}
			}
			so := batched()
			if flags {
				so.SpeculativeTokens, so.KVCacheMetricsSample = 2, 1
			}
			s := start(t, so)
			s.post("/v1/completions", `{"prompt":"a","max_tokens":1}`)
			page := s.page()
			for line := range strings.Lines(page) {
				f := strings.Fields(line)
				if len(f) == 4 && f[1] == "TYPE" && slices.Contains(want, f[2]+" "+f[3]) {
					got = append(got, f[2]+" "+f[3])
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if strings.Contains(page, "vllm:kv_block") != flags || strings.Contains(page, "vllm:spec_decode") != flags {
				t.Error("what needs a flag is there without, or not with it")
			}
		})
	}
}

// What passes the HTTP interface is counted by route, method and class of status;
// what vLLM does not count is not, and clients cannot make up handlers.
func TestHTTPIsCounted(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	s.post("/v1/completions", `{"prompt":"a","max_tokens":1}`)
	s.post("/v1/completions", `{"prompt":"a","max_tokens":3,"stream":true}`)
	s.post("/tokenize", `{"prompt":1}`)
	s.post("/made-up", ``)
	s.post("/made-up-too", ``)
	s.page()
	page := s.page()
	for _, want := range []string{
		`http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 2.0`,
		`http_requests_total{handler="/tokenize",method="POST",status="4xx"} 1.0`,
		`http_requests_total{handler="none",method="POST",status="4xx"} 2.0`,
		`http_request_size_bytes_sum{handler="/v1/completions"} 72.0`,
		`http_request_duration_seconds_count{handler="/v1/completions",method="POST"} 2.0`,
		`http_request_duration_highr_seconds_count 5.0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in\n%s", want, page[strings.Index(page, "# HELP http_requests"):])
		}
	}
	if strings.Contains(page, "made-up") || strings.Contains(page, `handler="/metrics"`) {
		t.Error(page)
	}
}
