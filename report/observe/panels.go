package observe

import (
	"fmt"
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
	return panel(title, unit, "{{"+label+"}}", rateBy(label, counter, selector))
}

// panel returns a panel with a query for each pair of legend and query.
func panel(title, unit string, pairs ...string) Panel {
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
	return panel(title, unit, pairs...)
}

// quantiles returns a panel with percentiles of a histogram, in percent, and with its mean for 0.
func quantiles(title, unit, histogram, selector string, percents ...int) Panel {
	p := Panel{Title: title, Unit: unit}
	for _, n := range percents {
		q := Query{fmt.Sprintf("histogram_quantile(%g, sum by (le) (rate(%s_bucket{%s}%s)))", float64(n)/100, histogram,
			selector, every), fmt.Sprintf("p%d", n)}
		if n == 0 {
			q = Query{fmt.Sprintf("sum(rate(%s_sum{%s}%s)) / sum(rate(%[1]s_count{%[2]s}%[3]s))", histogram, selector,
				every), "mean"}
		}
		p.Queries = append(p.Queries, q)
	}
	return p
}

// Percentiles of most panels, of vLLM's own dashboard, and of the Gateway API inference extension's.
var (
	usual  = []int{50, 90, 99}
	ofVLLM = []int{99, 95, 90, 50, 0}
	ofGAIE = []int{95, 90, 50}
)

// needing returns the panels of a row that needs a feature.
func needing(what string, panels ...Panel) []Panel {
	for i := range panels {
		panels[i].Needs = what
	}
	return panels
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
			quantiles("Latency", "s", "llm_d_epp_request_duration_seconds", ns, usual...),
			panel("Error rate", "percentunit", "errors",
				"("+rate("llm_d_epp_request_error_total", ns)+" or vector(0)) / "+rate("llm_d_epp_request_total", ns)),
			quantiles("Time to first token, at the picker", "s", "llm_d_epp_request_ttft_seconds", ns, usual...),
			panel("Time at the sidecar", "s", "{{quantile}}",
				`max by (quantile) (llmd_sidecar_request_duration_seconds{`+ns+`})`).needs(sidecars),
		}},
		{"2. KV cache", []Panel{
			panel("Hit rate", "percentunit", "hits",
				rate("vllm:prefix_cache_hits_total", ns)+" / "+rate("vllm:prefix_cache_queries_total", ns)).target(0.7),
			panel("Hit rate per pod", "percentunit", "{{pod}}", `vllm_kv_cache_hit_rate{`+ns+`}`).target(0.7),
			panel("Size per pod", "bytes", "{{pod}}", `vllm_kv_cache_size_bytes{`+ns+`}`),
			panel("Use per pod", "percentunit", "{{pod}}", `vllm:kv_cache_usage_perc{`+ns+`}`),
			quantiles("Transfer duration", "s", "vllm:nixl_xfer_time_seconds", ns, usual...).needs(disaggregated),
			panel("Transfer duration, as sidecars measure it", "s", "{{quantile}}",
				`max by (quantile) (llmd_sidecar_kv_cache_transfer_duration_seconds{`+ns+`})`).needs(sidecars),
			rates("Transferred", "Bps", "pod", "llmd_sidecar_kv_cache_transfer_bytes", ns).needs(sidecars),
			panel("The picker's view of caches", "percentunit", "{{pod}}",
				`llmd_epp_cache_hit_rate{`+ns+`}`).needs(prefixes),
			panel("KV-Cache Manager: blocks", "short", "pairs of block and pod", `kv_cache_manager_total_blocks`,
				"different blocks", `kv_cache_manager_unique_blocks`).needs(kvManager),
			panel("KV-Cache Manager: hit rate", "percentunit", "all", `kv_cache_manager_global_hit_rate`, "{{pod}}",
				`kv_cache_manager_hit_rate`).needs(kvManager),
			rates("KV-Cache Manager: events", "ops", "type", "kv_cache_manager_events_received_total",
				"").needs(kvManager),
		}},
		{"3. GPUs", []Panel{
			panel("Memory in use", "percentunit", "{{pod}}",
				`vllm_gpu_memory_used_bytes{`+ns+`} / vllm_gpu_memory_total_bytes{`+ns+`}`).needs(accelerator),
			panel("Memory in use", "bytes", "{{pod}}", `vllm_gpu_memory_used_bytes{`+ns+`}`),
			panel("Compute (share of the peak)", "percent", "{{pod}}",
				`vllm_gpu_compute_utilization_percent{`+ns+`}`).needs(accelerator),
			panel("Busy", "percent", "{{pod}}", `vllm_gpu_utilization_percent{`+ns+`}`),
			panel("Active requests per GPU", "short", "{{pod}}",
				`sum by (pod) (vllm_active_requests{`+ns+`}) / sum by (pod) (windtunnel:accelerators{`+ns+`})`),
		}},
		{"4. Scheduling", []Panel{
			panel("Filters, p99", "s", "{{filter}}",
				p99By("filter", "llmd_epp_filter_duration_seconds", ns)).needs("a picker with filters"),
			panel("Scorers, p99", "s", "{{scorer}}", p99By("scorer", "llmd_epp_scorer_duration_seconds", ns)),
			panel("Decisions", "s", "{{quantile}}", `max by (quantile) (llmd_epp_scheduling_duration_seconds{`+ns+`})`),
			rates("Where requests go", "reqps", "endpoint_name", "llm_d_epp_scheduler_attempts_total",
				`status="success"`),
			rates("Decisions by result", "ops", "result", "llmd_epp_scheduling_decisions_total", ns),
			panel("Pods in decisions", "ops", "candidates", rate("llmd_epp_candidate_pods_total", ns), "filtered out",
				rate("llmd_epp_filtered_pods_total", ns), "scored",
				rate("llmd_epp_scored_pods_total", ns)),
			panel("Session affinity", "ops", "kept", rate("llmd_epp_session_affinity_hits_total", ns), "moved",
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
		quantiles("E2E request latency", "s", "vllm:e2e_request_latency_seconds", of, ofVLLM...),
		panel("Token throughput", "ops", "prompt", rate("vllm:prompt_tokens_total", of),
			"generation", rate("vllm:generation_tokens_total", of)),
		quantiles("Inter-token latency", "s", "vllm:inter_token_latency_seconds", of, ofVLLM...),
		panel("Scheduler state", "short", "running: {{pod}}", `vllm:num_requests_running{`+of+`}`, "waiting: {{pod}}",
			`vllm:num_requests_waiting{`+of+`}`),
		quantiles("Time to first token", "s", "vllm:time_to_first_token_seconds", of, ofVLLM...),
		panel("Cache utilization", "percentunit", "{{pod}}", `vllm:kv_cache_usage_perc{`+of+`}`),
		heatmap("Prompt length", "short", "vllm:request_prompt_tokens"),
		heatmap("Generation length", "short", "vllm:request_generation_tokens"),
		panel("Finish reason", "short", "{{finished_reason}}",
			`sum by (finished_reason) (increase(vllm:request_success_total{`+of+`}`+every+`))`),
		panel("Queue time", "s", "{{pod}}", `rate(vllm:request_queue_time_seconds_sum{`+of+`}`+every+`)`),
		panel("Prefill and decode time", "s", "prefill: {{pod}}",
			`rate(vllm:request_prefill_time_seconds_sum{`+of+`}`+every+`)`, "decode: {{pod}}",
			`rate(vllm:request_decode_time_seconds_sum{`+of+`}`+every+`)`),
		panel("Max generation tokens", "short", "{{pod}}",
			`rate(vllm:request_max_num_generation_tokens_sum{`+of+`}`+every+`)`),
	}}}},
	{"llm-d-diagnosis", "llm-d: performance, saturation, prefill and decode",
		"What llm-d's own dashboards have beside vLLM's panels.", []Row{
			{"Performance and KV cache", []Panel{
				panel("Prefix cache hits per pod", "percentunit", "{{pod}}",
					rateBy("pod", "vllm:prefix_cache_hits_total", of)+" / "+
						rateBy("pod", "vllm:prefix_cache_queries_total", of)),
				panel("Average KV cache use", "percent", "use", `avg(vllm:kv_cache_usage_perc{`+of+`}) * 100`),
				rates("Requests per second", "reqps", "pod", "vllm:request_success_total", of),
				panel("Ready endpoints", "short", "{{name}}", `llm_d_epp_ready_endpoints`),
				panel("Average queue", "short", "{{name}}", `llm_d_epp_average_queue_size`),
				panel("Average KV cache use, as the picker knows it", "percentunit", "{{name}}",
					`llm_d_epp_average_kv_cache_utilization`),
				panel("Prefix index of the picker", "short", "{{plugin_name}}",
					`llm_d_epp_prefix_indexer_size`).needs(prefixes),
				quantiles("Hit ratio that the picker expects", "percentunit", "llm_d_epp_prefix_indexer_hit_ratio", ns,
					50, 90).needs(prefixes),
			}},
			{"Failure and saturation", []Panel{
				panel("Error rate by type", "percentunit", "{{error_code}}",
					`sum by (error_code) (rate(inference_objective_request_error_total{`+ns+`}`+
						every+`)) / on () group_left () sum(rate(inference_objective_request_total{`+ns+`}`+
						every+`))`).needs(failure),
				quantiles("Request duration", "s", "inference_objective_request_duration_seconds", ns, usual...),
				rates("Preemptions", "ops", "pod", "vllm:num_preemptions_total", of),
				panel("Pickers up", "short", "{{instance}}", `up{job=~".*epp.*"}`),
				panel("Servers up", "short", "{{instance}}", `up{job=~".*vllm.*"}`),
				quantiles("Scheduling", "s", "llm_d_epp_scheduler_e2e_duration_seconds", ns, usual...),
				panel("Plug-ins, p99", "s", "{{extension_point}} {{plugin_type}}",
					p99By("extension_point, plugin_type", "llm_d_epp_plugin_duration_seconds", ns)),
			}},
			{"Each pod", []Panel{
				panel("Running", "short", "{{pod}}", `sum by (pod) (vllm:num_requests_running{`+of+`})`),
				panel("Waiting", "short", "{{pod}}", `sum by (pod) (vllm:num_requests_waiting{`+of+`})`),
				rates("Tokens per second", "ops", "pod", "vllm:generation_tokens_total", of),
				panel("Idle (1: no step)", "short", "{{pod}}",
					`1 - (sum by (pod) (rate(vllm:iteration_tokens_total_count{`+of+`}`+every+`)) > bool 0)`),
			}},
			{"Prefill and decode", needing(disaggregated,
				panel("Time to first token, p99", "s", "prefill", `histogram_quantile(0.99, sum by (le) `+
					`(rate(vllm:time_to_first_token_seconds_bucket{pod=~".*prefill.*",`+of+`}`+every+`)))`,
					"decode", `histogram_quantile(0.99, sum by (le) `+
						`(rate(vllm:time_to_first_token_seconds_bucket{pod=~".*decode.*",`+of+`}`+
						every+`)))`),
				panel("Running", "short", "prefill", `sum(vllm:num_requests_running{pod=~".*prefill.*",`+of+`})`,
					"decode", `sum(vllm:num_requests_running{pod=~".*decode.*",`+of+`})`),
				panel("Waiting", "short", "prefill", `sum(vllm:num_requests_waiting{pod=~".*prefill.*",`+of+`})`,
					"decode", `sum(vllm:num_requests_waiting{pod=~".*decode.*",`+of+`})`),
				panel("KV cache use", "percentunit", "prefill",
					`avg(vllm:kv_cache_usage_perc{pod=~".*prefill.*",`+of+`})`, "decode",
					`avg(vllm:kv_cache_usage_perc{pod=~".*decode.*",`+of+`})`),
				rates("Decisions for prefill and decode", "ops", "decision_type", "llm_d_epp_disagg_decision_total",
					ns),
				quantiles("KV transfers", "s", "vllm:nixl_xfer_time_seconds", of, usual...),
				quantiles("Posting KV transfers", "s", "vllm:nixl_post_time_seconds", of, usual...),
				quantiles("Bytes per KV transfer", "bytes", "vllm:nixl_bytes_transferred", of, usual...),
				quantiles("Descriptors per KV transfer", "short", "vllm:nixl_num_descriptors", of, usual...),
				rates("Failed KV transfers", "ops", "pod", "vllm:nixl_num_failed_transfers_total", of),
			)},
			{"KV index of the picker", needing(kvEvents,
				panel("Look-ups", "ops", "look-ups",
					rate("llm_d_router_epp_kv_cache_index_lookup_requests_total", ""), "hits",
					rate("llm_d_router_epp_kv_cache_index_lookup_hits_total", "")),
				panel("Blocks", "ops", "admitted", rate("llm_d_router_epp_kv_cache_index_admissions_total", ""),
					"evicted", rate("llm_d_router_epp_kv_cache_index_evictions_total", "")),
				quantiles("Look-up latency", "s", "llm_d_router_epp_kv_cache_index_lookup_latency_seconds", "", 50, 99),
				panel("Messages", "ops", "{{pod_identifier}}",
					rateBy("pod_identifier", "llm_d_router_epp_kv_cache_events_messages_received_total",
						"")),
				panel("Backlog", "short", "waiting", `llm_d_router_epp_kv_cache_events_pool_queue_depth`),
			)},
		}},
	{"inference-gateway", "Inference gateway", "The rows of the Gateway API inference extension's dashboard.", []Row{
		{"Inference pool", []Panel{
			panel("Average KV cache use", "percentunit", "{{name}}", `inference_pool_average_kv_cache_utilization`),
			panel("Average queue", "short", "{{name}}", `inference_pool_average_queue_size`),
			panel("Queue per pod", "short", "{{model_server_pod}}", `inference_pool_per_pod_queue_size`),
			panel("Ready pods", "short", "{{name}}", `inference_pool_ready_pods`),
		}},
		{"Inference objective", []Panel{
			rates("Requests", "reqps", "model_name", "inference_objective_request_total", ""),
			rates("Errors", "reqps", "error_code", "inference_objective_request_error_total", "").needs(failure),
			quantiles("Duration", "s", "inference_objective_request_duration_seconds", "", ofGAIE...),
			quantiles("Request size", "bytes", "inference_objective_request_sizes", "", ofGAIE...),
			quantiles("Response size", "bytes", "inference_objective_response_sizes", "", ofGAIE...),
			quantiles("Input tokens", "short", "inference_objective_input_tokens", "", ofGAIE...).needs(usage),
			quantiles("Output tokens", "short", "inference_objective_output_tokens", "", ofGAIE...).needs(usage),
			panel("Running", "short", "{{model_name}}", `inference_objective_running_requests`),
		}},
		{"Flow control", needing(flowControl,
			panel("Pool saturation", "percentunit", "{{inference_pool}}",
				`inference_extension_flow_control_pool_saturation`).target(1),
			panel("Queue", "short", "{{fairness_id}} {{priority}}",
				`sum by (fairness_id, priority) (inference_extension_flow_control_queue_size)`),
			panel("Queued bytes", "bytes", "{{fairness_id}} {{priority}}",
				`sum by (fairness_id, priority) (inference_extension_flow_control_queue_bytes)`),
			panel("Growth of the queue", "ops", "{{priority}}",
				`sum by (priority) (deriv(inference_extension_flow_control_queue_size`+every+`))`),
			quantiles("Time in the queue", "s", "inference_extension_flow_control_request_queue_duration_seconds",
				`outcome="Dispatched"`, usual...),
			quantiles("Entering the queue", "s", "inference_extension_flow_control_request_enqueue_duration_seconds",
				"", 50, 99),
			panel("The longest queues", "s", "{{fairness_id}} {{priority}}", `topk(10, sum by (fairness_id, priority) `+
				`(rate(inference_extension_flow_control_request_queue_duration_seconds_sum[$__range])))`),
			rates("What left the queue", "ops", "outcome", "llm_d_epp_flow_control_requests_total", ""),
		)},
	}},
}

// Filled returns a panel's query with Grafana's variables replaced: all models and namespaces, and a minute for the
// range.
func Filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$__range", "5m", "$model_name", ".*", "$namespace",
		".*").Replace(expr)
}

// Queries returns the queries of panels and rules by names that people can find them by, filled in. An alert's query is
// without its threshold, such as "> 0.05".
func Queries() map[string]string {
	out := map[string]string{}
	for _, d := range Dashboards {
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				for _, q := range p.Queries {
					out[strings.Trim(d.File+", "+r.Title, ", ")+", "+p.Title+": "+q.Legend] = Filled(q.Expr)
				}
			}
		}
	}
	for _, r := range Recordings() {
		out[r.Record] = r.Expr
	}
	for _, a := range Alerts() {
		out[a.Alert] = strings.TrimRight(a.Expr[:strings.LastIndexAny(a.Expr, "<>=")], " <>=")
	}
	return out
}
