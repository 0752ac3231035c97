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

// Adjustable is a constant step timer whose times may change while a server runs. A change takes effect with the
// engine's next step.
type Adjustable struct {
	now atomic.Pointer[latency.Constant]
}

// NewAdjustable returns a timer with these times.
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

// Source names where the times come from, for people.
func (a *Adjustable) Source() string { return "constant" }

// Times are the adjustable times of a server: the time for a prompt, and the time for each further token.
type Times struct{ TimeToFirstToken, InterTokenLatency time.Duration }

// Times returns the server's times, and false if they come from an accelerator or a distribution.
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

// SetTimes changes the times from now on. It returns an error if they come from an accelerator.
func (s *Server) SetTimes(t Times) error {
	for _, d := range []time.Duration{t.TimeToFirstToken, t.InterTokenLatency} {
		if d < 0 || d > maxTime {
			return fmt.Errorf("times: expected 0 to %v, got %v", maxTime, d)
		}
	}
	ttft, itl := machine.FromDuration(t.TimeToFirstToken), machine.FromDuration(t.InterTokenLatency)
	if a, ok := s.cfg.Timer.(*Adjustable); ok {
		a.now.Store(&latency.Constant{TimeToFirstToken: ttft, InterTokenLatency: itl})
		// Any message, even an empty one, ends the run of steps that the engine planned with the old times.
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

// SetPrefill gives each prompt a time of its own, between low and high, from now on. It returns an error for a server
// that batches, because there a prompt's time depends on the other work in its steps.
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

// isConstant reports whether every draw has the same value. A nil distribution always draws 0.
func isConstant(d *dist.Dist) bool { return d == nil || d.IsConstant() }

func mean(d *dist.Dist) time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(d.Mean())
}
