package clients

const summaryIn003 = "a summary in [document 003](documents.md#document-003): read `{quantile=\"0.99\"}`"

// unmatched is a metric that queries of upstream dashboards or alerts name and that no part here has.
type unmatched struct{ metric, why string }

// unmatchedMetrics lists these metrics, as docs/observe.md does. Windtunnel's dashboards query metrics that exist
// instead.
var unmatchedMetrics = []unmatched{
	{"vllm:num_preemptions", "vLLM itself has `vllm:num_preemptions_total`"},
	{"vllm:nixl_num_failed_transfers", "vLLM itself has `vllm:nixl_num_failed_transfers_total`"},
	{"llmd_sidecar_request_duration_seconds_bucket", summaryIn003},
	{"llmd_sidecar_kv_cache_transfer_duration_seconds_bucket", summaryIn003},
	{"llmd_epp_scheduling_duration_seconds_bucket", summaryIn003},
	{"inference_model_request_total", "the name before InferenceObjectives: `inference_objective_request_total`"},
	{"llm_d_epp_kv_cache_index_lookup_requests_total",
		"llm-d after 0.10.0; here, as in 0.10.0, `llm_d_router_epp_kv_cache_index_lookup_requests_total`; the same " +
			"holds for all metrics of the index"},
	{"llm_d_epp_prefix_predicted_cached_tokens",
		"llm-d after 0.10.0; `llm_d_epp_prefix_indexer_hit_ratio` has the picker's expectation"},
	{"inference_extension_flow_control_dispatch_cycle_duration_seconds_bucket",
		"flow control here decides when requests come and go, not in rounds that take time"},
	{"bbr_success_total", "the body-based router here has no metrics page"},
	{"bbr_model_not_in_body_total", "the body-based router here has no metrics page"},
	{"bbr_model_not_parsed_total", "the body-based router here has no metrics page"},
	{"bbr_plugin_duration_seconds_bucket", "the body-based router here has no metrics page"},
	{"DCGM_FI_DEV_GPU_UTIL", "there is no GPU; `vllm_gpu_utilization_percent` is the simulated GPU's"},
	{"nvidia_gpu_duty_cycle", "there is no GPU; `vllm_gpu_utilization_percent` is the simulated GPU's"},
}
