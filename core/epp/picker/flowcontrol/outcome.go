package flowcontrol

import "github.com/windtunnel/windtunnel/core/wire/apierror"

// Outcome is how a request left flow control. The names are the values of the metric label "outcome".
type Outcome uint8

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

// String returns the outcome's name in llm_d_epp_flow_control_requests_total.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "Unknown"
}

// Values of apierror.DroppedReasonHeader.
const (
	ReasonSaturated        = "rejected-saturated"
	ReasonTTLExpired       = "rejected-ttl-expired"
	ReasonNoEndpoints      = "rejected-no-endpoints"
	ReasonContextCancelled = "rejected-context-cancelled"
	ReasonShuttingDown     = "rejected-shutting-down"
	ReasonEvicted          = "evicted"
)

// Refusal returns the answer for an outcome other than Dispatched. The answer to an expired request depends on whether
// the pool had endpoints when it expired: without them, the service is missing and not capacity.
func (o Outcome) Refusal(poolEmpty bool) *apierror.Error {
	const rejected, evicted = "request rejected pre-queue: ", "request evicted from queue: "
	switch o {
	case RejectedCapacity:
		return &apierror.Error{Status: 429, Message: rejected + "queue at capacity", Reason: ReasonSaturated}
	case RejectedNoEndpoints:
		return &apierror.Error{Status: 503, Message: "no endpoints available: " + rejected + "no endpoints available",
			Reason: ReasonNoEndpoints}
	case EvictedTTL:
		if poolEmpty {
			return &apierror.Error{Status: 503,
				Message: "request timed out in queue and no endpoints are available: " + evicted +
					"request TTL expired", Reason: ReasonNoEndpoints}
		}
		return &apierror.Error{Status: 429, Message: "request timed out in queue: " + evicted + "request TTL expired",
			Reason: ReasonTTLExpired}
	case EvictedContextCancelled:
		return &apierror.Error{Status: 503, Message: "client disconnected: " + evicted + "request context cancelled",
			Reason: ReasonContextCancelled}
	case RejectedOther:
		return &apierror.Error{Status: 503,
			Message: "flow controller shutting down: " + rejected + "flow controller is not running",
			Reason:  ReasonShuttingDown}
	case EvictedOther:
		return &apierror.Error{Status: 503,
			Message: "flow controller shutting down: " + evicted + "flow controller is not running",
			Reason:  ReasonShuttingDown}
	}
	return &apierror.Error{Status: 500, Message: "unhandled flow control outcome: " + o.String()}
}

// Evicted returns the answer to a running request that is evicted, even in the middle of its response.
func Evicted() *apierror.Error {
	return &apierror.Error{Status: 429, Message: "request evicted by flow control", Reason: ReasonEvicted, Bare: true}
}

// Revocation returns the value of the label outcome of llm_d_epp_flow_control_revocations_total.
func (k EffectKind) Revocation() string {
	return map[EffectKind]string{RevocationConfirmed: "confirmed", RevocationTimedOut: "timed_out"}[k]
}
