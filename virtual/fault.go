package virtual

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/scenario"
)

// faultsOf are a pool's faults. Those that happen to a connection or to parts
// of an answer need sockets, and are refused.
func faultsOf(s *scenario.Scenario, p *scenario.Pool) (serving.Faults, error) {
	faults, err := s.Faults(p)
	if err != nil {
		return faults, err
	}
	if len(faults.Rules) > 0 && p.Sidecar == scenario.RoutingSidecar {
		return faults, fmt.Errorf("virtual: pool %s has modelServer.faults behind sidecars; they are played in wall time only (windtunnel run)", p.Name)
	}
	for i, r := range faults.Rules {
		rest := r.Fault
		rest.Status, rest.Delay = 0, 0
		if rest != (serving.Fault{}) || r.Fault.Status != 0 && r.Fault.Status < 400 {
			return faults, fmt.Errorf("virtual: pool %s: modelServer.faults[%d].fault: %q is played in wall time only (windtunnel run); "+
				"virtual time plays status=400 to 599 and delay=DURATION", p.Name, i, p.ModelServer.Faults[i].Fault)
		}
	}
	return faults, nil
}

// reached is told when a request can be read at its model server, which comes
// to it after the delay of a fault.
func (r *request) reached(bytes int) {
	r.payload, r.fault = bytes, r.w.faults.Of(r.ID, r.server.index)
	if r.fault.Delay > 0 {
		r.w.queue.Push(r.w.now.Add(machine.FromDuration(r.fault.Delay)), machine.ClassTimer, event{kind: afterFault, request: r})
		return
	}
	r.taken()
}

// taken is the request at its model server, refused where a fault says so.
func (r *request) taken() {
	switch {
	case r.session.Ended(): // the client left during the delay
	case r.fault.Status != 0:
		r.do(r.session.Rejected(r.w.now, r.fault.Status, fmt.Sprintf("A fault was asked for: status %d.", r.fault.Status)))
	default:
		r.do(r.session.Received(r.w.now, r.payload, r.promptDetail()))
	}
}
