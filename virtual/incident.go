package virtual

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/scenario"
)

// A pool without a picker configuration leaves servers out that say three times
// in a row that they are not healthy, as a live run's prober does.
const (
	probeInterval    = 500 * machine.Millisecond
	failureThreshold = 3
)

// happen plays an incident.
func (w *world) happen(x *scenario.Incident) {
	if c, ok := x.Control(); ok {
		w.control(w.servers[x.Server], c)
		if x.For > 0 {
			w.queue.Push(w.now.Add(machine.FromDuration(x.For)), machine.ClassTimer, event{kind: ends, incident: x})
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
	w.control(w.servers[x.Server], engine.Control{Op: engine.OpRestart})
}

// control changes an engine, and lets the picker find out.
func (w *world) control(s *server, c engine.Control) {
	s.dead = c.Op != engine.OpRestart
	s.input(c)
	if w.picker == nil {
		return
	}
	probes := machine.Time(1)
	if s.dead {
		probes = failureThreshold
	}
	next := (w.now/probeInterval + probes) * probeInterval
	w.queue.Push(next, machine.ClassTimer, event{kind: probe, server: s})
}

// probed has the picker know which servers are ready.
func (w *world) probed(s *server) {
	s.unready = s.dead
	w.picker.Endpoints, w.picker.Names = nil, nil
	for _, sv := range w.ready {
		if !sv.unready {
			w.picker.Endpoints, w.picker.Names = append(w.picker.Endpoints, sv.endpoint), append(w.picker.Names, sv.name)
		}
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
