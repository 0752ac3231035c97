package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/scenario"
)

// The actions of people on a running stack. All of them are in the record, and all of them end before Stop
// stops anything.

// errDown refuses an action after the end of the run.
var errDown = errors.New("the run has ended")

// act begins an action. Its context ends with ctx and when Stop begins, which waits for done.
func (s *Stack) act(ctx context.Context) (_ context.Context, done func(), err error) {
	s.acting.Lock()
	defer s.acting.Unlock()
	if s.life.Err() != nil {
		return nil, nil, errDown
	}
	s.acts.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel(); s.acts.Done() }, nil
}

// endActs ends all actions, and refuses new ones.
func (s *Stack) endActs() {
	s.acting.Lock()
	s.end()
	s.acting.Unlock()
	s.acts.Wait()
}

// Happen begins an incident of a pool now, and ends it when its time is over. The error says why it is not possible.
// An incident that is under way when ctx, the run's, ends or Stop begins, is not undone.
func (s *Stack) Happen(ctx context.Context, pool int, x scenario.Incident) error {
	ctx, done, err := s.act(ctx)
	if err != nil {
		return err
	}
	p, i, err := s.beginIncident(pool, &x)
	if err != nil || x.For == 0 {
		done()
		return err
	}
	go func() {
		defer done()
		if pause.For(ctx, x.For) {
			p.record(i, record.IncidentEnded, p.recover(i))
		}
	}()
	return nil
}

func (s *Stack) beginIncident(pool int, x *scenario.Incident) (*Pool, *plan.Incident, error) {
	p, err := s.pool(pool)
	if err != nil {
		return nil, nil, err
	}
	i, err := s.o.Scenario.Incident(pool, x)
	if err == nil {
		err = p.possible(&i)
	}
	if err == nil {
		err = p.happen(&i)
	}
	if err != nil {
		return nil, nil, err
	}
	p.record(&i, record.IncidentBegan, nil)
	return p, &i, nil
}

// possible says why an incident of replicas cannot happen now.
func (s *Pool) possible(x *plan.Incident) error {
	if (x.Kind == plan.AddServer || x.Kind == plan.DrainServer) &&
		slices.ContainsFunc(s.replicaSets, func(r *replicaSet) bool { return r.run.Load() == nil }) {
		return errors.New("the number of servers changes from the first request on, which has not been sent")
	}
	if x.Kind == plan.AddServer && s.pool.Lives {
		r := s.replicaSets[x.Deployment]
		if wanted, places := r.run.Load().Status().Wanted, r.d.Config.Places; wanted+x.Count > places {
			return fmt.Errorf("found %d servers to add to %d; expected at most %d, for which there are places", x.Count,
				wanted, places-wanted)
		}
	}
	if x.Kind.OfServer() && s.isAbsent(x.Server) {
		return fmt.Errorf("found server %s, which has not joined or has left; expected a server that is present",
			s.Endpoints[x.Server])
	}
	return nil
}

// Prefill makes prefills at every server of a pool take between low and high from now on.
func (s *Stack) Prefill(pool int, low, high time.Duration) error {
	return s.change(pool, func(p *Pool) error {
		if p.Fleet == nil {
			return errors.New("the model servers of the pool are external")
		}
		for _, server := range p.Fleet.Servers() {
			if err := server.SetPrefill(low, high); err != nil {
				return err
			}
		}
		return nil
	}, "prefill", record.D("from", low.String()), record.D("to", high.String()))
}

// change makes a change to a pool, and records it.
func (s *Stack) change(pool int, make func(p *Pool) error, what string, details ...record.Detail) error {
	_, done, err := s.act(context.Background())
	if err != nil {
		return err
	}
	defer done()
	p, err := s.pool(pool)
	if err == nil {
		err = make(p)
	}
	if err == nil {
		s.acted(append([]record.Detail{record.D("what", what), record.D("pool", p.Name())}, details...)...)
	}
	return err
}

// More sends more of the scenario's requests, and returns when they have ended.
// Another seed draws their numbers.
func (s *Stack) More(ctx context.Context, rate float64, during time.Duration) error {
	ctx, done, err := s.act(ctx)
	if err != nil {
		return err
	}
	defer done()
	n := int(rate * during.Seconds())
	if !(rate > 0 && rate <= 10_000) || n < 1 || n > 1_000_000 {
		return fmt.Errorf("found %g requests a second for %s; expected more than 0 and up to 10000 a second, and 1 "+
			"to 1000000 requests in all", rate, during)
	}
	more := *s.o.Scenario
	more.Seed += 1_000_003 * uint64(s.loads.Add(1))
	limit := min(n, 1024)
	if err := more.Override(scenario.Overrides{Requests: &n, Rate: &rate, Concurrency: &limit}); err != nil {
		return err
	}
	s.acted(record.D("what", "load"), record.D("rate", rate), record.D("for", during.String()))
	load := more.Load()
	return s.send(ctx, &load)
}

// Configure replaces the configuration of a pool's endpoint pickers. An invalid one is refused, and the old one
// stays.
func (s *Stack) Configure(pool int, text string) error {
	return s.change(pool, func(p *Pool) error {
		if len(p.Pickers) == 0 {
			return errors.New("the pool has no endpoint picker of Windtunnel")
		}
		_, err := p.configure("the page", []byte(text))
		return err
	}, "configure")
}

// Config is the configuration in force of a pool's endpoint pickers.
func (s *Stack) Config(pool int) string {
	p, err := s.pool(pool)
	if err != nil {
		return ""
	}
	p.changing.Lock()
	defer p.changing.Unlock()
	return string(bytes.TrimSpace(p.text))
}

// EndpointStates passes the pickers' current states of their endpoints to each, which must not keep them.
func (s *Stack) EndpointStates(each func(now machine.Time, e *picker.State)) {
	for _, p := range s.Pools {
		if len(p.Pickers) == 0 {
			continue
		}
		p.Pickers[0].now().With(func(m *core.Machine, now machine.Time) {
			view := m.Picker().Pool().View()
			for i := range view.States {
				each(now, &view.States[i])
			}
		})
	}
}

func (s *Stack) pool(n int) (*Pool, error) {
	if n < 0 || n >= len(s.Pools) {
		return nil, fmt.Errorf("found pool %d; expected 0 to %d", n, len(s.Pools)-1)
	}
	return s.Pools[n], nil
}

// acted records an action.
func (s *Stack) acted(details ...record.Detail) {
	s.Happens(record.Event{Hop: record.Client, Step: record.Acted, Details: details})
}

// configure replaces the pickers' configuration by a text that differs from it.
func (s *Pool) configure(file string, text []byte) (changed bool, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if bytes.Equal(text, s.text) {
		return false, nil
	}
	var up []*epp.Standalone
	for _, k := range s.Pickers {
		if !k.down { // one that is down reads it when it restarts
			up = append(up, k.Server())
		}
	}
	if err := epp.Reload(up, file, text); err != nil {
		return false, err
	}
	s.text = text
	return true, nil
}
