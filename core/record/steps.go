package record

// Hop is a place on a request's way that reports events.
type Hop string

// The hops, in the order in which a request first meets them.
const (
	Client  Hop = "client"
	Envoy   Hop = "envoy"
	EPP     Hop = "epp"
	Sidecar Hop = "sidecar"
	Server  Hop = "server"
)

// Step is something that happens at a hop. Steps of the held-open request come
// from document 000 (docs/documents.md).
type Step string

// Steps of the client.
const (
	RequestSent        Step = "request_sent"         // the request's last header left
	FirstTokenReceived Step = "first_token_received" // first body bytes of a 2xx
	LastTokenReceived  Step = "last_token_received"  // the response is whole
	ClientLeft         Step = "client_left"          // the client gave up on purpose
	Finished           Step = "finished"             // the request's one outcome
	// Acted is no request's: somebody did something to the run from its page.
	Acted Step = "acted"
)

// Steps of the EPP.
const (
	RequestReceived     Step = "request_received"      // the request's last byte is here
	EndpointPicked      Step = "endpoint_picked"       // the picker has decided
	Part1Sent           Step = "part1_sent"            // request_payload sent on; the upstream request stays open
	RequestPassed       Step = "request_passed"        // plain: the whole request sent on
	ResponseHeadersSeen Step = "response_headers_seen" // the model server's status is here
	FirstTokenSeen      Step = "first_token_seen"      // first non-empty body chunk after a 2xx
	MetadataGenerated   Step = "metadata_generated"    // the EPP made up part 2's content
	Part2Sent           Step = "part2_sent"            // metadata, closing boundary and end of stream sent
	ResponseEndSeen     Step = "response_end_seen"     // the response's last byte is here
	PredictionChecked   Step = "prediction_checked"    // what was predicted of the request, beside what came of it
	Answered            Step = "answered"              // the EPP answered instead of the model server
	StreamFailed        Step = "stream_failed"         // the stream ended with an error
	// a service that a plug-in asked about the request brought no answer
	CallFailed Step = "call_failed"

	// PredictorTrained is no request's: the latency predictor has learned, or failed to.
	PredictorTrained Step = "predictor_trained"
	// ScrapeFailed is no request's: a data source got no page of an endpoint. Of
	// several in a row it is told once.
	ScrapeFailed Step = "scrape_failed"
)

// Steps of the sidecar, beside RequestReceived, ResponseHeadersSeen (of the
// decode leg), FirstTokenSeen, ResponseEndSeen, Answered and Aborted.
const (
	PrefillDecided   Step = "prefill_decided"    // where the prompt is computed
	PrefillerBlocked Step = "prefiller_blocked"  // a prefiller outside the pool was named (SSRF protection)
	EncodeLegSent    Step = "encode_leg_sent"    // an image, a sound or a film goes to an encode server
	EncodeLegEnded   Step = "encode_leg_ended"   // its answer is whole
	EncodeLegFailed  Step = "encode_leg_failed"  // it brought no answer
	PrefillLegSent   Step = "prefill_leg_sent"   // a prefill leg begins; once for every try
	PrefillLegEnded  Step = "prefill_leg_ended"  // its answer is whole
	PrefillLegFailed Step = "prefill_leg_failed" // it brought no answer
	DecodeLegSent    Step = "decode_leg_sent"    // the request to the decode server begins
	SessionKept      Step = "session_kept"       // a conversation's KV handle is remembered
	SessionForgotten Step = "session_forgotten"  // and is no longer good
)

// Steps of the model server. A plain request has RequestReceived instead of
// Part1Received and no Part2Received.
const (
	Part1Received   Step = "part1_received"
	PrefillStarted  Step = "prefill_started"
	PrefillFinished Step = "prefill_finished"
	FirstTokenSent  Step = "first_token_sent"
	Part2Received   Step = "part2_received"
	DecodeStarted   Step = "decode_started"
	LastTokenSent   Step = "last_token_sent"
	Violation       Step = "violation" // the held-open request was not what docs/flow.md says
	Rejected        Step = "rejected"  // answered with an error before any token
	Aborted         Step = "aborted"   // the peer left, or a fault; slot and blocks are free

	// IncidentBegan and IncidentEnded are no request's: something happens to a part
	// of the pool, and it is over.
	IncidentBegan Step = "incident_began"
	IncidentEnded Step = "incident_ended"
	// ServerStarted to ServerGone and Scaled are no request's, where servers come and go: one is
	// created, it serves, it gets nothing new, it is no more; and somebody has decided how
	// many there are to be.
	ServerStarted Step = "server_started"
	ServerReady   Step = "server_ready"
	ServerLeaving Step = "server_leaving"
	ServerGone    Step = "server_gone"
	Scaled        Step = "scaled"
	// ConfigApplied and ConfigRefused are no request's: an edited file is in force, or is not
	// used, since it is wrong or Envoy does not take it.
	ConfigApplied Step = "config_applied"
	ConfigRefused Step = "config_refused"
	// EngineStep is no request's: the engine ended a step that all its requests
	// share. Only where a scenario asks for it.
	EngineStep Step = "engine_step"
)

// Steps of Envoy, read from its access log.
const (
	Logged Step = "logged" // one line per downstream request, after its end
)

// Outcome is how a request ended, seen from the client. The list is closed and
// every request ends in exactly one of them.
type Outcome string

// The outcomes.
const (
	Completed   Outcome = "completed"    // 2xx, whole, and where held: the metadata came back as made
	Refused     Outcome = "refused"      // 4xx other than 429: the request was at fault
	Overloaded  Outcome = "overloaded"   // 429
	Unavailable Outcome = "unavailable"  // 502 or 503
	TimedOut    Outcome = "timed_out"    // 504, or the client's own time limit
	ServerError Outcome = "server_error" // any other 5xx, or an error told inside a 2xx
	Broken      Outcome = "broken"       // the connection broke or the response was cut short
	Violated    Outcome = "violated"     // the held-open contract was broken: see details
	Left        Outcome = "left"         // the client went away on purpose
)

// Outcomes lists every outcome, in the order in which summaries print them.
func Outcomes() []Outcome {
	return []Outcome{Completed, Refused, Overloaded, Unavailable, TimedOut, ServerError, Broken, Violated, Left}
}

// OutcomeOfStatus is the outcome of a whole HTTP response with this status.
func OutcomeOfStatus(status int) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Completed
	case status == 429:
		return Overloaded
	case status == 502 || status == 503:
		return Unavailable
	case status == 504:
		return TimedOut
	case status >= 400 && status < 500:
		return Refused
	case status >= 500:
		return ServerError
	}
	return Broken // 1xx and 3xx never end a request here
}
