package flowcontrol

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// Message is an input of the Controller.
type Message interface{ message() }

// Arrive is a request that asks to proceed: after its objective and fairness id are known and its body is parsed,
// before candidates are selected. Requests without a body do not arrive here; the real picker lets them pass.
type Arrive struct {
	ID         RequestID
	Priority   int
	FairnessID string
	Bytes      int64        // of its body as received
	Tokens     int64        // of its prompt, for a detector that counts tokens
	TTL        machine.Time // 0 is the configuration's
	Most       machine.Time // longest wait, in addition to the TTL; 0 is no limit
	TTFT       machine.Time // objective for the first token; 0 is none
}

// Gone reports that a request's client left. A waiting request ends with that outcome. For a running one it is Done
// without tokens.
type Gone struct{ ID RequestID }

// Placed reports that a dispatched request was scheduled and that the endpoints' loads include it from now on. Until
// then the machine counts it itself. A driver that never counts in-flight loads need not send it.
type Placed struct{ ID RequestID }

// Done reports the end of a dispatched request, for whatever reason, even if it could not be scheduled. Done or Gone
// must follow every dispatch exactly once. If the endpoints' loads count requests in flight, they must already be
// without it.
type Done struct {
	ID                             RequestID
	PromptTokens, CompletionTokens int64
}

// Pool lists all endpoints' loads in a fixed order. The machine copies the slice.
type Pool struct{ Loads []Load }

// LoadChanged is a new load of one endpoint, by its index in the last Pool.
type LoadChanged struct {
	Endpoint int
	Load     Load
}

// Objectives are the priorities of the pool's objectives. They have bands even before their first request, which counts
// for other bands' ceilings.
type Objectives struct{ Priorities []int }

// Shutdown makes the machine refuse all waiting and arriving requests.
type Shutdown struct{}

func (Arrive) message()      {}
func (Gone) message()        {}
func (Placed) message()      {}
func (Done) message()        {}
func (Pool) message()        {}
func (LoadChanged) message() {}
func (Objectives) message()  {}
func (Shutdown) message()    {}

// EffectKind is an effect's type.
type EffectKind uint8

const (
	Decided             EffectKind = iota // a request leaves flow control: proceed, or answer Refusal
	Evict                                 // end this running request with Evicted(), unless its Done is under way
	RevocationConfirmed                   // an evicted request has ended; for metrics
	RevocationTimedOut                    // an evicted request has not ended in time; for metrics
)

// Effect reports a change, at the time when it was due.
type Effect struct {
	At         machine.Time
	Kind       EffectKind
	ID         RequestID
	Outcome    Outcome // of Decided
	PoolEmpty  bool    // of Decided: the pool had no endpoints
	Priority   int
	FairnessID string
	Bytes      int64        // of Decided: the body's length
	Wait       machine.Time // of Decided: how long it waited; of a revocation: how long it took to end

	// ForPriority is, for Evict, the priority of the band that gets the capacity.
	ForPriority int
}

// Due returns At.
func (e Effect) Due() machine.Time { return e.At }

// Admission describes the request's outcome for people.
func (e *Effect) Admission() string {
	if e.Wait < machine.Millisecond {
		return fmt.Sprintf("flow control: %s at once", e.Outcome)
	}
	return fmt.Sprintf("flow control: %s after %s", e.Outcome, e.Wait)
}

// Refusal returns the answer to the client, nil when the request proceeds.
func (e *Effect) Refusal() *apierror.Error {
	if e.Kind == Evict {
		return Evicted()
	}
	if e.Kind != Decided || e.Outcome == Dispatched {
		return nil
	}
	return e.Outcome.Refusal(e.PoolEmpty)
}
