package parity

import (
	"regexp"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// deviation is a deliberate difference of windtunnel in one line.
type deviation struct {
	topic, line, unit, field *regexp.Regexp
	why                      string
}

func dev(topic, line, unit, field, why string) deviation {
	c := func(s string) *regexp.Regexp { return regexp.MustCompile("^(?:" + s + ")$") }
	return deviation{c(topic), c(line), c(unit), c(field), why}
}

// deviations is the whole list. docs/parity.md describes each of them.
var deviations = []deviation{
	dev("config-acceptance", "v1-api-version", "accept", "accepted",
		"llm-d.ai/v1 is newer than the recorded version and is read"),
	dev("metrics-edge", "edge-(kv-cache-utilization|queue|load-aware|running-requests-size)-scorer", "odd", "scores",
		"a sample that is not a number is not a figure: the last one stays"),
	dev("ext-proc-edge", "trailers-and-order", "request-trailers-instead-of-eos", "response messages",
		"trailers end a request as a last body message does"),
	dev("kubernetes-debug", "stateful-plugins", "h0|h1|h2|r", "scores",
		"a request's own tokens are exact; in that run its whole blocks counted, by an order that is random per start"),
	dev("epp-metrics", "metrics-flow-control", "metrics", ".*request_error_total.*ModelServerError.*",
		"statuses from 400 on are errors of the model server"),
	dev("kubernetes-pool", ".*", "health .*", "health_port:liveness", "a restart would not bring the pool"),
	dev("kubernetes-pool", ".*", "health .*", "grpc_port:.*", "Envoy's own health check asks there"),
	dev("kubernetes-pool", "endpoint-selector", "metrics", ".*_ready_endpoints.*",
		"figures are those of the moment, not of the last refresh"),
	dev("differential", "ttl-then-capacity", "b", "immediate body|refusal set_headers",
		"a request leaves when its time is over, not at the sweep of that second"),
	dev("differential", "reporter-json-trailers", "a", "response metadata",
		"the body has gone on when the trailers come, so that they bring the attribute"),
	dev("differential", "usage-cut-between-pieces", "metrics",
		".*(_input_tokens|_output_tokens|_ntpot_seconds|normalized_time_per_output_token|streaming_tpot).*",
		"usage counts however it is cut"),
	dev("differential", "metrics-.*|usage-cut-between-pieces", "metrics",
		"inference_objective_(inference_request_metric|request_ttft_seconds_count).*",
		"families of document 004, which the real one serves with a predictor alone"),
	dev("differential", "metrics-mm-embeddings", "metrics", ".*(encoder_cache_|token-producer).*",
		"windtunnel does not tokenize images, and has no metrics of their cache"),
	dev("differential", "metrics-capacity-outcome", "metrics", ".*dispatch_cycle_duration.*",
		"there is no loop that runs every millisecond"),
	dev("metrics-formats", "vllm-raw", "typed-inf", "scores",
		"a queue of infinite length is not a figure: the last one stays"),
}

// injected are headers with which a client could choose its own prefiller, encoder, rank or KV source. The real
// picker passes them on. Windtunnel removes them unless the decision sets them.
var injected = []string{picker.HeaderPrefiller, picker.HeaderEncoders, picker.HeaderDataParallel, picker.HeaderKVSource}

// Deviation returns the reason of a deliberate difference, or "" if the difference is a fault.
func Deviation(topic, line string, f Fault) string {
	for _, d := range deviations {
		if d.topic.MatchString(topic) && d.line.MatchString(line) && d.unit.MatchString(f.Unit) &&
			d.field.MatchString(f.Field) {
			return d.why
		}
	}
	return ""
}
