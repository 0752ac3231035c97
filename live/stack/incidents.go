package stack

import (
	"context"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// incidents starts the scenario's incidents, whose times count from now. The function that it returns ends them.
func (s *Pool) incidents(ctx context.Context) (stop func()) {
	type moment struct {
		at   time.Duration
		x    *plan.Incident
		step record.Step
		what func() error
	}
	var moments []moment
	for i := range s.pool.Incidents {
		x := &s.pool.Incidents[i]
		moments = append(moments, moment{x.At, x, record.IncidentBegan, func() error { return s.happen(x) }})
		if x.For > 0 {
			moments = append(moments,
				moment{x.At + x.For, x, record.IncidentEnded, func() error { return s.recover(x) }})
		}
	}
	if len(moments) == 0 {
		return func() {}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return int(a.at - b.at) })
	ctx, cancel := context.WithCancel(ctx)
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		for _, m := range moments {
			if s.o.moment != nil {
				s.o.moment(ctx, m.step)
			} else {
				pause.For(ctx, time.Until(began.Add(m.at)))
			}
			if ctx.Err() != nil {
				return
			}
			s.record(m.x, m.step, m.what())
		}
	}()
	return func() { cancel(); <-done }
}

// record records that an incident began or ended, or why it did not.
func (s *Pool) record(x *plan.Incident, step record.Step, err error) {
	e := x.Event(s.Now(), step, s.Endpoints[x.Server])
	if err != nil {
		s.o.Log.Error("an incident did not happen", "what", x.Kind, "error", err)
		e.Details = append(e.Details, record.D("reason", err.Error()))
	}
	s.Happens(e)
}

func (s *Pool) happen(x *plan.Incident) error { return x.Begin(s.pool, victim{s}) }

func (s *Pool) recover(x *plan.Incident) error { return x.End(victim{s}) }

// victim lets incidents act on the pool: a plan.Victim.
type victim struct{ s *Pool }

func (v victim) Control(server int, c engine.Control) error {
	x := v.s.Fleet.Servers()[server]
	if c.Op == engine.OpRestart {
		return x.Restart()
	}
	return x.Fail(c)
}

func (v victim) SlowMetrics(server int, delay time.Duration) error {
	return v.s.Fleet.Servers()[server].SlowMetrics(delay)
}

func (v victim) RestartSidecar(server int) error     { return v.s.Pods[server].RestartSidecar() }
func (v victim) LoseTransfers(server int, stay bool) { v.s.Fleet.LoseTransfers(server, stay) }
func (v victim) MendTransfers(server int)            { v.s.Fleet.MendTransfers(server) }
func (v victim) AddServers(index, n int)             { v.s.replicaSets[index].run.Load().Add(n) }

func (v victim) Drain(index, pod int, grace machine.Time) {
	run := v.s.replicaSets[index].run.Load()
	run.Tell(deployment.Evict{Pod: pod, Grace: grace, Replace: run.Scales()})
}

func (v victim) LoseIndexes() {
	for _, k := range v.s.Pickers {
		k.now().Input(epp.LoseIndexes{})
	}
}

func (v victim) StopPicker(replica int)        { v.s.Pickers[replica].kill() }
func (v victim) StartPicker(replica int) error { return v.s.Pickers[replica].revive() }
func (v victim) StopFrontend() error           { return v.s.killFrontend() }
func (v victim) StartFrontend() error          { return v.s.reviveFrontend(v.s.frontend.Addr()) }
