package latency

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// InferenceSim is the roofline of inference-sim (BLIS), at commit f90a1e3 of github.com/inference-sim/inference-sim,
// with the utilization of the arithmetic units that its hardware_config.json has for prompts and for decoding. A step
// takes the longer of two times: its arithmetic at that share of the peak, and its bytes at the full bandwidth. There
// are no launches and no communication. inference-sim's model of a layer counts two matrices of the feed-forward part;
// InferenceSim counts all parameters.
type InferenceSim struct {
	r               *Roofline
	prefill, decode int64        // FLOP per second of one rank
	bandwidth       int64        // bytes per second of one rank
	multiply, read  engine.Fixed // per token of context of a decode
}

// utilisation maps accelerators to the percentage of peak arithmetic that inference-sim assumes.
var utilisation = map[string]struct{ prefill, decode int64 }{"H100": {45, 30}, "A100-80GB": {38, 18}, "L40S": {32, 8}}

// NewInferenceSim computes the rates. It returns an error if inference-sim has none for this accelerator.
func NewInferenceSim(h *hardware.Hardware) (*InferenceSim, error) {
	part, ok := utilisation[h.Accelerator.Name]
	if !ok {
		return nil, fmt.Errorf("inference-sim has no utilisation of %s; expected H100, A100-80GB or L40S, or another "+
			"source", h.Accelerator.Name)
	}
	r, err := NewRoofline(*h)
	if err != nil {
		return nil, err
	}
	peak := h.Accelerator.FLOPS(h.Weights.Compute) / 100
	t := &InferenceSim{r: r, prefill: peak * part.prefill, decode: peak * part.decode,
		bandwidth: h.Accelerator.BandwidthBytes}
	t.multiply = engine.Fixed(machine.MulDiv(r.PairFLOP, 1e9<<engine.FixedShift, t.decode))
	t.read = engine.Fixed(machine.MulDiv(r.kvBytes, 1e9<<engine.FixedShift, t.bandwidth))
	return t, nil
}

// StepTime implements engine.StepTimer.
func (t *InferenceSim) StepTime(s *engine.Step) engine.Fixed {
	compute, memory := t.parts(s)
	return max(compute, memory, oneNanosecond)
}

// parts returns the times of a step's arithmetic and of its reads.
func (t *InferenceSim) parts(s *engine.Step) (compute, memory engine.Fixed) {
	batch := int64(s.DecodeSeqs)
	sampled := batch + int64(s.PrefillFinished)
	arithmetic := func(tokens, sampled, rate int64) int64 {
		return machine.MulDiv(tokens, machine.MulDiv(t.r.tokenFLOP, 1e12, rate), 1000) +
			machine.MulDiv(sampled, machine.MulDiv(t.r.headFLOP, 1e12, rate), 1000)
	}
	ns := arithmetic(batch, batch, t.decode) + arithmetic(s.PrefillTokens, int64(s.PrefillFinished), t.prefill)
	ns += machine.MulDiv(s.PrefillPairs, machine.MulDiv(t.r.PairFLOP, 1e12, t.prefill), 1000)
	compute = engine.Fixed(ns)<<engine.FixedShift + t.multiply*engine.Fixed(s.DecodeContext)
	bytes := t.r.denseBytes + t.r.expertBytes*t.r.expertsTouched(s.PrefillTokens+batch)
	if sampled > 0 {
		bytes += t.r.headBytes
	}
	bytes += t.r.kvBytes * s.PrefillContext
	return compute, engine.Fixed(machine.MulDiv(bytes, 1e9, t.bandwidth))<<engine.FixedShift +
		t.read*engine.Fixed(s.DecodeContext)
}

// DecodeLine implements engine.StepTimer. It has one knot, where arithmetic and reads take equally long.
func (t *InferenceSim) DecodeLine(batch int, context int64) (engine.Line, bool) {
	compute, memory := t.parts(&engine.Step{DecodeSeqs: batch, DecodeContext: context})
	line, other := engine.Line{Base: compute, Slope: t.multiply, Until: engine.NoKnot},
		engine.Line{Base: memory, Slope: t.read, Until: engine.NoKnot}
	if memory > compute || memory == compute && t.read > t.multiply {
		line, other = other, line
	}
	if other.Slope > line.Slope {
		// The first context at which the other time is longer.
		line.Until = context + int64((line.Base-other.Base)/(other.Slope-line.Slope)) + 1
	}
	return line, true
}
