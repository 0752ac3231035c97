package picker

// unmetered are the types that decide without endpoints' metrics. Detectors read metrics for requests with a priority
// below 0, which only objectives give, and for flow control.
var unmetered = map[string]bool{
	"round-robin-picker": true, "random-picker": true, "max-score-picker": true, "weighted-random-picker": true,
	"single-profile-handler": true, "disagg-profile-handler": true, "always-disagg-pd-decider": true,
	"decode-filter": true, "prefill-filter": true, "label-selector-filter": true, "by-label-selector": true,
	"active-request-scorer": true,
	"openai-parser":         true, "anthropic-parser": true, "vllmhttp-parser": true, "utilization-detector": true,
	"concurrency-detector": true,
	"fcfs-ordering-policy": true, "global-strict-fairness-policy": true, "static-usage-limit-policy": true,
	"static-usage-limit-policy-type": true,
	"metrics-data-source":            true, "core-metrics-extractor": true, "health-data-source": true,
}

// ReadsMetrics reports whether any decision may depend on endpoints' metrics. A plug-in of an unknown type counts as
// one that reads them.
func (p *Picker) ReadsMetrics() bool {
	for _, pl := range p.Plugins() {
		if !unmetered[pl.Type()] {
			return true
		}
	}
	return p.FlowControl() || len(p.Objects().Objectives) > 0
}
