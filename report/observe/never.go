package observe

const summaryIn003 = "a summary in [document 003](documents.md#document-003): read `{quantile=\"0.99\"}`"

// Unmatched is a metric that queries of upstream dashboards or alerts ask for and that
// nobody here tells of.
type Unmatched struct{ Metric, Why string }

// Never are those; docs/observe.md lists them. Our dashboards ask for what is there instead.
var Never = []Unmatched{
	{"vllm:num_preemptions", "vLLM itself tells of `vllm:num_preemptions_total`"},
	{"vllm:nixl_num_failed_transfers", "vLLM itself tells of `vllm:nixl_num_failed_transfers_total`"},
	{"llmd_sidecar_request_duration_seconds_bucket", summaryIn003},
	{"llmd_sidecar_kv_cache_transfer_duration_seconds_bucket", summaryIn003},
	{"llmd_epp_scheduling_duration_seconds_bucket", summaryIn003},
	{"inference_model_request_total", "the name before InferenceObjectives: `inference_objective_request_total`"},
	{"llm_d_epp_kv_cache_index_lookup_requests_total",
		"llm-d after 0.10.0; here as in 0.10.0 `llm_d_router_epp_kv_cache_index_lookup_requests_total`, and so for " +
			"all of the index"},
	{"llm_d_epp_prefix_predicted_cached_tokens",
		"llm-d after 0.10.0; `llm_d_epp_prefix_indexer_hit_ratio` says what the picker expects"},
	{"inference_extension_flow_control_dispatch_cycle_duration_seconds_bucket",
		"flow control here decides as requests come and go, not in rounds that take time"},
	{"bbr_success_total", "the body-based router here has no metrics page"},
	{"bbr_model_not_in_body_total", "the body-based router here has no metrics page"},
	{"bbr_model_not_parsed_total", "the body-based router here has no metrics page"},
	{"bbr_plugin_duration_seconds_bucket", "the body-based router here has no metrics page"},
	{"DCGM_FI_DEV_GPU_UTIL", "there is no GPU; `vllm_gpu_utilization_percent` is the simulated one's"},
	{"nvidia_gpu_duty_cycle", "there is no GPU; `vllm_gpu_utilization_percent` is the simulated one's"},
}
