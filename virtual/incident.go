package virtual

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/scenario"
)

// happen plays an incident; none happens once all requests have ended.
func (w *world) happen(x *scenario.Incident) {
	if !w.busy() {
		return
	}
	w.tell(x, flow.IncidentBegan)
	if c, ok := x.Control(); ok {
		w.servers[x.Server].control(c)
		if x.For > 0 {
			w.queue.Push(w.now.Add(machine.FromDuration(x.For)), machine.ClassTimer, event{ends, x})
		}
		return
	}
	switch x.What {
	case scenario.RestartSidecar:
		w.restartSidecar(w.servers[x.Server])
	case scenario.LoseIndex:
		w.kv.lose(w)
	}
}

// recover ends an incident.
func (w *world) recover(x *scenario.Incident) {
	if w.busy() {
		w.tell(x, flow.IncidentEnded)
	}
	w.servers[x.Server].control(engine.Control{Op: engine.OpRestart})
}

func (w *world) tell(x *scenario.Incident, step flow.Step) {
	if w.rec != nil {
		w.rec.Record(x.Event(w.now, step, w.servers[x.Server].endpoint))
	}
}

// restartSidecar breaks off what a sidecar serves, and begins with an empty
// memory.
func (w *world) restartSidecar(s *server) {
	serves := s.sidecar.serves()
	for _, p := range serves {
		p.leave("the client left")
		p.r.lost()
	}
	if err := s.sidecar.forget(w.sessions); err != nil {
		panic(fmt.Sprintf("virtual: %v", err)) // the same number was taken before
	}
}
