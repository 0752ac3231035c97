package observe

import (
	"fmt"
	"iter"
	"strings"
)

// Panel is one chart of a dashboard.
type Panel struct {
	Title string
	// Unit is one of Grafana's: reqps, s, percentunit, bytes, short …
	Unit    string
	Queries []Query
	// Target is drawn as a line, 0 for none.
	Target float64
	// Heatmap shows the queries' buckets as colours.
	Heatmap bool
	// Needs names the feature without which the panel is empty, or "".
	Needs string
}

// Query is a query of a panel, with the legend of its series.
type Query struct{ Expr, Legend string }

// Row is a group of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Dashboard is a dashboard of Grafana.
type Dashboard struct {
	// File is the name of its file without .json, and its uid.
	File, Title, Description string
	Rows                     []Row
}

const (
	ns    = `namespace=~"$namespace"`                           // of every dashboard
	of    = `model_name=~"$model_name",namespace=~"$namespace"` // of model servers
	every = "[$__rate_interval]"
)

// one returns a panel with one query.
func one(title, unit, legend, expr string) Panel {
	return Panel{Title: title, Unit: unit, Queries: []Query{{expr, legend}}}
}

// rate returns a query for the rate of a counter, summed over all series.
func rate(counter, selector string) string { return "sum(" + each(counter, selector) + ")" }

// rateBy is rate with a sum for each value of a label.
func rateBy(label, counter, selector string) string {
	return "sum by (" + label + ") (" + each(counter, selector) + ")"
}

func each(counter, selector string) string {
	if selector != "" {
		selector = "{" + selector + "}"
	}
	return "rate(" + counter + selector + every + ")"
}

// p99By returns the 99th percentile of a histogram for each value of labels.
func p99By(labels, histogram, selector string) string {
	return "histogram_quantile(0.99, " + rateBy("le, "+labels, histogram+"_bucket", selector) + ")"
}

// rates returns a panel with the rates of a counter by a label.
func rates(title, unit, label, counter, selector string) Panel {
	return one(title, unit, "{{"+label+"}}", rateBy(label, counter, selector))
}

// several returns a panel with a query for each pair of legend and query.
func several(title, unit string, pairs ...string) Panel {
	p := Panel{Title: title, Unit: unit}
	for i := 0; i+1 < len(pairs); i += 2 {
		p.Queries = append(p.Queries, Query{pairs[i+1], pairs[i]})
	}
	return p
}

// ofClusters returns a panel with a query per Envoy cluster for each pair of legend and metric. The metric's name
// stands in a format.
func ofClusters(title, unit, format string, pairs ...string) Panel {
	for i := range pairs {
		if i%2 == 0 {
			pairs[i] += ": {{envoy_cluster_name}}"
		} else {
			pairs[i] = fmt.Sprintf(format, pairs[i])
		}
	}
	return several(title, unit, pairs...)
}

// quantiles returns a panel with percentiles of a histogram, and with its mean for "mean".
func quantiles(title, unit, histogram, selector string, qs ...string) Panel {
	p := Panel{Title: title, Unit: unit}
	for _, q := range qs {
		if q == "mean" {
			p.Queries = append(p.Queries,
				Query{fmt.Sprintf("sum(rate(%s_sum{%s}%s)) / sum(rate(%[1]s_count{%[2]s}%[3]s))", histogram, selector,
					every), q})
			continue
		}
		p.Queries = append(p.Queries,
			Query{fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s_bucket{%s}%s)))", q, histogram, selector,
				every), "p" + fmt.Sprint(percent(q))})
	}
	return p
}

func percent(q string) int {
	var f float64
	_, _ = fmt.Sscan(q, &f) // a constant
	return int(100*f + 0.5)
}

func (p Panel) needs(what string) Panel { p.Needs = what; return p }

func (p Panel) target(v float64) Panel { p.Target = v; return p }

func heatmap(title, unit, histogram string) Panel {
	return Panel{Title: title, Unit: unit, Heatmap: true,
		Queries: []Query{{fmt.Sprintf("sum by (le) (increase(%s_bucket{%s}%s))", histogram, of, every), "{{le}}"}}}
}

// Features that some panels need.
const (
	disaggregated = "prefill and decode on servers of their own"
	sidecars      = "routing sidecars"
	flowControl   = "flow control (featureGates: [flowControl])"
	accelerator   = "model servers with an accelerator"
	kvManager     = "the KV-Cache Manager"
	kvEvents      = "a picker that follows KV events (kvBlockIndexConfig: {enableMetrics: true})"
	failure       = "a request that failed"
	usage         = "answers with their usage (includeUsage)"
	prefixes      = "a picker with an approximate prefix index"
)

// Dashboards has document 003's groups, then the dashboards of llm-d, vLLM and the Gateway API inference extension.
var Dashboards = []Dashboard{
	{"llm-d-overview", "llm-d: requests, caches, GPUs, scheduling, errors", "The five groups of document 003.", []Row{
		{"1. Request rate and latency", []Panel{
			rates("Requests per second", "reqps", "target_model_name", "llm_d_epp_request_total", ns),
			quantiles("Latency", "s", "llm_d_epp_request_duration_seconds", ns, "0.5", "0.9", "0.99"),
			one("Error rate", "percentunit", "errors",
				"("+rate("llm_d_epp_request_error_total", ns)+" or vector(0)) / "+rate("llm_d_epp_request_total", ns)),
			quantiles("Time to first token, at the picker", "s", "llm_d_epp_request_ttft_seconds", ns, "0.5", "0.9",
				"0.99"),
			one("Time at the sidecar", "s", "{{quantile}}",
				`max by (quantile) (llmd_sidecar_request_duration_seconds{`+ns+`})`).needs(sidecars),
		}},
		{"2. KV cache", []Panel{
			one("Hit rate", "percentunit", "hits",
				rate("vllm:prefix_cache_hits_total", ns)+" / "+rate("vllm:prefix_cache_queries_total", ns)).target(0.7),
			one("Hit rate per pod", "percentunit", "{{pod}}", `vllm_kv_cache_hit_rate{`+ns+`}`).target(0.7),
			one("Size per pod", "bytes", "{{pod}}", `vllm_kv_cache_size_bytes{`+ns+`}`),
			one("Use per pod", "percentunit", "{{pod}}", `vllm:kv_cache_usage_perc{`+ns+`}`),
			quantiles("Transfer duration", "s", "vllm:nixl_xfer_time_seconds", ns, "0.5", "0.9",
				"0.99").needs(disaggregated),
			one("Transfer duration, as sidecars measure it", "s", "{{quantile}}",
				`max by (quantile) (llmd_sidecar_kv_cache_transfer_duration_seconds{`+ns+`})`).needs(sidecars),
			rates("Transferred", "Bps", "pod", "llmd_sidecar_kv_cache_transfer_bytes", ns).needs(sidecars),
			several("The picker's view of caches", "percentunit", "{{pod}}",
				`llmd_epp_cache_hit_rate{`+ns+`}`).needs(prefixes),
			several("KV-Cache Manager: blocks", "short", "pairs of block and pod", `kv_cache_manager_total_blocks`,
				"different blocks", `kv_cache_manager_unique_blocks`).needs(kvManager),
			several("KV-Cache Manager: hit rate", "percentunit", "all", `kv_cache_manager_global_hit_rate`, "{{pod}}",
				`kv_cache_manager_hit_rate`).needs(kvManager),
			rates("KV-Cache Manager: events", "ops", "type", "kv_cache_manager_events_received_total",
				"").needs(kvManager),
		}},
		{"3. GPUs", []Panel{
			one("Memory in use", "percentunit", "{{pod}}",
				`vllm_gpu_memory_used_bytes{`+ns+`} / vllm_gpu_memory_total_bytes{`+ns+`}`).needs(accelerator),
			one("Memory in use", "bytes", "{{pod}}", `vllm_gpu_memory_used_bytes{`+ns+`}`),
			one("Compute (share of the peak)", "percent", "{{pod}}",
				`vllm_gpu_compute_utilization_percent{`+ns+`}`).needs(accelerator),
			one("Busy", "percent", "{{pod}}", `vllm_gpu_utilization_percent{`+ns+`}`),
			one("Active requests per GPU", "short", "{{pod}}",
				`sum by (pod) (vllm_active_requests{`+ns+`}) / sum by (pod) (windtunnel:accelerators{`+ns+`})`),
		}},
		{"4. Scheduling", []Panel{
			one("Filters, p99", "s", "{{filter}}",
				p99By("filter", "llmd_epp_filter_duration_seconds", ns)).needs("a picker with filters"),
			one("Scorers, p99", "s", "{{scorer}}", p99By("scorer", "llmd_epp_scorer_duration_seconds", ns)),
			one("Decisions", "s", "{{quantile}}", `max by (quantile) (llmd_epp_scheduling_duration_seconds{`+ns+`})`),
			rates("Where requests go", "reqps", "endpoint_name", "llm_d_epp_scheduler_attempts_total",
				`status="success"`),
			rates("Decisions by result", "ops", "result", "llmd_epp_scheduling_decisions_total", ns),
			several("Pods in decisions", "ops", "candidates", rate("llmd_epp_candidate_pods_total", ns), "filtered out",
				rate("llmd_epp_filtered_pods_total", ns), "scored",
				rate("llmd_epp_scored_pods_total", ns)),
			several("Session affinity", "ops", "kept", rate("llmd_epp_session_affinity_hits_total", ns), "moved",
				rate("llmd_epp_session_affinity_misses_total", ns)),
		}},
		{"5. Errors and retries", []Panel{
			rates("Failed requests by type", "reqps", "error_code", "llm_d_epp_request_error_total", ns).needs(failure),
			rates("Failed at sidecars", "reqps", "pod", "llmd_sidecar_requests_total", `status="failure",`+
				ns).needs(sidecars),
			ofClusters("Retries", "ops", "sum by (envoy_cluster_name) (rate(envoy_cluster_upstream_rq_retry%s"+
				every+"))",
				"tried again", "", "with success", "_success", "too often", "_limit_exceeded",
				"beyond the budget", "_overflow"),
			ofClusters("Circuit breakers (1: open)", "short",
				"max by (envoy_cluster_name) (envoy_cluster_circuit_breakers_default_%s_open)",
				"requests", "rq", "pending", "rq_pending", "connections", "cx", "retries", "rq_retry"),
			rates("Refused by circuit breakers", "ops", "envoy_cluster_name",
				"envoy_cluster_upstream_rq_pending_overflow", ""),
			rates("Blocked prefillers (SSRF)", "ops", "pod", "llmd_sidecar_ssrf_blocked_requests_total",
				ns).needs(sidecars),
			rates("Connection errors at sidecars", "ops", "pod", "llmd_sidecar_connection_errors_total",
				ns).needs(sidecars),
		}},
	}},
	{"vllm", "vLLM", "The panels of vLLM's own dashboard.", []Row{{"", []Panel{
		quantiles("E2E request latency", "s", "vllm:e2e_request_latency_seconds", of, "0.99", "0.95", "0.9", "0.5",
			"mean"),
		several("Token throughput", "ops", "prompt", rate("vllm:prompt_tokens_total", of),
			"generation", rate("vllm:generation_tokens_total", of)),
		quantiles("Inter-token latency", "s", "vllm:inter_token_latency_seconds", of, "0.99", "0.95", "0.9", "0.5",
			"mean"),
		several("Scheduler state", "short", "running: {{pod}}", `vllm:num_requests_running{`+of+`}`, "waiting: {{pod}}",
			`vllm:num_requests_waiting{`+of+`}`),
		quantiles("Time to first token", "s", "vllm:time_to_first_token_seconds", of, "0.99", "0.95", "0.9", "0.5",
			"mean"),
		one("Cache utilization", "percentunit", "{{pod}}", `vllm:kv_cache_usage_perc{`+of+`}`),
		heatmap("Prompt length", "short", "vllm:request_prompt_tokens"),
		heatmap("Generation length", "short", "vllm:request_generation_tokens"),
		one("Finish reason", "short", "{{finished_reason}}",
			`sum by (finished_reason) (increase(vllm:request_success_total{`+of+`}`+every+`))`),
		one("Queue time", "s", "{{pod}}", `rate(vllm:request_queue_time_seconds_sum{`+of+`}`+every+`)`),
		several("Prefill and decode time", "s", "prefill: {{pod}}",
			`rate(vllm:request_prefill_time_seconds_sum{`+of+`}`+every+`)`, "decode: {{pod}}",
			`rate(vllm:request_decode_time_seconds_sum{`+of+`}`+every+`)`),
		one("Max generation tokens", "short", "{{pod}}",
			`rate(vllm:request_max_num_generation_tokens_sum{`+of+`}`+every+`)`),
	}}}},
	{"llm-d-diagnosis", "llm-d: performance, saturation, prefill and decode",
		"What llm-d's own dashboards have beside vLLM's panels.", []Row{
			{"Performance and KV cache", []Panel{
				one("Prefix cache hits per pod", "percentunit", "{{pod}}",
					rateBy("pod", "vllm:prefix_cache_hits_total", of)+" / "+
						rateBy("pod", "vllm:prefix_cache_queries_total", of)),
				one("Average KV cache use", "percent", "use", `avg(vllm:kv_cache_usage_perc{`+of+`}) * 100`),
				rates("Requests per second", "reqps", "pod", "vllm:request_success_total", of),
				one("Ready endpoints", "short", "{{name}}", `llm_d_epp_ready_endpoints`),
				one("Average queue", "short", "{{name}}", `llm_d_epp_average_queue_size`),
				one("Average KV cache use, as the picker knows it", "percentunit", "{{name}}",
					`llm_d_epp_average_kv_cache_utilization`),
				several("Prefix index of the picker", "short", "{{plugin_name}}",
					`llm_d_epp_prefix_indexer_size`).needs(prefixes),
				quantiles("Hit ratio that the picker expects", "percentunit", "llm_d_epp_prefix_indexer_hit_ratio", ns,
					"0.5", "0.9").needs(prefixes),
			}},
			{"Failure and saturation", []Panel{
				one("Error rate by type", "percentunit", "{{error_code}}",
					`sum by (error_code) (rate(inference_objective_request_error_total{`+ns+`}`+
						every+`)) / on () group_left () sum(rate(inference_objective_request_total{`+ns+`}`+
						every+`))`).needs(failure),
				quantiles("Request duration", "s", "inference_objective_request_duration_seconds", ns, "0.5", "0.9",
					"0.99"),
				rates("Preemptions", "ops", "pod", "vllm:num_preemptions_total", of),
				one("Pickers up", "short", "{{instance}}", `up{job=~".*epp.*"}`),
				one("Servers up", "short", "{{instance}}", `up{job=~".*vllm.*"}`),
				quantiles("Scheduling", "s", "llm_d_epp_scheduler_e2e_duration_seconds", ns, "0.5", "0.9", "0.99"),
				one("Plug-ins, p99", "s", "{{extension_point}} {{plugin_type}}",
					p99By("extension_point, plugin_type", "llm_d_epp_plugin_duration_seconds", ns)),
			}},
			{"Each pod", []Panel{
				one("Running", "short", "{{pod}}", `sum by (pod) (vllm:num_requests_running{`+of+`})`),
				one("Waiting", "short", "{{pod}}", `sum by (pod) (vllm:num_requests_waiting{`+of+`})`),
				rates("Tokens per second", "ops", "pod", "vllm:generation_tokens_total", of),
				one("Idle (1: no step)", "short", "{{pod}}",
					`1 - (sum by (pod) (rate(vllm:iteration_tokens_total_count{`+of+`}`+every+`)) > bool 0)`),
			}},
			{"Prefill and decode", []Panel{
				several("Time to first token, p99", "s", "prefill", `histogram_quantile(0.99, sum by (le) `+
					`(rate(vllm:time_to_first_token_seconds_bucket{pod=~".*prefill.*",`+of+`}`+every+`)))`,
					"decode", `histogram_quantile(0.99, sum by (le) `+
						`(rate(vllm:time_to_first_token_seconds_bucket{pod=~".*decode.*",`+of+`}`+
						every+`)))`).needs(disaggregated),
				several("Running", "short", "prefill", `sum(vllm:num_requests_running{pod=~".*prefill.*",`+of+`})`,
					"decode", `sum(vllm:num_requests_running{pod=~".*decode.*",`+of+`})`).needs(disaggregated),
				several("Waiting", "short", "prefill", `sum(vllm:num_requests_waiting{pod=~".*prefill.*",`+of+`})`,
					"decode", `sum(vllm:num_requests_waiting{pod=~".*decode.*",`+of+`})`).needs(disaggregated),
				several("KV cache use", "percentunit", "prefill",
					`avg(vllm:kv_cache_usage_perc{pod=~".*prefill.*",`+of+`})`, "decode",
					`avg(vllm:kv_cache_usage_perc{pod=~".*decode.*",`+of+`})`).needs(disaggregated),
				rates("Decisions for prefill and decode", "ops", "decision_type", "llm_d_epp_disagg_decision_total",
					ns).needs(disaggregated),
				quantiles("KV transfers", "s", "vllm:nixl_xfer_time_seconds", of, "0.5", "0.9",
					"0.99").needs(disaggregated),
				quantiles("Posting KV transfers", "s", "vllm:nixl_post_time_seconds", of, "0.5", "0.9",
					"0.99").needs(disaggregated),
				quantiles("Bytes per KV transfer", "bytes", "vllm:nixl_bytes_transferred", of, "0.5", "0.9",
					"0.99").needs(disaggregated),
				quantiles("Descriptors per KV transfer", "short", "vllm:nixl_num_descriptors", of, "0.5", "0.9",
					"0.99").needs(disaggregated),
				rates("Failed KV transfers", "ops", "pod", "vllm:nixl_num_failed_transfers_total",
					of).needs(disaggregated),
			}},
			{"KV index of the picker", []Panel{
				several("Look-ups", "ops", "look-ups",
					rate("llm_d_router_epp_kv_cache_index_lookup_requests_total", ""), "hits",
					rate("llm_d_router_epp_kv_cache_index_lookup_hits_total", "")).needs(kvEvents),
				several("Blocks", "ops", "admitted", rate("llm_d_router_epp_kv_cache_index_admissions_total", ""),
					"evicted", rate("llm_d_router_epp_kv_cache_index_evictions_total", "")).needs(kvEvents),
				quantiles("Look-up latency", "s", "llm_d_router_epp_kv_cache_index_lookup_latency_seconds", "", "0.5",
					"0.99").needs(kvEvents),
				several("Messages", "ops", "{{pod_identifier}}",
					rateBy("pod_identifier", "llm_d_router_epp_kv_cache_events_messages_received_total",
						"")).needs(kvEvents),
				several("Backlog", "short", "waiting",
					`llm_d_router_epp_kv_cache_events_pool_queue_depth`).needs(kvEvents),
			}},
		}},
	{"inference-gateway", "Inference gateway", "The rows of the Gateway API inference extension's dashboard.", []Row{
		{"Inference pool", []Panel{
			one("Average KV cache use", "percentunit", "{{name}}", `inference_pool_average_kv_cache_utilization`),
			one("Average queue", "short", "{{name}}", `inference_pool_average_queue_size`),
			one("Queue per pod", "short", "{{model_server_pod}}", `inference_pool_per_pod_queue_size`),
			one("Ready pods", "short", "{{name}}", `inference_pool_ready_pods`),
		}},
		{"Inference objective", []Panel{
			rates("Requests", "reqps", "model_name", "inference_objective_request_total", ""),
			rates("Errors", "reqps", "error_code", "inference_objective_request_error_total", "").needs(failure),
			quantiles("Duration", "s", "inference_objective_request_duration_seconds", "", "0.95", "0.9", "0.5"),
			quantiles("Request size", "bytes", "inference_objective_request_sizes", "", "0.95", "0.9", "0.5"),
			quantiles("Response size", "bytes", "inference_objective_response_sizes", "", "0.95", "0.9", "0.5"),
			quantiles("Input tokens", "short", "inference_objective_input_tokens", "", "0.95", "0.9",
				"0.5").needs(usage),
			quantiles("Output tokens", "short", "inference_objective_output_tokens", "", "0.95", "0.9",
				"0.5").needs(usage),
			one("Running", "short", "{{model_name}}", `inference_objective_running_requests`),
		}},
		{"Flow control", []Panel{
			one("Pool saturation", "percentunit", "{{inference_pool}}",
				`inference_extension_flow_control_pool_saturation`).target(1).needs(flowControl),
			one("Queue", "short", "{{fairness_id}} {{priority}}",
				`sum by (fairness_id, priority) (inference_extension_flow_control_queue_size)`).needs(flowControl),
			one("Queued bytes", "bytes", "{{fairness_id}} {{priority}}",
				`sum by (fairness_id, priority) (inference_extension_flow_control_queue_bytes)`).needs(flowControl),
			one("Growth of the queue", "ops", "{{priority}}",
				`sum by (priority) (deriv(inference_extension_flow_control_queue_size`+every+`))`).needs(flowControl),
			quantiles("Time in the queue", "s", "inference_extension_flow_control_request_queue_duration_seconds",
				`outcome="Dispatched"`, "0.5", "0.9", "0.99").needs(flowControl),
			quantiles("Entering the queue", "s", "inference_extension_flow_control_request_enqueue_duration_seconds",
				"", "0.5", "0.99").needs(flowControl),
			one("The longest queues", "s", "{{fairness_id}} {{priority}}", `topk(10, sum by (fairness_id, priority) `+
				`(rate(inference_extension_flow_control_request_queue_duration_seconds_sum[$__range])))`).needs(
				flowControl),
			rates("What left the queue", "ops", "outcome", "llm_d_epp_flow_control_requests_total",
				"").needs(flowControl),
		}},
	}},
}

// Filled returns a panel's query with Grafana's variables replaced: all models and namespaces, and a minute for the
// range.
func Filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$__range", "5m", "$model_name", ".*", "$namespace",
		".*").Replace(expr)
}

// Queries yields the queries of panels and rules under names that people can find them by, filled in. An alert's query
// is without its threshold.
func Queries() iter.Seq2[string, string] {
	return func(yield func(name, expr string) bool) {
		for _, d := range Dashboards {
			for _, r := range d.Rows {
				for _, p := range r.Panels {
					for _, q := range p.Queries {
						if !yield(strings.Trim(d.File+", "+r.Title, ", ")+", "+p.Title+": "+q.Legend, Filled(q.Expr)) {
							return
						}
					}
				}
			}
		}
		for _, r := range Recordings {
			if !yield(r.Record, r.Expr) {
				return
			}
		}
		for _, a := range Alerts {
			if !yield(a.Name, a.Of) {
				return
			}
		}
	}
}
