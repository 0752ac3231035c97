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
	id         RequestID
	seq        uint64 // order of arrival
	flow       *flow
	bytes      int64
	tokens     int64
	arrived    machine.Time
	ttl        machine.Time // while there are endpoints; 0 is for ever
	deadline   machine.Time // end of the TTL
	most       machine.Time // that it waits from its arrival on; 0 is no bound
	rank       machine.Time // by the band's ordering policy
	dispatched uint64       // order of dispatch; 0 while it waits
	placed     bool         // its load is in the endpoints' metrics
	issuedAt   machine.Time // when it was evicted
	credit     float64      // what its eviction is expected to free; > 0 once evicted

	inQueue, inDeadlines, inVictims machine.Handle
}

func (o Ordering) rank(it *item, ttft machine.Time) machine.Time {
	switch {
	case o == EDF:
		return it.deadline
	case o == SLODeadline && ttft > 0:
		return it.arrived.Add(ttft)
	case o == SLODeadline:
		return machine.Never
	}
	return 0
}

// key orders the waiting requests of one band, also across flows.
func (it *item) key() machine.Key { return machine.Key{First: int64(it.rank), Second: it.seq} }

// victimKey is the priority-then-time-eviction-order-policy: the lowest
// priority first, inside it the newest.
func (it *item) victimKey() machine.Key {
	return machine.Key{First: int64(it.flow.band.Priority), Second: ^it.dispatched}
}
