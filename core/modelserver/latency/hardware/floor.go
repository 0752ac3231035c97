package hardware

import (
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// Hardware is a model on an accelerator in a tensor-parallel group. The roofline computes from it, and tables are
// checked against it.
type Hardware struct {
	Model       modelshape.Shape
	Accelerator Accelerator
	Group       Group
	Weights     modelshape.Quantization
	KV          modelshape.DType
	VLLM        VLLM
}

// Check returns an error if any part is invalid.
func (h *Hardware) Check() error {
	if err := h.Model.Check(); err != nil {
		return err
	}
	if err := h.Accelerator.Check(); err != nil {
		return err
	}
	if h.Group.EP && h.Model.Experts == 0 {
		return fmt.Errorf("model %q has no experts, and expert parallelism is enabled; drop it", h.Model.Name)
	}
	return h.Group.Check()
}

// DenseBytes returns the size of the matrices that every token visits, over all layers and all ranks of an engine,
// without embedding and output head.
func (h *Hardware) DenseBytes() int64 {
	return h.Weights.Of(modelshape.Attention).Bytes(h.Model.AttentionParams()) +
		h.Weights.Of(modelshape.FeedForward).Bytes(h.Model.FeedForwardParams())
}

// ExpertBytes returns the size of n experts of one layer.
func (h *Hardware) ExpertBytes(n int64) int64 {
	return h.Weights.Of(modelshape.Experts).Bytes(n * h.Model.ExpertParams())
}

// WeightBytes returns the size of one rank's weights: its share of an engine's matrices, with embedding and output head
// in 16 bits, and of the group's experts.
func (h *Hardware) WeightBytes() int64 {
	embeddings := 2 * h.Model.HeadParams()
	if !h.Model.Tied {
		embeddings *= 2
	}
	tp, ranks, experts := int64(h.Group.TP), int64(h.Group.Ranks()), int64(h.Model.Experts)
	layer := (h.ExpertBytes(experts) + ranks - 1) / ranks
	if h.Group.EP {
		layer = h.ExpertBytes((experts + ranks - 1) / ranks)
	}
	return (h.DenseBytes()+embeddings+tp-1)/tp + h.Model.ExpertLayers()*layer
}

// Bound is the least duration of a step at the accelerator's peak, with the arithmetic that proves it.
type Bound struct {
	Nanoseconds int64
	Why         string
}

// demand is the least that a step must compute and read, with the nanoseconds that each takes at the peak.
type demand struct {
	tokens, attention, flop int64
	weights, cache          int64 // bytes
	compute, memory         int64 // ns
}

func (h *Hardware) demand(s *engine.Step) demand {
	sampled := int64(s.PrefillFinished + s.DecodeSeqs)
	tp, dp := int64(h.Group.TP), int64(h.Group.DP)
	d := demand{tokens: s.PrefillTokens + int64(s.DecodeSeqs),
		attention: h.Model.PairFLOP()*s.PrefillPairs + h.Model.DecodePairFLOP()*s.DecodeContext}
	touched := h.touchedLeast(d.tokens) // experts times layers, which all engines' ranks share
	flop := func(part modelshape.Parts, n int64) {
		d.flop += n
		d.compute += machine.MulDiv(n, 1e9, h.Accelerator.FLOPS(h.Weights.Of(part).Compute)*tp)
	}
	flop(modelshape.Attention, 2*h.Model.AttentionParams()*d.tokens)
	flop(modelshape.FeedForward, 2*h.Model.FeedForwardParams()*d.tokens)
	flop(modelshape.Experts, 2*(h.Model.TokenParams()-h.Model.DenseParams())*d.tokens/dp)
	// Kernels may compute attention itself and the output head in the narrowest type.
	flop(0, 2*h.Model.HeadParams()*sampled+d.attention)
	d.weights = h.DenseBytes() + h.ExpertBytes(touched)/dp
	if sampled > 0 {
		d.weights += 2 * h.Model.HeadParams()
	}
	d.cache = h.Model.KVBytesPerTokenRank(h.KV, h.Group.TP) * tp * s.DecodeContext
	d.memory = machine.MulDiv(d.weights+d.cache, 1e9, h.Accelerator.BandwidthBytes*tp)
	return d
}

// Floor returns the time of a step with every multiplier busy and every byte read at full bandwidth, without overhead
// or communication. No real step is faster.
func (h *Hardware) Floor(s *engine.Step) Bound {
	d := h.demand(s)
	if d.compute >= d.memory {
		return Bound{d.compute, fmt.Sprintf(
			"2 × %.4g parameters × %d tokens + attention %.3g = %.4g FLOP, at the peak of %d × %d TFLOP/s (%s, %s) "+
				"at least %s",
			float64(h.Model.TokenParams()), d.tokens, float64(d.attention), float64(d.flop), h.Group.TP,
			h.Accelerator.FLOPS(h.Weights.Compute)/1e12, h.Accelerator.Name, h.Weights.Compute, Round(d.compute))}
	}
	return Bound{d.memory, fmt.Sprintf(
		"%.4g bytes of weights + %.3g bytes of KV cache to read, at the peak of %d × %.4g TB/s (%s) at least %s",
		float64(d.weights), float64(d.cache), h.Group.TP, float64(h.Accelerator.BandwidthBytes)/1e12,
		h.Accelerator.Name, Round(d.memory))}
}

// Usage returns the utilization of the accelerators in a step of that many nanoseconds, in thousandths of their peak
// arithmetic and of their memory bandwidth (model FLOP and bandwidth utilization, MFU and MBU).
func (h *Hardware) Usage(s *engine.Step, nanoseconds int64) (compute, bandwidth int) {
	d := h.demand(s)
	return int(machine.MulDiv(d.compute, 1000, max(nanoseconds, 1))),
		int(machine.MulDiv(d.memory, 1000, max(nanoseconds, 1)))
}

// touchedLeast returns the least experts that a batch can read, over all layers: all tokens may choose the same.
func (h *Hardware) touchedLeast(tokens int64) int64 {
	if tokens == 0 {
		return 0
	}
	return h.Model.ExpertLayers() * int64(h.Model.ActiveExperts)
}

// TooFastError reports a step time that the hardware cannot reach.
type TooFastError struct {
	What    string // the point or coefficient
	Claimed int64  // nanoseconds
	Bound   Bound
}

// Error returns the claim and the arithmetic against it.
func (e *TooFastError) Error() string {
	return fmt.Sprintf("%s takes %s, which is faster than the hardware: %s; correct the figure, the model, the "+
		"accelerator or the tensor parallel size",
		e.What, Round(e.Claimed), e.Bound.Why)
}

// RefuseFaster returns an error if a claimed step time is below the floor.
func (h *Hardware) RefuseFaster(what string, s *engine.Step, claimed int64) error {
	if d := h.demand(s); claimed < max(d.compute, d.memory) {
		return &TooFastError{what, claimed, h.Floor(s)}
	}
	return nil
}

// PrefillStep returns a step with one whole prompt of n tokens alone.
func PrefillStep(n int64) *engine.Step {
	return &engine.Step{PrefillSeqs: 1, PrefillFinished: 1, PrefillTokens: n, PrefillPairs: n * (n + 1) / 2}
}

// DecodeStep returns a step with a batch of sequences of equal context.
func DecodeStep(batch, context int64) *engine.Step {
	return &engine.Step{DecodeSeqs: int(batch), DecodeContext: batch * context}
}

// Round formats nanoseconds with a readable number of digits.
func Round(ns int64) string {
	d := time.Duration(ns)
	if d >= 10*time.Millisecond {
		d = d.Round(10 * time.Microsecond)
	}
	return d.String()
}
