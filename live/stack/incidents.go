package stack

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// incidents starts the scenario's incidents, whose times count from now. The function that it returns ends them.
func (s *Pool) incidents(ctx context.Context) (stop func()) {
	var pauses, others []moment
	for i := range s.pool.Incidents {
		x := &s.pool.Incidents[i]
		list := &others
		if x.Kind.Lasts() { // what another incident does may have to wait until a pause is over
			list = &pauses
		}
		*list = append(*list, moment{x.At, x, record.IncidentBegan, func() error { return s.happen(x) }})
		if x.For > 0 {
			*list = append(*list,
				moment{x.At + x.For, x, record.IncidentEnded, func() error { return s.recover(x) }})
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	var paused, done sync.WaitGroup
	paused.Go(func() { s.play(ctx, began, pauses) })
	done.Go(func() { s.play(ctx, began, others) })
	return func() {
		cancel()
		paused.Wait()
		s.releaseAll()
		done.Wait()
	}
}

// moment is when an incident begins or ends.
type moment struct {
	at   time.Duration
	x    *plan.Incident
	step record.Step
	what func() error
}

// play plays moments at their times.
func (s *Pool) play(ctx context.Context, began time.Time, moments []moment) {
	machine.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
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

func (s *Pool) happen(x *plan.Incident) error { return x.Apply(s.pool, victim{s}) }

func (s *Pool) recover(x *plan.Incident) error { return x.Revert(victim{s}) }

// victim lets incidents act on the pool: a plan.Victim.
type victim struct{ s *Pool }

// breaks reports whether an incident of the pool is of such a kind.
func (s *Pool) breaks(of func(plan.IncidentKind) bool) bool {
	return slices.ContainsFunc(s.pool.Incidents, func(x plan.Incident) bool { return of(x.Kind) })
}

// hold stops a part, or lets it continue if it has been stopped.
func (s *Pool) hold(part any, stopped bool, stop func() (release func())) {
	s.holding.Lock()
	defer s.holding.Unlock()
	release := s.held[part]
	switch {
	case stopped && release == nil:
		s.held[part] = stop()
	case !stopped && release != nil:
		release()
		delete(s.held, part)
	}
}

func (s *Pool) releaseAll() {
	s.holding.Lock()
	defer s.holding.Unlock()
	for _, release := range s.held {
		release()
	}
	clear(s.held)
}

// setKilled notes whether an incident has killed a server, and reports whether one had.
func (s *Pool) setKilled(server int, yes bool) (was bool) {
	s.holding.Lock()
	defer s.holding.Unlock()
	was, s.killed[server] = s.killed[server], yes
	return was
}

func (v victim) KillServer(server int) error {
	if v.s.isAbsent(server) {
		return nil
	}
	v.s.hold(server, false, nil)
	v.s.setKilled(server, true)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	v.s.Fleet.Servers()[server].Leave(now)
	if v.s.Pods[server].Sidecar != nil {
		return v.s.Pods[server].RestartSidecar()
	}
	return nil
}

func (v victim) StartServer(server int) error {
	if !v.s.setKilled(server, false) || v.s.isAbsent(server) {
		return nil
	}
	return v.s.Fleet.Servers()[server].Join()
}

func (v victim) PauseServer(server int, stopped bool) {
	v.s.hold(server, stopped, v.s.Fleet.Servers()[server].Hold)
}

func (v victim) PausePicker(replica int, stopped bool) {
	k := v.s.Pickers[replica]
	v.s.hold(k, stopped, k.now().Hold)
}

func (v victim) FalsifyMetrics(server int, yes bool) {
	var f *stats.FakeMetrics
	if yes {
		f = stats.Idle
	}
	v.s.Fleet.Servers()[server].SetFakeMetrics(f)
}

func (v victim) LoseEvents(server int, yes bool) {
	v.s.kv.mu.Lock()
	a := v.s.kv.list[server]
	v.s.kv.mu.Unlock()
	a.mute.Store(yes)
}

func (v victim) JumpClock(time.Duration) error {
	return errors.New("jump-clock happens in virtual time alone; expected another incident, or windtunnel sim")
}

func (v victim) ServerConnections(server int) plan.Connections  { return v.s.lines[server] }
func (v victim) PickerConnections(replica int) plan.Connections { return v.s.Pickers[replica].line }
func (v victim) ClientConnections() plan.Connections            { return v.s.clients }

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
	run.Input(deployment.Evict{Pod: pod, Grace: grace, Replace: run.Scales()})
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
