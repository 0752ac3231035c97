// Package plugins holds the endpoint picker's built-in plug-ins: every type of
// llm-d-router v0.10 that stands in its Beta set, those that documents 002 (docs/documents.md) and
// 003 name though deprecated or older, and some of the Alpha set. One file per
// plug-in or family; formulas and defaults stand beside the types.
//
// Builtin returns them as an ordinary map. To add your own to the whole program,
// Register it first (examples/custom-scorer); to one picker alone:
//
//	reg := plugins.Builtin()
//	reg["gpu-memory-scorer"] = picker.Registration{New: newGPUMemory}
//	p, err := picker.New(cfg, reg, picker.Options{})
package plugins

import (
	"maps"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/datalayer"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/session"
)

// Builtin returns a fresh registry with all built-in types, and those that the
// program has registered.
func Builtin() picker.Registry {
	beta := func(f picker.Factory) picker.Registration { return picker.Registration{New: f} }
	alpha := func(f picker.Factory) picker.Registration {
		return picker.Registration{New: f, Stability: picker.Alpha}
	}
	old := func(f picker.Factory) picker.Registration {
		return picker.Registration{New: f, Stability: picker.Deprecated}
	}
	kind := func(name string, f picker.Factory) picker.Registration {
		return picker.Registration{New: f, Kind: name}
	}
	reg := picker.Registry{
		// filters
		"label-selector-filter": beta(newLabelSelector),
		"by-label":              old(picker.Of(byLabel{})),
		"by-label-selector":     old(newLabelSelector),
		"decode-filter": beta(
			newRoleFilter(true, "decode", "prefill-decode", "encode-prefill-decode", "both")),
		"prefill-filter": beta(
			newRoleFilter(false, "prefill", "encode-prefill", "prefill-decode", "encode-prefill-decode", "both")),
		"encode-filter":                beta(newRoleFilter(false, "encode", "encode-prefill", "encode-prefill-decode")),
		"prefix-cache-affinity-filter": beta(newPrefixAffinity),
		"slo-headroom-tier-filter":     beta(newHeadroomTier),
		"session-affinity-filter":      alpha(session.NewFilter),
		"endpoint-attribute-filter":    alpha(newAttributeFilter),
		"utilization-filter":           alpha(picker.Of(utilizationFilter{})),
		"topology-affinity-filter":     alpha(picker.Of(topologyFilter{})),
		"header-based-testing-filter":  beta(picker.Of(headerTesting{})),
		// scorers
		"queue-scorer":                 beta(picker.Plain[queue]()),
		"running-requests-size-scorer": beta(picker.Plain[running]()),
		"kv-cache-utilization-scorer":  beta(picker.Plain[kvUsage]()),
		"active-request-scorer":        beta(newActive),
		"load-aware-scorer":            beta(newLoadAware),
		"lora-affinity-scorer":         beta(picker.Plain[lora]()),
		"token-load-scorer":            beta(newTokenLoad),
		"mm-embeddings-cache-scorer":   beta(picker.Of(embeddingsScorer{})),
		"prefix-cache-scorer":          beta(newPrefixScorer),
		"no-hit-lru-scorer":            beta(picker.Of(noHitLRU{})),
		"context-length-aware":         beta(newContextLength),
		"session-affinity-scorer":      alpha(session.NewScorer),
		"header-label-affinity-scorer": alpha(picker.Of(headerLabel{})),
		"endpoint-attribute-scorer":    alpha(picker.Of(attributeScorer{})),
		"topology-affinity-scorer":     alpha(picker.Of(topologyScorer{})),
		"latency-scorer":               beta(newLatencyScorer),
		// pickers
		"max-score-picker":       beta(newMaxScore),
		"random-picker":          beta(newRandom),
		"weighted-random-picker": beta(newWeightedRandom),
		"round-robin-picker":     beta(picker.Of(roundRobin{})),
		// profile handlers and deciders
		"single-profile-handler":           beta(picker.Plain[single]()),
		"disagg-profile-handler":           beta(newDisagg),
		"data-parallel-profile-handler":    beta(newDataParallel),
		"header-profile-handler":           alpha(picker.Of(headerProfile{})),
		"pd-profile-handler":               old(newPD),
		"disagg-headers-handler":           old(newDisaggHeaders),
		"prefill-header-handler":           old(newDisaggHeaders),
		"prefix-based-pd-decider":          kind(picker.KindDecider, picker.Of(prefixDecider{})),
		"always-disagg-pd-decider":         kind(picker.KindDecider, picker.Plain[alwaysPD]()),
		"always-disagg-multimodal-decider": kind(picker.KindDecider, picker.Plain[alwaysMM]()),
		// producers
		"token-producer":               beta(dataproducer.NewTokenProducer),
		"tokenizer":                    old(dataproducer.NewTokenProducer),
		"approx-prefix-cache-producer": beta(dataproducer.NewApproxPrefix),
		dataproducer.TypePrecisePrefix: beta(dataproducer.NewPrecisePrefix(dataproducer.TypePrecisePrefix)),
		"precise-prefix-cache-scorer":  old(dataproducer.NewPrecisePrefix("precise-prefix-cache-scorer")),
		"inflight-load-producer":       beta(dataproducer.NewInflight),
		"predicted-latency-producer":   beta(dataproducer.NewPredicted),
		"session-id-producer":          beta(session.NewIDProducer),
		"mm-embeddings-cache-producer": beta(picker.Of(embeddings{})),
		"p2p-source-producer":          alpha(dataproducer.NewP2PSource),
		"agent-identity":               alpha(session.NewAgentIdentity),
		// admission
		"latency-slo-admitter":       beta(picker.Of(latencySLO{})),
		"probabilistic-admitter":     beta(newProbabilistic),
		"request-attribute-reporter": beta(picker.Of(reporter{})),
		// flow control
		"utilization-detector":                 beta(newUtilizationDetector),
		"concurrency-detector":                 beta(newConcurrencyDetector),
		"destination-endpoint-served-verifier": beta(picker.Plain[servedVerifier]()),
		// data layer
		"metrics-data-source":    beta(datalayer.NewMetricsSource),
		"core-metrics-extractor": beta(datalayer.NewExtractor),
		"health-data-source":     beta(newHealth),
		typeTopology: {New: picker.Of(topology{}), Stability: picker.Alpha,
			Kind: picker.KindExtractor},
		"file-discovery":               beta(datalayer.NewFileDiscovery),
		"endpoint-notification-source": kind(picker.KindSource, datalayer.NewIdle),
		"k8s-notification-source":      kind(picker.KindSource, datalayer.NewNotificationSource),
		"models-data-source":           kind(picker.KindSource, datalayer.NewModelsSource),
		"models-data-extractor":        kind(picker.KindExtractor, datalayer.NewIdle),
		// documents 002 and 003
		"ready-filter":                 beta(picker.Plain[readyFilter]()),
		"session-prefix-scorer":        beta(session.NewPrefixScorer),
		"qps-load-scorer":              beta(picker.Of(qpsLoad{})),
		"criticality-scorer":           beta(picker.Plain[criticality]()),
		"conversation-profile-handler": beta(session.NewConversationHandler),
		"weighted-load-scorer":         beta(newWeightedLoad),
		"threshold-prefix-scorer":      beta(picker.Of(thresholdPrefix{})),
		"dynamic-routing":              beta(newDynamicRouting),
		"kv-cache-manager-scorer":      beta(newKVManager),
		TypeClientHeaders:              beta(newClientHeaders),
		"session-sticky-scorer":        beta(session.NewSticky),
		"new-token-pd-decider":         kind(picker.KindDecider, newNewTokenDecider),
		"vllm-metric-scraper":          beta(datalayer.NewScraper("vllm-metric-scraper")),
		"kv-cache-metric-scraper":      beta(datalayer.NewScraper("kv-cache-metric-scraper")),
		"generic-prometheus-scraper":   beta(datalayer.NewScraper("generic-prometheus-scraper")),
		// document 001
		"dynamo-router":          beta(newDynamoRouter),
		"dynamo-frontend-scorer": beta(newDynamoFrontend),
	}
	for _, x := range []struct {
		kind      string
		stability picker.Stability
		types     []string
	}{
		{picker.KindFairness, picker.Beta,
			[]string{flowcontrol.GlobalStrict, flowcontrol.RoundRobin, flowcontrol.ProgramAware}},
		{picker.KindOrdering, picker.Beta,
			[]string{string(flowcontrol.FCFS), string(flowcontrol.EDF), string(flowcontrol.SLODeadline)}},
		{picker.KindUsageLimit, picker.Beta, []string{flowcontrol.StaticUsageLimit}},
		{picker.KindUsageLimit, picker.Alpha,
			[]string{flowcontrol.PriorityHoldback, flowcontrol.SoftReflectiveCeiling}},
		{picker.KindEviction, picker.Alpha,
			[]string{"sheddable-eviction-filter", "priority-then-time-eviction-order-policy"}},
	} {
		for _, typ := range x.types {
			reg[typ] = picker.Registration{New: newPolicy(x.kind, typ), Kind: x.kind, Stability: x.stability}
		}
	}
	for _, p := range parse.All {
		reg[p.Type()] = beta(newParser(p))
	}
	maps.Copy(reg, registered)
	return reg
}

// named is embedded by every plug-in here.
type named = picker.Base

// registered are the types that the program added to the built-in ones.
var registered = picker.Registry{}

// Register adds a plug-in type to those that Builtin returns, so that run, sim,
// epp, preview and the scenario's check all know it. Call it before anything
// else, from main or init: it is not for concurrent use. A type that exists
// already is a mistake of the program, and panics.
func Register(typ string, r picker.Registration) {
	if _, exists := Builtin()[typ]; exists || typ == "" || r.New == nil {
		panic("plugins.Register: the type \"" + typ + "\" exists already, or has no name or factory")
	}
	registered[typ] = r
}

// Extended reports whether the program has registered types of its own.
func Extended() bool { return len(registered) > 0 }
