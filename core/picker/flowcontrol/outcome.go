package flowcontrol

// Outcome is how a request left flow control; the names are the values of the
// metric label "outcome".
type Outcome uint8

// The outcomes.
const (
	Dispatched Outcome = iota
	RejectedCapacity
	RejectedNoEndpoints
	RejectedOther
	EvictedTTL
	EvictedContextCancelled
	EvictedOther
)

var outcomeNames = [...]string{
	"Dispatched", "RejectedCapacity", "RejectedNoEndpoints", "RejectedOther",
	"EvictedTTL", "EvictedContextCancelled", "EvictedOther",
}

// String is the outcome's name in llm_d_epp_flow_control_requests_total.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "Unknown"
}

// DroppedReasonHeader carries why a request was dropped.
const DroppedReasonHeader = "x-llm-d-request-dropped-reason"

// Values of DroppedReasonHeader.
const (
	ReasonSaturated        = "rejected-saturated"
	ReasonTTLExpired       = "rejected-ttl-expired"
	ReasonNoEndpoints      = "rejected-no-endpoints"
	ReasonContextCancelled = "rejected-context-cancelled"
	ReasonShuttingDown     = "rejected-shutting-down"
	ReasonEvicted          = "evicted"
)

// Error codes as they stand in a refusal's body and in the metric label
// error_code.
const (
	CodeResourceExhausted  = "ResourceExhausted"
	CodeServiceUnavailable = "ServiceUnavailable"
	CodeInternal           = "Internal"
)

// Refusal is the answer to a request that does not go on.
type Refusal struct {
	Status  int    // HTTP status
	Code    string // "" when the body is the bare message
	Message string
	Reason  string // value of DroppedReasonHeader; "" is no header
}

// Body is the response body, text/plain.
func (r Refusal) Body() string {
	if r.Code == "" {
		return r.Message
	}
	return "inference error: " + r.Code + " - " + r.Message
}

// Error makes a Refusal an error whose text is the body.
func (r Refusal) Error() string { return r.Body() }

// Refusal is the answer that belongs to an outcome other than Dispatched. An
// expired request is told apart by whether the pool had endpoints when it
// expired: without them it is the service that is missing, not room.
func (o Outcome) Refusal(poolEmpty bool) Refusal {
	const rejected, evicted = "request rejected pre-queue: ", "request evicted from queue: "
	switch o {
	case RejectedCapacity:
		return Refusal{429, CodeResourceExhausted, rejected + "queue at capacity", ReasonSaturated}
	case RejectedNoEndpoints:
		return Refusal{503, CodeServiceUnavailable, "no endpoints available: " + rejected + "no endpoints available", ReasonNoEndpoints}
	case EvictedTTL:
		if poolEmpty {
			return Refusal{503, CodeServiceUnavailable, "request timed out in queue and no endpoints are available: " + evicted + "request TTL expired", ReasonNoEndpoints}
		}
		return Refusal{429, CodeResourceExhausted, "request timed out in queue: " + evicted + "request TTL expired", ReasonTTLExpired}
	case EvictedContextCancelled:
		return Refusal{503, CodeServiceUnavailable, "client disconnected: " + evicted + "request context cancelled", ReasonContextCancelled}
	case RejectedOther:
		return Refusal{503, CodeServiceUnavailable, "flow controller shutting down: " + rejected + "flow controller is not running", ReasonShuttingDown}
	case EvictedOther:
		return Refusal{503, CodeServiceUnavailable, "flow controller shutting down: " + evicted + "flow controller is not running", ReasonShuttingDown}
	}
	return Refusal{500, CodeInternal, "unhandled flow control outcome: " + o.String(), ""}
}

// Evicted is the answer to a running request that is taken back, also in the
// middle of its response.
func Evicted() Refusal {
	return Refusal{Status: 429, Message: "request evicted by flow control", Reason: ReasonEvicted}
}
