package stack

import (
	"context"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/deployment"
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/scenario"
)

// incidents has happen what the scenario wants to happen, counted from now, and
// returns what ends it.
func (s *Pool) incidents(ctx context.Context) (stop func()) {
	type moment struct {
		at   time.Duration
		x    *scenario.Incident
		step flow.Step
		what func() error
	}
	var moments []moment
	for i := range s.pool.Incidents {
		x := &s.pool.Incidents[i]
		moments = append(moments, moment{x.At, x, flow.IncidentBegan, func() error { return s.happen(ctx, x) }})
		if x.For > 0 {
			moments = append(moments, moment{x.At + x.For, x, flow.IncidentEnded, func() error { return s.recover(x) }})
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
			s.tell(m.x, m.step, m.what())
		}
	}()
	return func() { cancel(); <-done }
}

// tell records that an incident began or ended, or why it did not.
func (s *Pool) tell(x *scenario.Incident, step flow.Step, err error) {
	e := x.Event(s.Now(), step, s.Endpoints[x.Server])
	if err != nil {
		s.o.Log.Error("an incident did not happen", "what", x.What, "error", err)
		e.Details = append(e.Details, flow.D("reason", err.Error()))
	}
	if s.o.Recorder != nil {
		s.o.Recorder.Record(e)
	}
}

func (s *Pool) happen(ctx context.Context, x *scenario.Incident) error {
	if c, ok := x.Control(); ok {
		return s.Fleet.Servers()[x.Server].Fail(c)
	}
	switch x.What {
	case scenario.RestartSidecar:
		now, cancel := context.WithCancel(ctx)
		cancel() // what it serves breaks off
		return s.restartSidecar(now, x.Server)
	case scenario.SlowMetrics:
		return s.Fleet.Servers()[x.Server].SlowMetrics(x.Delay)
	case scenario.LoseTransfers:
		s.Fleet.LoseTransfers(x.Server, x.For > 0)
	case scenario.AddServer:
		for _, f := range s.fleets {
			if f.d.Takes(x) {
				f.driver().Add(max(1, x.Count))
				break
			}
		}
	case scenario.DrainServer:
		for _, f := range s.fleets {
			if pod := x.Server - f.d.First; pod >= 0 && pod < f.d.Places {
				f.driver().Tell(deployment.Evict{Pod: pod, Grace: machine.FromDuration(x.Grace),
					Replace: f.driver().Scales()})
			}
		}
	case scenario.LoseIndex:
		s.loseIndex()
	case scenario.RestartFrontend:
		if err := s.killFrontend(); err != nil || x.For > 0 {
			return err
		}
		return s.reviveFrontend(s.frontend.Addr())
	case scenario.RestartEPP:
		s.Pickers[x.Replica].kill()
		if x.For == 0 {
			return s.Pickers[x.Replica].revive()
		}
	}
	return nil
}

func (s *Pool) recover(x *scenario.Incident) error {
	switch x.What {
	case scenario.RestartFrontend:
		return s.reviveFrontend(s.frontend.Addr())
	case scenario.RestartEPP:
		return s.Pickers[x.Replica].revive()
	case scenario.SlowDown:
		return s.Fleet.Servers()[x.Server].Fail(x.Undo())
	case scenario.SlowMetrics:
		return s.Fleet.Servers()[x.Server].SlowMetrics(0)
	case scenario.LoseTransfers:
		s.Fleet.MendTransfers(x.Server)
		return nil
	}
	return s.Fleet.Servers()[x.Server].Restart()
}

// loseIndex empties the picker's indexes of KV blocks.
func (s *Pool) loseIndex() {
	for _, k := range s.Pickers {
		k.now().Input(epp.LoseIndexes{})
	}
}
