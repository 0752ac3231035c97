package observe

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Recording is a rule that records a series.
type Recording struct {
	Record string `json:"record"`
	Expr   string `json:"expr"`
}

// Alert is a rule that fires while Of is beyond a threshold.
type Alert struct {
	Name string
	// Of is the query, and Beyond the comparison that fires, such as "> 0.05".
	Of, Beyond string
	// For is how long the condition holds before the alert fires, in PromQL's form.
	For      string
	Severity string // warning or critical
	// Summary is the text for people. $value is the query's value.
	Summary string
}

// Expr returns the alert's whole query.
func (a Alert) Expr() string { return a.Of + " " + a.Beyond }

// p99 returns the 99th percentile of a histogram over a time.
func p99(histogram, over string) string {
	return fmt.Sprintf("histogram_quantile(0.99, sum by (le) (rate(%s_bucket[%s])))", histogram, over)
}

// ErrorShare and HitShare return the queries of the share of the requests that fail, and of the prompts' tokens that
// prefix caches hold, over a time in PromQL's form.
func ErrorShare(over string) string {
	return fmt.Sprintf("(sum(rate(llm_d_epp_request_error_total[%[1]s])) or vector(0)) / "+
		"sum(rate(llm_d_epp_request_total[%[1]s]))", over)
}

// HitShare is described at ErrorShare.
func HitShare(over string) string {
	return fmt.Sprintf("sum(rate(vllm:prefix_cache_hits_total[%[1]s])) / "+
		"sum(rate(vllm:prefix_cache_queries_total[%[1]s]))", over)
}

// Recordings are the queries that several panels and alerts share.
var Recordings = []Recording{
	{"llm_d:requests:rate1m", "sum by (namespace) (rate(llm_d_epp_request_total[1m]))"},
	{"llm_d:request_errors:ratio1m", ErrorShare("1m")},
	{"llm_d:request_duration_seconds:p99_1m", p99("llm_d_epp_request_duration_seconds", "1m")},
	{"llm_d:time_to_first_token_seconds:p99_1m", p99("vllm:time_to_first_token_seconds", "1m")},
	{"llm_d:inter_token_latency_seconds:p99_1m", p99("vllm:inter_token_latency_seconds", "1m")},
	{"llm_d:generation_tokens:rate1m", "sum by (namespace, model_name) (rate(vllm:generation_tokens_total[1m]))"},
	{"llm_d:prefix_cache_hits:ratio1m", HitShare("1m")},
	{"pod:prefix_cache_hits:ratio1m",
		"sum by (namespace, pod) (rate(vllm:prefix_cache_hits_total[1m])) / sum by (namespace, pod) " +
			"(rate(vllm:prefix_cache_queries_total[1m]))"},
	{"pod:picked:rate1m", `sum by (endpoint_name) (rate(llm_d_epp_scheduler_attempts_total{status="success"}[1m]))`},
	{"cluster:upstream_retries:rate1m", "sum by (envoy_cluster_name) (rate(envoy_cluster_upstream_rq_retry[1m]))"},
}

// Alerts are the alerting rules, with the thresholds of llm-d and the Gateway API inference extension, and document
// 003's target of the hit rate.
var Alerts = []Alert{
	{"LLMDRequestErrors", ErrorShare("5m"), "> 0.05", "2m", "critical",
		"{{ $value | humanizePercentage }} of the requests fail."},
	{"LLMDRequestErrorsSlowly", ErrorShare("15m"), "> 0.01", "10m", "warning",
		"{{ $value | humanizePercentage }} of the requests fail."},
	{"LLMDRequestLatency", p99("llm_d_epp_request_duration_seconds", "5m"), "> 10", "5m", "warning",
		"The 99th percentile of requests takes {{ $value | humanizeDuration }}."},
	{"LLMDTimeToFirstToken", p99("vllm:time_to_first_token_seconds", "5m"), "> 10", "10m", "warning",
		"The 99th percentile of first tokens takes {{ $value | humanizeDuration }}."},
	{"LLMDTimeToFirstTokenCritical", p99("vllm:time_to_first_token_seconds", "5m"), "> 30", "2m", "critical",
		"The 99th percentile of first tokens takes {{ $value | humanizeDuration }}."},
	{"LLMDPickerDown", `avg by (namespace) (avg_over_time(up{job=~".*epp.*"}[5m]))`, "< 0.5", "1m", "critical",
		"Endpoint pickers of {{ $labels.namespace }} cannot be reached."},
	{"LLMDServersDown", `max by (namespace) (up{job=~".*vllm.*"})`, "== 0", "1m", "critical",
		"No model server of {{ $labels.namespace }} can be reached."},
	{"LLMDPreemptions", "sum by (namespace, pod) (rate(vllm:num_preemptions_total[5m]))", "> 1", "5m", "warning",
		"{{ $labels.pod }} preempts {{ $value }} requests a second."},
	{"LLMDKVCacheFull", "vllm:kv_cache_usage_perc", "> 0.9", "10m", "warning",
		"The KV cache of {{ $labels.pod }} is {{ $value | humanizePercentage }} full."},
	{"LLMDDecodeKVCacheFull", `vllm:kv_cache_usage_perc{pod=~".*decode.*"}`, "> 0.95", "5m", "critical",
		"The KV cache of {{ $labels.pod }} is {{ $value | humanizePercentage }} full."},
	{"LLMDAverageKVCacheFull", "llm_d_epp_average_kv_cache_utilization", "> 0.9", "5m", "warning",
		"The KV caches of pool {{ $labels.name }} are {{ $value | humanizePercentage }} full."},
	{"LLMDQueue", "vllm:num_requests_waiting", "> 50", "5m", "warning",
		"{{ $value }} requests wait at {{ $labels.pod }}."},
	{"LLMDPrefillQueue", `vllm:num_requests_waiting{pod=~".*prefill.*"}`, "> 100", "5m", "warning",
		"{{ $value }} requests wait at {{ $labels.pod }}."},
	{"LLMDAverageQueue", "llm_d_epp_average_queue_size", "> 50", "5m", "warning",
		"{{ $value }} requests wait at each server of pool {{ $labels.name }}."},
	{"LLMDPrefillDecodeImbalance",
		`sum(avg_over_time(vllm:num_requests_running{pod=~".*prefill.*"}[5m])) / ` +
			`(sum(avg_over_time(vllm:num_requests_running{pod=~".*decode.*"}[5m])) > 0)`, "> 3", "10m", "warning",
		"Prefill servers run {{ $value }} times as many requests as decode servers."},
	{"LLMDPrefixCacheHits", HitShare("15m"), "< 0.3", "15m", "warning",
		"{{ $value | humanizePercentage }} of the prompts' tokens are found in prefix caches; document 003's target " +
			"is above 70%."},
	{"LLMDFailedTransfers", "sum by (namespace, pod) (rate(vllm:nixl_num_failed_transfers_total[5m]))", "> 0", "5m",
		"warning", "KV transfers to {{ $labels.pod }} fail."},
	{"LLMDBlockedPrefillers", "sum by (namespace, pod) (rate(llmd_sidecar_ssrf_blocked_requests_total[5m]))", "> 0",
		"0m", "critical", "Requests name prefill servers outside the pool (SSRF)."},
	{"LLMDBreakerOpen", "max by (envoy_cluster_name) (envoy_cluster_circuit_breakers_default_rq_open + " +
		"envoy_cluster_circuit_breakers_default_rq_pending_open + envoy_cluster_circuit_breakers_default_cx_open)",
		"> 0", "1m", "warning", "A circuit breaker of Envoy's cluster {{ $labels.envoy_cluster_name }} is open."},
	{"LLMDRetries", "sum by (envoy_cluster_name) (rate(envoy_cluster_upstream_rq_retry[5m]))", "> 1", "5m", "warning",
		"Envoy tries {{ $value }} requests a second of {{ $labels.envoy_cluster_name }} again."},
	{"LLMDPoolSaturated", "llm_d_epp_flow_control_pool_saturation", ">= 1", "5m", "warning",
		"Pool {{ $labels.inference_pool }} is full: its requests wait in flow control."},
	{"LLMDKVEventsBacklog", "llm_d_router_epp_kv_cache_events_pool_queue_depth", "> 1000", "5m", "warning",
		"{{ $value }} messages of KV events wait for the picker's index."},
	{"LLMDKVLookups", p99("llm_d_router_epp_kv_cache_index_lookup_latency_seconds", "5m"), "> 0.05", "5m", "warning",
		"The 99th percentile of KV index look-ups takes {{ $value | humanizeDuration }}."},
}

// ruleFile returns a file with one group of rules.
func ruleFile[T any](name string, rules []T) ([]byte, error) {
	return yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": name, "rules": rules}}})
}

// MarshalJSON writes the alert in Prometheus' form.
func (a Alert) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"alert": a.Name, "expr": a.Expr(), "for": a.For,
		"labels":      map[string]string{"severity": a.Severity},
		"annotations": map[string]string{"summary": a.Summary}})
}
