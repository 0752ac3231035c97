package latency

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Constant is the simplest timer: a step that completes prompts takes TimeToFirstToken, every other step
// InterTokenLatency, whatever the batch. Of a prompt in chunks, only the last chunk counts.
type Constant struct {
	TimeToFirstToken, InterTokenLatency machine.Time
}

// StepTime implements engine.StepTimer.
func (c Constant) StepTime(s *engine.Step) engine.Fixed {
	var t machine.Time
	if s.PrefillFinished > 0 {
		t = c.TimeToFirstToken
	}
	if s.DecodeSeqs > 0 {
		t = max(t, c.InterTokenLatency)
	}
	return engine.ToFixed(max(t, 1))
}

// DecodeLine implements engine.StepTimer: a flat line.
func (c Constant) DecodeLine(int, int64) (engine.Line, bool) {
	return engine.Line{Base: engine.ToFixed(max(c.InterTokenLatency, 1)), Until: engine.NoKnot}, true
}

// PerToken is a linear timer, for coefficients calibrated from measurements.
//
//	step = Step + PrefillOverhead (if any prompt) + PrefillToken·new tokens
//	     + DecodeSequence·sequences + ContextToken·(tokens attended to)
type PerToken struct {
	Step            engine.Fixed // every step: the weights are read once
	PrefillOverhead engine.Fixed // added if the step computes any prompt token
	PrefillToken    engine.Fixed
	DecodeSequence  engine.Fixed
	ContextToken    engine.Fixed // per token of context of each decoding sequence
}

// StepTime implements engine.StepTimer.
func (p PerToken) StepTime(s *engine.Step) engine.Fixed {
	t := p.Step + p.PrefillToken*engine.Fixed(s.PrefillTokens) + p.DecodeSequence*engine.Fixed(s.DecodeSeqs) +
		p.ContextToken*engine.Fixed(s.DecodeContext)
	if s.PrefillTokens > 0 {
		t += p.PrefillOverhead
	}
	return max(t, oneNanosecond)
}

// DecodeLine implements engine.StepTimer.
func (p PerToken) DecodeLine(batch int, context int64) (engine.Line, bool) {
	base := p.StepTime(&engine.Step{DecodeSeqs: batch, DecodeContext: context})
	slope := p.ContextToken
	if base == oneNanosecond {
		return engine.Line{Base: base, Until: context + 1}, true // below the least step: the line bends there
	}
	return engine.Line{Base: base, Slope: slope, Until: engine.NoKnot}, true
}

const oneNanosecond = engine.Fixed(1) << engine.FixedShift

// check refuses coefficients that are negative, too large, or faster than the hardware if that is known.
func (p PerToken) check(h *hardware.Hardware) error {
	for _, c := range []struct {
		name  string
		value engine.Fixed
		limit machine.Time
	}{
		{"step", p.Step, 3600 * machine.Second}, {"prefillOverhead", p.PrefillOverhead, 3600 * machine.Second},
		{"prefillToken", p.PrefillToken, machine.Second}, {"decodeSequence", p.DecodeSequence, machine.Second},
		{"contextToken", p.ContextToken, machine.Millisecond},
	} {
		if c.value < 0 || c.value > engine.ToFixed(c.limit) {
			return fmt.Errorf("latency: %s is %s; expected 0 to %s", c.name, c.value.Time().Duration(),
				c.limit.Duration())
		}
	}
	return checkAgainst(p, h, "the coefficient set")
}

// checkAgainst samples a timer over common batches and lengths, and refuses it if it is faster than the hardware
// anywhere.
func checkAgainst(t engine.StepTimer, h *hardware.Hardware, what string) error {
	if h == nil {
		return nil
	}
	longest := int64(h.Model.MaxModelLen)
	for n := int64(1); n <= min(longest, 1<<17); n *= 2 {
		step := hardware.PrefillStep(n)
		if err := h.RefuseFaster(fmt.Sprintf("%s: prefill of %d tokens", what, n), step,
			int64(t.StepTime(step).Time())); err != nil {
			return err
		}
	}
	for batch := int64(1); batch <= 512; batch *= 2 {
		for context := int64(128); context <= min(longest, 1<<14); context *= 2 {
			step := hardware.DecodeStep(batch, context)
			if err := h.RefuseFaster(fmt.Sprintf("%s: decode of %d sequences of %d tokens", what, batch, context), step,
				int64(t.StepTime(step).Time())); err != nil {
				return err
			}
		}
	}
	return nil
}
