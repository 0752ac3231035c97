package flowcontrol

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// Message is what the driver reports the machine.
type Message interface{ message() }

// Arrive is a request that asks to go on: after its objective and fairness id
// are known and its body has been parsed, before candidates are looked for.
// Requests without a body are not announced; the real picker lets them pass.
type Arrive struct {
	ID         RequestID
	Priority   int
	FairnessID string
	Bytes      int64        // of its body as it came
	Tokens     int64        // of its prompt, for a detector that counts tokens
	TTL        machine.Time // 0 is the configuration's
	Most       machine.Time // that it waits, whatever the configuration says; 0 is no bound
	TTFT       machine.Time // objective for the first token; 0 is none
}

// Gone is a request whose client has left. If it waits, that is how it ends;
// if it runs, it is Done without tokens.
type Gone struct{ ID RequestID }

// Placed says that a dispatched request has been scheduled and that the
// endpoints' loads contain it from now on. Until then the machine counts it
// itself. A driver that never counts in-flight loads need not send it.
type Placed struct{ ID RequestID }

// Done says that a dispatched request is over, however it ended, also when it
// could not be scheduled. It must follow every dispatch exactly once (or
// Gone); with the endpoint's load already lower if that counts in-flight
// requests.
type Done struct {
	ID                             RequestID
	PromptTokens, CompletionTokens int64
}

// Pool is all endpoints and their loads, in a fixed order. The slice is
// copied.
type Pool struct{ Loads []Load }

// LoadChanged is a new load of one endpoint, by its place in the last Pool.
type LoadChanged struct {
	Endpoint int
	Load     Load
}

// Objectives are the priorities of the pool's objectives. They have bands
// even before their first request, which counts for the ceilings of others.
type Objectives struct{ Priorities []int }

// Shutdown ends the machine: what waits and what still arrives is refused.
type Shutdown struct{}

func (Arrive) message()      {}
func (Gone) message()        {}
func (Placed) message()      {}
func (Done) message()        {}
func (Pool) message()        {}
func (LoadChanged) message() {}
func (Objectives) message()  {}
func (Shutdown) message()    {}

// EffectKind says what happened.
type EffectKind uint8

// The kinds of effects.
const (
	Decided             EffectKind = iota // a request's time in flow control is over: go on, or answer Refusal
	Evict                                 // end this running request with Evicted(); it may cross with its Done
	RevocationConfirmed                   // an evicted request is over; for metrics
	RevocationTimedOut                    // it should be over by now; for metrics
)

// Effect is what happened, at the time that it was due.
type Effect struct {
	At         machine.Time
	Kind       EffectKind
	ID         RequestID
	Outcome    Outcome // of Decided
	PoolEmpty  bool    // of Decided: the pool had no endpoints
	Priority   int
	FairnessID string
	Bytes      int64        // of Decided: the body's
	Wait       machine.Time // of Decided: how long it waited; of a revocation: how long its end took

	// ForPriority is, for Evict, the priority that takes the room.
	ForPriority int
}

// Due is At.
func (e Effect) Due() machine.Time { return e.At }

// Admission says in words what flow control did with a request.
func (e *Effect) Admission() string {
	if e.Wait < machine.Millisecond {
		return fmt.Sprintf("flow control: %s at once", e.Outcome)
	}
	return fmt.Sprintf("flow control: %s after %s", e.Outcome, e.Wait)
}

// Refusal returns the answer that the effect asks for, nil when the request goes on.
func (e *Effect) Refusal() *apierror.Error {
	if e.Kind == Evict {
		return Evicted()
	}
	if e.Kind != Decided || e.Outcome == Dispatched {
		return nil
	}
	return e.Outcome.Refusal(e.PoolEmpty)
}
