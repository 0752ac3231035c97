package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/scenario"
)

// What somebody may do to a stack while it is up. All of it is in the record.

// Happen has an incident happen now to a pool, and end when its time is over. The
// error says why it cannot. ctx is the stack's: when it ends nothing is undone any more.
func (s *Stack) Happen(ctx context.Context, pool int, x scenario.Incident) error {
	p, err := s.pool(pool)
	if err != nil {
		return err
	}
	if err := s.o.Scenario.CheckIncident(p.pool, &x); err != nil {
		return err
	}
	p.tell(&x, flow.IncidentBegan, p.happen(ctx, &x))
	if x.For > 0 {
		go func() {
			if pause.For(ctx, x.For) {
				p.tell(&x, flow.IncidentEnded, p.recover(&x))
			}
		}()
	}
	return nil
}

// More sends more of the scenario's requests, and returns when they have ended.
// They have numbers of their own, of another seed.
func (s *Stack) More(ctx context.Context, rate float64, during time.Duration) error {
	n := int(rate * during.Seconds())
	if !(rate > 0 && rate <= 10_000) || n < 1 || n > 1_000_000 {
		return fmt.Errorf("found %g requests a second for %s; expected more than 0 and up to 10000 a second, and 1 to 1000000 requests in all", rate, during)
	}
	more := *s.o.Scenario
	more.Seed += 1_000_003 * uint64(s.loads.Add(1))
	limit := min(n, 1024)
	if err := more.Override(scenario.Overrides{Requests: &n, Rate: &rate, Concurrency: &limit}); err != nil {
		return err
	}
	s.acted(flow.D("what", "load"), flow.D("rate", rate), flow.D("for", during.String()))
	return s.send(ctx, &more)
}

// Configure makes another text the configuration of a pool's endpoint pickers. A bad
// one is refused, and the old one stays.
func (s *Stack) Configure(pool int, text string) error {
	p, err := s.pool(pool)
	if err != nil {
		return err
	}
	if len(p.Pickers) == 0 {
		return errors.New("the endpoint picker is somebody else's")
	}
	if _, err := p.configure("the page", []byte(text)); err != nil {
		return err
	}
	s.acted(flow.D("what", "configure"), flow.D("pool", p.Name()))
	return nil
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

// EndpointStates hands out what pickers know of their endpoints now. each must not keep it.
func (s *Stack) EndpointStates(each func(now machine.Time, e *picker.State)) {
	for _, p := range s.Pools {
		if len(p.Pickers) == 0 || p.Pickers[0].now() == nil {
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

// acted records that somebody did something.
func (s *Stack) acted(details ...flow.Detail) {
	if s.o.Recorder != nil {
		s.o.Recorder.Record(flow.Event{Time: s.Now(), Hop: flow.Client, Step: flow.Acted, Details: details})
	}
}

// configure makes a text the pickers' configuration, if it is another one.
func (s *Pool) configure(file string, text []byte) (changed bool, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if bytes.Equal(text, s.text) {
		return false, nil
	}
	made := make([]*epp.Generation, 0, len(s.Pickers))
	up := slices.DeleteFunc(slices.Clone(s.Pickers), func(k *Picker) bool { return k.down }) // who restarts reads it then
	for _, k := range up {
		g, err := s.generation(k, &scenario.PickerConfig{File: file, Text: text})
		if err != nil {
			for _, g := range made {
				g.Close()
			}
			return false, err
		}
		made = append(made, g)
	}
	s.text = text
	for i, k := range up {
		k.generations.Replace(made[i])
	}
	return true, nil
}
