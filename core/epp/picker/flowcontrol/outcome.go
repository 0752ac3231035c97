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
	const stopped = "flow controller shutting down: "
	answer := func(status int, reason, message string) *apierror.Error {
		return &apierror.Error{Status: status, Message: message, Reason: reason}
	}
	switch o {
	case RejectedCapacity:
		return answer(429, ReasonSaturated, rejected+"queue at capacity")
	case RejectedNoEndpoints:
		return answer(503, ReasonNoEndpoints, "no endpoints available: "+rejected+"no endpoints available")
	case EvictedTTL:
		if poolEmpty {
			return answer(503, ReasonNoEndpoints,
				"request timed out in queue and no endpoints are available: "+evicted+"request TTL expired")
		}
		return answer(429, ReasonTTLExpired, "request timed out in queue: "+evicted+"request TTL expired")
	case EvictedContextCancelled:
		return answer(503, ReasonContextCancelled, "client disconnected: "+evicted+"request context cancelled")
	case RejectedOther:
		return answer(503, ReasonShuttingDown, stopped+rejected+"flow controller is not running")
	case EvictedOther:
		return answer(503, ReasonShuttingDown, stopped+evicted+"flow controller is not running")
	}
	return answer(500, "", "unhandled flow control outcome: "+o.String())
}

// Evicted returns the answer to a running request that is evicted, even in the middle of its response.
func Evicted() *apierror.Error {
	return &apierror.Error{Status: 429, Message: "request evicted by flow control", Reason: ReasonEvicted, Bare: true}
}

// Revocation returns the value of the label outcome of llm_d_epp_flow_control_revocations_total.
func (k EffectKind) Revocation() string {
	return map[EffectKind]string{RevocationConfirmed: "confirmed", RevocationTimedOut: "timed_out"}[k]
}
