package modelserver

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// Adjustable is a constant step timer whose times may be changed while a
// server runs. A change counts from the engine's next step on.
type Adjustable struct {
	now atomic.Pointer[latency.Constant]
}

// NewAdjustable is a timer with these times.
func NewAdjustable(c latency.Constant) *Adjustable {
	a := new(Adjustable)
	a.now.Store(&c)
	return a
}

// StepTime implements engine.StepTimer.
func (a *Adjustable) StepTime(s *engine.Step) engine.Fixed { return a.now.Load().StepTime(s) }

// DecodeLine implements engine.StepTimer.
func (a *Adjustable) DecodeLine(batch int, context int64) (engine.Line, bool) {
	return a.now.Load().DecodeLine(batch, context)
}

// Source says where the times come from, for people.
func (a *Adjustable) Source() string { return "constant" }

// Times are what a server's clock can be set to: how long a prompt takes, and
// each further token.
type Times struct{ TimeToFirstToken, InterTokenLatency time.Duration }

// Times is what the server's clock is set to; false where its times come from
// an accelerator or a distribution.
func (s *Server) Times() (Times, bool) {
	if a, ok := s.cfg.Timer.(*Adjustable); ok {
		c := a.now.Load()
		return Times{c.TimeToFirstToken.Duration(), c.InterTokenLatency.Duration()}, true
	}
	d := s.draws.Load()
	if s.cfg.Batching == engine.BatchingIndependent && isConstant(d.Prefill) && isConstant(d.TokenTime) {
		return Times{mean(d.Prefill), mean(d.TokenTime)}, true
	}
	return Times{}, false
}

const maxTime = time.Hour

// SetTimes changes them from now on. It is an error where they come from an
// accelerator.
func (s *Server) SetTimes(t Times) error {
	for _, d := range []time.Duration{t.TimeToFirstToken, t.InterTokenLatency} {
		if d < 0 || d > maxTime {
			return fmt.Errorf("times: expected 0 to %v, got %v", maxTime, d)
		}
	}
	ttft, itl := machine.FromDuration(t.TimeToFirstToken), machine.FromDuration(t.InterTokenLatency)
	if a, ok := s.cfg.Timer.(*Adjustable); ok {
		a.now.Store(&latency.Constant{TimeToFirstToken: ttft, InterTokenLatency: itl})
		// A message, even about nothing, ends the run of steps that was laid out
		// with the old times.
		s.engine.Send(enginecore.Look{})
		return nil
	}
	if s.cfg.Batching != engine.BatchingIndependent {
		return fmt.Errorf("the server's step times come from an accelerator or from coefficients, and cannot be set")
	}
	d := *s.draws.Load()
	prefill, token := dist.Fixed(ttft), dist.Fixed(itl)
	d.Prefill, d.TokenTime = &prefill, &token
	s.draws.Store(&d)
	return nil
}

// SetPrefill has each prompt take a time of its own from low to high from now on. It is an
// error where servers batch: there it depends on what else they compute.
func (s *Server) SetPrefill(low, high time.Duration) error {
	if low < 0 || high < low || high > maxTime {
		return fmt.Errorf("prefill: found %v to %v; expected a range from 0 to %v", low, high, maxTime)
	}
	if s.cfg.Batching != engine.BatchingIndependent {
		return errors.New("a prompt's time comes from the steps of a server that batches; slow-down makes them longer")
	}
	d := *s.draws.Load()
	prefill := dist.Between(machine.FromDuration(low), machine.FromDuration(high))
	d.Prefill = &prefill
	s.draws.Store(&d)
	return nil
}

// isConstant tells whether every draw is the same; what is not set is 0.
func isConstant(d *dist.Dist) bool { return d == nil || d.IsConstant() }

func mean(d *dist.Dist) time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(d.Mean())
}
