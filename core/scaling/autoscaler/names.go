package autoscaler

import (
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp"
)

// Known reports whether a part of a run serves a metric.
func Known(name string) bool {
	return OfServers(name) || slices.Contains(epp.MetricNames, name) || slices.Contains(StateMetrics, name)
}

// OfServers reports whether model servers, and not the endpoint picker, serve a metric: vLLM's, or document 003's.
func OfServers(name string) bool {
	return strings.HasPrefix(name, "vllm:") || strings.HasPrefix(name, "vllm_")
}

// hints are the queries for the targets of document 003's InferencePool (autoscaling.targetMetrics). Targets are per
// server.
var hints = map[string]string{
	"QueueLength":    "sum(vllm:num_requests_waiting)",
	"GPUUtilization": "sum(vllm_gpu_utilization_percent)",
	"KVCacheUsage":   "100 * sum(vllm:kv_cache_usage_perc)",
}

// OfHint returns the query for a target metric of document 003's InferencePool, "" if no part of a run serves it.
func OfHint(kind string) string { return hints[kind] }
