package dropin

import "github.com/windtunnel/windtunnel/core/modelserver/engine"

// underLoad makes steps longer the more requests share them: the factor is 1 for one request and time-factor-under-load
// for a full batch, and linear in between (llm-d-inference-sim's time-factor-under-load).
type underLoad struct {
	inner interface {
		engine.StepTimer
		Source() string
	}
	extra, seats int64 // factor-1 in millionths; max-num-seqs less one
}

func newUnderLoad(inner interface {
	engine.StepTimer
	Source() string
}, factor float64, maxNumSeqs int) *underLoad {
	return &underLoad{inner, int64((factor - 1) * 1e6), int64(max(maxNumSeqs-1, 1))}
}

// stretch is exact to a millionth, and returns the same on every machine.
func (u *underLoad) stretch(f engine.Fixed, running int) engine.Fixed {
	per := u.extra * min(int64(max(running-1, 0)), u.seats) / u.seats
	return f + f/1e6*engine.Fixed(per) + f%1e6*engine.Fixed(per)/1e6
}

// StepTime implements engine.StepTimer.
func (u *underLoad) StepTime(s *engine.Step) engine.Fixed {
	return u.stretch(u.inner.StepTime(s), s.PrefillSeqs+s.DecodeSeqs)
}

// DecodeLine implements engine.StepTimer. Only a constant line stays exact when it is stretched.
func (u *underLoad) DecodeLine(batch int, context int64) (engine.Line, bool) {
	l, ok := u.inner.DecodeLine(batch, context)
	if !ok || l.Slope != 0 {
		return engine.Line{}, false
	}
	l.Base = u.stretch(l.Base, batch)
	return l, true
}

// Source names where the times come from, for people.
func (u *underLoad) Source() string { return u.inner.Source() + ", longer under load" }
