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

// Step is something that happens at a hop. The steps of the held-open request come from document 000
// (docs/documents.md).
type Step string

// Steps of the client.
const (
	RequestSent        Step = "request_sent"         // the request's last header left
	FirstTokenReceived Step = "first_token_received" // first body bytes of a 2xx
	LastTokenReceived  Step = "last_token_received"  // the response is whole
	ClientLeft         Step = "client_left"          // the client gave up intentionally
	Finished           Step = "finished"             // the request's one outcome
	// Acted concerns no request: a user changed the run from its page.
	Acted Step = "acted"
)

// Steps of the EPP.
const (
	RequestReceived     Step = "request_received"      // the EPP has the request's last byte
	EndpointPicked      Step = "endpoint_picked"       // the picker has decided
	Part1Sent           Step = "part1_sent"            // request_payload forwarded; the upstream request stays open
	RequestPassed       Step = "request_passed"        // plain: the whole request forwarded
	ResponseHeadersSeen Step = "response_headers_seen" // the EPP has the model server's status
	FirstTokenSeen      Step = "first_token_seen"      // first non-empty body chunk after a 2xx
	MetadataGenerated   Step = "metadata_generated"    // the EPP generated part 2's content
	Part2Sent           Step = "part2_sent"            // metadata, closing boundary and end of stream sent
	ResponseEndSeen     Step = "response_end_seen"     // the EPP has the response's last byte
	PredictionChecked   Step = "prediction_checked"    // a request's prediction beside its measured result
	Answered            Step = "answered"              // the EPP answered instead of the model server
	StreamFailed        Step = "stream_failed"         // the stream ended with an error
	// CallFailed: a service that a plug-in called for the request gave no answer.
	CallFailed Step = "call_failed"

	// PredictorTrained concerns no request: the latency predictor was trained, or failed to be.
	PredictorTrained Step = "predictor_trained"
	// ScrapeFailed concerns no request: a data source got no page from an endpoint. The first of several failures in a
	// row is reported.
	ScrapeFailed Step = "scrape_failed"
)

// Steps of the sidecar, beside RequestReceived, ResponseHeadersSeen (of the
// decode leg), FirstTokenSeen, ResponseEndSeen, Answered and Aborted.
const (
	PrefillDecided   Step = "prefill_decided"    // the sidecar has decided where the prompt is computed
	PrefillerBlocked Step = "prefiller_blocked"  // the request named a prefiller outside the pool (SSRF protection)
	EncodeLegSent    Step = "encode_leg_sent"    // an image, audio clip or video goes to an encode server
	EncodeLegEnded   Step = "encode_leg_ended"   // its answer is whole
	EncodeLegFailed  Step = "encode_leg_failed"  // it gave no answer
	PrefillLegSent   Step = "prefill_leg_sent"   // a prefill leg begins; one for every try
	PrefillLegEnded  Step = "prefill_leg_ended"  // its answer is whole
	PrefillLegFailed Step = "prefill_leg_failed" // it gave no answer
	DecodeLegSent    Step = "decode_leg_sent"    // the request to the decode server begins
	SessionKept      Step = "session_kept"       // the sidecar stores a conversation's KV handle
	SessionForgotten Step = "session_forgotten"  // the handle is no longer valid
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
	Violation       Step = "violation" // the held-open request breaks the rules of docs/flow.md
	Rejected        Step = "rejected"  // answered with an error before any token
	Aborted         Step = "aborted"   // the peer left, or a fault; slot and blocks are free

	// IncidentBegan and IncidentEnded concern no request: an incident at a part of the pool begins and ends.
	IncidentBegan Step = "incident_began"
	IncidentEnded Step = "incident_ended"
	// ServerStarted to ServerGone and Scaled concern no request, in pools whose servers come and go: a server is
	// created, serves, gets no new requests, and is gone; and an autoscaler or a user has set the number of servers.
	ServerStarted Step = "server_started"
	ServerReady   Step = "server_ready"
	ServerLeaving Step = "server_leaving"
	ServerGone    Step = "server_gone"
	Scaled        Step = "scaled"
	// ConfigApplied and ConfigRefused concern no request: an edited file is in force, or it is not used because it is
	// wrong or Envoy refuses it.
	ConfigApplied Step = "config_applied"
	ConfigRefused Step = "config_refused"
	// EngineStep concerns no request: the engine ended a step that all its requests share. Recorded only where a
	// scenario asks for it.
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
	Completed   Outcome = "completed"    // 2xx, whole, and where held: the metadata came back unchanged
	Refused     Outcome = "refused"      // 4xx other than 429: the request was at fault
	Overloaded  Outcome = "overloaded"   // 429
	Unavailable Outcome = "unavailable"  // 502 or 503
	TimedOut    Outcome = "timed_out"    // 504, or the client's own time limit
	ServerError Outcome = "server_error" // any other 5xx, or an error reported inside a 2xx
	Broken      Outcome = "broken"       // the connection broke or the response was cut short
	Violated    Outcome = "violated"     // the held-open contract was broken; see details
	Left        Outcome = "left"         // the client went away intentionally
)

// Outcomes lists every outcome, in the order in which summaries print them.
func Outcomes() []Outcome {
	return []Outcome{Completed, Refused, Overloaded, Unavailable, TimedOut, ServerError, Broken, Violated, Left}
}

// OutcomeOfStatus returns the outcome of a whole HTTP response with this status.
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
