package flowcontrol

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
)

// RequestID names one request towards the machine. The driver chooses it and
// must not use it twice while a request has it: not the x-request-id header,
// which clients repeat.
type RequestID uint64

// Ordering is the policy that orders the requests inside one flow, by its
// plug-in type.
type Ordering string

// The ordering policies. Equal ranks leave in order of arrival.
const (
	FCFS        Ordering = "fcfs-ordering-policy"         // arrival
	EDF         Ordering = "edf-ordering-policy"          // the end of the TTL, as it was at arrival; without TTL last
	SLODeadline Ordering = "slo-deadline-ordering-policy" // arrival + the TTFT objective; without one last
)

func (o Ordering) validate() error {
	if o != FCFS && o != EDF && o != SLODeadline {
		return fmt.Errorf("unknown ordering policy %q: use %s, %s or %s", string(o), FCFS, EDF, SLODeadline)
	}
	return nil
}

// item is one request, waiting or running.
type item struct {
	itemState
	flow *flow

	inQueue, inDeadlines, inVictims machine.Handle
}

// itemState is what a saved state has of an item.
type itemState struct {
	ID         RequestID    `json:"id"`
	Seq        uint64       `json:"seq"` // order of arrival
	Priority   int          `json:"priority,omitempty"`
	FairnessID string       `json:"fairness,omitempty"`
	Bytes      int64        `json:"bytes,omitempty"`
	Tokens     int64        `json:"tokens,omitempty"`
	Arrived    machine.Time `json:"arrived"`
	TTL        machine.Time `json:"ttl,omitempty"`        // while there are endpoints; 0 is for ever
	Deadline   machine.Time `json:"deadline,omitempty"`   // end of the TTL
	Most       machine.Time `json:"most,omitempty"`       // longest wait from its arrival on; 0 is no bound
	Rank       machine.Time `json:"rank,omitempty"`       // by the band's ordering policy
	Dispatched uint64       `json:"dispatched,omitempty"` // order of dispatch; 0 while it waits
	Placed     bool         `json:"placed,omitempty"`     // its load is in the endpoints' metrics
	IssuedAt   machine.Time `json:"issuedAt,omitempty"`   // when it was evicted
	Credit     float64      `json:"credit,omitempty"`     // what its eviction is expected to free; > 0 once evicted
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

// victimKey returns the priority-then-time-eviction-order-policy: the lowest
// priority first, inside it the newest.
func (it *item) victimKey() machine.Key {
	return machine.Key{First: int64(it.flow.band.Priority), Second: ^it.Dispatched}
}
