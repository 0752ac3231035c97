package flowcontrol

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
)

// RequestID identifies one request to the machine. The driver chooses it and must not reuse it before its request is
// over. It is not the x-request-id header, which clients may repeat.
type RequestID uint64

// Ordering is the policy that orders the requests of one flow, by its plug-in type.
type Ordering string

// The ordering policies. Requests of equal rank leave in order of arrival.
const (
	FCFS        Ordering = "fcfs-ordering-policy"         // by arrival
	EDF         Ordering = "edf-ordering-policy"          // by the end of the TTL as of arrival; without TTL last
	SLODeadline Ordering = "slo-deadline-ordering-policy" // by arrival + TTFT objective; without one last
)

func (o Ordering) validate() error {
	if o != FCFS && o != EDF && o != SLODeadline {
		return fmt.Errorf("unknown ordering policy %q: use %s, %s or %s", string(o), FCFS, EDF, SLODeadline)
	}
	return nil
}

type item struct {
	itemState
	flow *flow

	inQueue, inDeadlines, inVictims machine.Handle
}

// itemState is the saved part of an item.
type itemState struct {
	ID         RequestID    `json:"id"`
	Seq        uint64       `json:"seq"` // order of arrival
	Priority   int          `json:"priority,omitempty"`
	FairnessID string       `json:"fairness,omitempty"`
	Bytes      int64        `json:"bytes,omitempty"`
	Tokens     int64        `json:"tokens,omitempty"`
	Arrived    machine.Time `json:"arrived"`
	TTL        machine.Time `json:"ttl,omitempty"`        // while there are endpoints; 0 is no limit
	Deadline   machine.Time `json:"deadline,omitempty"`   // end of the TTL
	Most       machine.Time `json:"most,omitempty"`       // longest wait since arrival; 0 is no limit
	Rank       machine.Time `json:"rank,omitempty"`       // by the band's ordering policy
	Dispatched uint64       `json:"dispatched,omitempty"` // order of dispatch; 0 while it waits
	Placed     bool         `json:"placed,omitempty"`     // its load is in the endpoints' metrics
	IssuedAt   machine.Time `json:"issuedAt,omitempty"`   // time of its eviction
	// saturation that its eviction is expected to free; > 0 once evicted
	Credit float64 `json:"credit,omitempty"`
}

func (o Ordering) rank(it *item, ttft machine.Time) machine.Time {
	switch {
	case o == EDF:
		return it.Deadline
	case o == SLODeadline && ttft > 0:
		return it.Arrived.Add(ttft)
	case o == SLODeadline:
		return machine.Never
	}
	return 0
}

// key orders the waiting requests of one band, also across flows.
func (it *item) key() machine.Key { return machine.Key{First: int64(it.Rank), Second: it.Seq} }

// victimKey returns the order of priority-then-time-eviction-order-policy: the lowest priority first, then the newest.
func (it *item) victimKey() machine.Key {
	return machine.Key{First: int64(it.flow.band.Priority), Second: ^it.Dispatched}
}
