package config

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// formerly maps plug-in types, feature gates and fields that the Gateway API Inference Extension (v0.5 to v1.5) and
// early releases of llm-d had to a hint at their present form. Deprecated types that llm-d still accepts are not here.
// Sources: kubernetes-sigs/gateway-api-inference-extension, llm-d/llm-d-inference-scheduler.
var formerly = map[string]string{
	"decision-tree-filter": "since GAIE v1.0, a scheduling profile's filters and weighted scorers replace it, such " +
		"as queue-scorer, kv-cache-utilization-scorer and lora-affinity-scorer",
	"low-queue-filter":          "queue-scorer replaces it since GAIE v1.0",
	"least-queue-filter":        "queue-scorer replaces it since GAIE v1.0",
	"least-kv-cache-filter":     "kv-cache-utilization-scorer replaces it since GAIE v1.0",
	"kv-cache-scorer":           "its name is kv-cache-utilization-scorer since GAIE v1.0",
	"lora-affinity-filter":      "lora-affinity-scorer replaces it since GAIE v1.0",
	"eviction-sheddable-filter": "its name is sheddable-eviction-filter today",
	"kvcache-aware-scorer": "precise-prefix-cache-producer and a prefix-cache-scorer whose " +
		"prefixMatchInfoProducerName names it replace it",
	"predicted-latency-scorer":  latencyToday,
	"slo-aware-routing":         latencyToday,
	"slo-aware-profile-handler": latencyToday,

	"dataLayer gate":           "remove it: the data layer is always on",
	"prepareDataPlugins gate":  "remove it: data producers always run",
	"enableLegacyMetrics gate": "remove it: core-metrics-extractor under dataLayer reads the metrics",

	"hashBlockSize":             prefixToday + " blockSizeTokens",
	"blockSize":                 prefixToday + " blockSizeTokens",
	"blockSizeTokens":           prefixToday + " blockSizeTokens",
	"autoTune":                  prefixToday + " autoTune",
	"maxPrefixBlocksToMatch":    prefixToday + " maxPrefixBlocksToMatch",
	"lruCapacityPerServer":      prefixToday + " lruCapacityPerServer",
	"queueDepthThreshold":       detectorToday,
	"kvCacheUtilThreshold":      detectorToday,
	"metricsStalenessThreshold": detectorToday,
}

const (
	latencyToday  = "predicted-latency-producer and latency-scorer replace it"
	prefixToday   = "today the plug-in approx-prefix-cache-producer has"
	detectorToday = "today it is a parameter of the plug-in utilization-detector, to which " +
		"flowControl.saturationDetector refers by pluginRef"
)

// Today returns a hint at the present form of a plug-in type, "" for one that was never another.
func Today(typ string) string { return formerly[typ] }

// Modernize adds hints at their present place to unknown fields.
func Modernize(list strictyaml.Problems) {
	for i := range list {
		p := &list[i]
		field := p.Path[strings.LastIndex(p.Path, ".")+1:]
		if strings.HasPrefix(p.Found, "unknown field") && formerly[field] != "" {
			p.Hint = formerly[field]
		}
	}
}
