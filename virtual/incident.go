package virtual

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/deployment"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/scenario"
)

// incident is something that happens to a part of a pool.
type incident struct {
	*scenario.Incident
	pool *pool
}

// happen plays an incident; none happens once all requests have ended.
func (x *incident) happen() {
	w, p := x.pool.w, x.pool
	if !w.busy() {
		return
	}
	x.tell(flow.IncidentBegan)
	if c, ok := x.Control(); ok {
		p.servers[x.Server].control(c)
		p.check()
	}
	if x.For > 0 {
		w.queue.Push(w.now.Add(machine.FromDuration(x.For)), machine.ClassTimer, event{ends, x})
	}
	switch x.What {
	case scenario.SlowMetrics:
		p.servers[x.Server].delay = machine.FromDuration(x.Delay)
	case scenario.LoseTransfers:
		p.net.input(enginecore.Break{Of: x.Server, Stay: x.For > 0})
	case scenario.RestartSidecar:
		p.restartSidecar(p.servers[x.Server])
	case scenario.AddServer:
		f := p.fleets[slices.IndexFunc(p.fleets, func(f *fleet) bool { return f.d.Takes(x.Incident) })]
		f.input(deployment.Scale{Replicas: f.m.Status().Wanted + max(1, x.Count)})
	case scenario.DrainServer:
		p.servers[x.Server].drain(x.Incident)
	case scenario.LoseIndex:
		p.kv.lose()
	case scenario.RestartEPP:
		x.restartEPP()
	case scenario.RestartFrontend:
		if p.frontend.kill(); x.For == 0 {
			p.frontend.begin(w)
		}
	}
}

// recover ends an incident.
func (x *incident) recover() {
	if x.pool.w.busy() {
		x.tell(flow.IncidentEnded)
	}
	switch x.What {
	case scenario.RestartFrontend:
		x.pool.frontend.begin(x.pool.w)
	case scenario.RestartEPP:
		x.pool.pickers[x.Replica].revive()
	case scenario.SlowMetrics:
		x.pool.servers[x.Server].delay = 0
	case scenario.LoseTransfers:
		x.pool.net.input(enginecore.Mend{Of: x.Server})
	default:
		x.pool.servers[x.Server].control(x.Undo())
		x.pool.check()
	}
}

func (x *incident) tell(step flow.Step) {
	if w := x.pool.w; w.rec != nil {
		w.rec.Record(x.Event(w.now, step, x.pool.servers[x.Server].endpoint))
	}
}

// restartSidecar breaks off what a sidecar serves, and begins with an empty
// memory.
func (x *pool) restartSidecar(s *server) {
	serves := s.sidecar.serves()
	for _, p := range serves {
		p.leave("the client left")
		p.r.lost()
	}
	if err := s.sidecar.forget(x.sessions); err != nil {
		panic(fmt.Sprintf("virtual: %v", err)) // the same number was taken before
	}
}
