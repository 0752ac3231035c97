package latency

import (
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
)

// Hardware is a model on an accelerator in a tensor parallel group: what the
// roofline computes from, and what tables are checked against.
type Hardware struct {
	Model       Shape
	Accelerator Accelerator
	Group       Group
	Weights     Quantization
	KV          DType
}

// Check tells what is wrong with any of its parts.
func (h *Hardware) Check() error {
	if err := h.Model.Check(); err != nil {
		return err
	}
	if err := h.Accelerator.Check(); err != nil {
		return err
	}
	return h.Group.Check()
}

// WeightBytes is what the weights of one rank take: matrices quantized,
// embedding and output head in 16 bits.
func (h *Hardware) WeightBytes() int64 {
	heads := h.Model.headParams()
	total := h.Model.Params()
	embeddings := 2 * heads
	if h.Model.Tied {
		embeddings = heads
	}
	return ceilDiv(h.Weights.bytes(total-embeddings)+2*embeddings, int64(h.Group.TP))
}

// Bound is the least time that a step can take at the accelerator's peak, and
// the arithmetic that says so.
type Bound struct {
	Nanoseconds int64
	Why         string
}

// Floor is the time of a step with every multiplier busy and every byte read
// at full bandwidth, no overhead and no communication. Nothing real is faster.
func (h *Hardware) Floor(s *engine.Step) Bound {
	tokens := s.PrefillTokens + int64(s.DecodeSeqs)
	sampled := int64(s.PrefillFinished + s.DecodeSeqs)
	tp := int64(h.Group.TP)

	matrix := 2 * h.Model.tokenParams() * tokens
	head := 2 * h.Model.headParams() * sampled
	attention := h.Model.pairFLOP() * (s.PrefillPairs + s.DecodeContext)
	rate := h.Accelerator.flops(h.Weights.Compute)
	compute := mulDiv(matrix+head+attention, 1e9, rate*tp)

	weights := h.Weights.bytes(h.Model.denseParams() + h.touchedLeast(tokens))
	if sampled > 0 {
		weights += 2 * h.Model.headParams()
	}
	cache := h.Model.KVBytesPerTokenRank(h.KV, h.Group.TP) * tp * s.DecodeContext
	memory := mulDiv(weights+cache, 1e9, h.Accelerator.BandwidthBytes*tp)

	if compute >= memory {
		return Bound{compute, fmt.Sprintf("2 × %.4g parameters × %d tokens + attention %.3g = %.4g FLOP, at the peak of %d × %d TFLOP/s (%s, %s) at least %s",
			float64(h.Model.tokenParams()), tokens, float64(attention), float64(matrix+head+attention), tp, rate/1e12, h.Accelerator.Name, h.Weights.Compute, ms(compute))}
	}
	return Bound{memory, fmt.Sprintf("%.4g bytes of weights + %.3g bytes of KV cache to read, at the peak of %d × %.4g TB/s (%s) at least %s",
		float64(weights), float64(cache), tp, float64(h.Accelerator.BandwidthBytes)/1e12, h.Accelerator.Name, ms(memory))}
}

// touchedLeast is the least expert parameters that a batch can read: all
// tokens may choose the same ones.
func (h *Hardware) touchedLeast(tokens int64) int64 {
	if h.Model.Experts == 0 || tokens == 0 {
		return 0
	}
	return h.Model.expertLayers() * int64(h.Model.ActiveExperts) * h.Model.expertParams()
}

// TooFastError is a step time that the hardware cannot reach.
type TooFastError struct {
	What    string // which point or coefficient
	Claimed int64  // nanoseconds
	Bound   Bound
}

// Error shows the claim and the arithmetic against it.
func (e *TooFastError) Error() string {
	return fmt.Sprintf("%s takes %s, which is faster than the hardware: %s; correct the figure, the model, the accelerator or the tensor parallel size",
		e.What, ms(e.Claimed), e.Bound.Why)
}

// refuseFaster compares a claimed step time with the floor.
func (h *Hardware) refuseFaster(what string, s *engine.Step, claimed int64) error {
	if bound := h.Floor(s); claimed < bound.Nanoseconds {
		return &TooFastError{what, claimed, bound}
	}
	return nil
}

// prefillStep is one whole prompt of n tokens alone in a step; decodeStep a
// batch of sequences of equal context.
func prefillStep(n int64) *engine.Step {
	return &engine.Step{PrefillSeqs: 1, PrefillFinished: 1, PrefillTokens: n, PrefillPairs: n * (n + 1) / 2}
}

func decodeStep(batch, context int64) *engine.Step {
	return &engine.Step{DecodeSeqs: int(batch), DecodeContext: batch * context}
}

func ms(ns int64) string {
	d := time.Duration(ns)
	if d >= 10*time.Millisecond {
		d = d.Round(10 * time.Microsecond)
	}
	return d.String()
}
