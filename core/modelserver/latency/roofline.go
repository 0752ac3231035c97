package latency

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Roofline computes a step from the model's shape and the accelerator's rates (Williams, Waterman and Patterson, 2009).
// Matrices take the longer of their arithmetic and the reads of their weights, and attention likewise. Added to that
// are the all-reduces of tensor parallelism and a fixed cost per layer. A test checks that it is within 25 % of every
// measured point, with medians below 10 %. Use a table where there is one.
type Roofline struct {
	h hardware.Hardware
	// Of one rank, per second: the rates that kernels reach, not the peak.
	flopRate, byteRate int64
	tokenFLOP          int64 // per token, all layers
	headFLOP           int64 // per sampled token
	headBytes          int64
	denseBytes         int64
	expertBytes        int64 // of one expert in all layers
	kvBytes            int64 // per token of context
	PairFLOP           int64
	contextToken       engine.Fixed // decode attention per token of context
}

// Fixed costs beside the roofline, fitted to step-times.csv: the kernels of one layer that are neither matrices nor
// attention, without CUDA graphs while prompts are computed; and the cost of a whole step (sampling, scheduling that
// does not overlap).
const (
	layerNanoseconds        = 4_000
	layerPrefillNanoseconds = 20_000
	stepNanoseconds         = 150_000
	sampleNanoseconds       = 6_000 // per sampled sequence
)

// NewRoofline checks the hardware and computes its rates.
func NewRoofline(h hardware.Hardware) (*Roofline, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	tp := int64(h.Group.TP)
	r := &Roofline{
		h:          h,
		flopRate:   h.Accelerator.FLOPS(h.Weights.Compute) / 100 * h.Accelerator.ComputePercent,
		byteRate:   h.Accelerator.BandwidthBytes / 100 * h.Accelerator.BandwidthPercent,
		tokenFLOP:  2 * h.Model.TokenParams() / tp,
		headFLOP:   2 * h.Model.HeadParams() / tp,
		headBytes:  2 * h.Model.HeadParams() / tp,
		denseBytes: h.DenseBytes() / tp,
		kvBytes:    h.Model.KVBytesPerTokenRank(h.KV, h.Group.TP),
		PairFLOP:   h.Model.PairFLOP() / tp,
	}
	if h.Model.Experts > 0 {
		r.expertBytes = h.ExpertBytes(h.Model.ExpertLayers()) / int64(h.Group.Ranks())
	}
	read := machine.MulDiv(r.kvBytes, 1e9<<engine.FixedShift, r.byteRate)
	multiply := machine.MulDiv(h.Model.DecodePairFLOP()/tp, 1e9<<engine.FixedShift, r.flopRate)
	r.contextToken = engine.Fixed(max(read, multiply))
	return r, nil
}

// StepTime implements engine.StepTimer.
func (r *Roofline) StepTime(s *engine.Step) engine.Fixed {
	if s.PrefillTokens == 0 {
		return r.decode(int64(s.DecodeSeqs)) + r.contextToken*engine.Fixed(s.DecodeContext)
	}
	ns := r.batch(s.PrefillTokens+int64(s.DecodeSeqs), int64(s.DecodeSeqs+s.PrefillFinished))
	ns += int64(r.h.Model.Layers) * layerPrefillNanoseconds
	attention := machine.MulDiv(s.PrefillPairs, machine.MulDiv(r.PairFLOP, 1e12, r.flopRate), 1000)
	ns += max(attention, machine.MulDiv(s.PrefillContext*r.kvBytes, 1e9, r.byteRate))
	return engine.Fixed(ns)<<engine.FixedShift + r.contextToken*engine.Fixed(s.DecodeContext)
}

// DecodeLine implements engine.StepTimer: the time is linear in the context.
func (r *Roofline) DecodeLine(batch int, context int64) (engine.Line, bool) {
	return engine.Line{Base: r.decode(int64(batch)) + r.contextToken*engine.Fixed(context), Slope: r.contextToken,
		Until: engine.NoKnot}, true
}

func (r *Roofline) decode(batch int64) engine.Fixed {
	return engine.Fixed(r.batch(batch, batch)) << engine.FixedShift
}

// batch returns the time of everything but attention, in nanoseconds.
func (r *Roofline) batch(tokens, sampled int64) int64 {
	ns := int64(stepNanoseconds) + int64(r.h.Model.Layers)*layerNanoseconds + sampled*sampleNanoseconds
	ns += overlap(machine.MulDiv(tokens, machine.MulDiv(r.tokenFLOP, 1e12, r.flopRate), 1000),
		machine.MulDiv(r.denseBytes+r.expertBytes*r.expertsTouched(tokens), 1e9, r.byteRate))
	if sampled > 0 {
		ns += max(machine.MulDiv(sampled*r.headFLOP, 1e9, r.flopRate), machine.MulDiv(r.headBytes, 1e9, r.byteRate))
	}
	return ns + r.communication(tokens, sampled)
}

// overlap returns the time of simultaneous arithmetic and reads: the longer of the two, and a third of the shorter
// where they are about equal, because no kernel hides one behind the other perfectly.
func overlap(a, b int64) int64 {
	if a < b {
		a, b = b, a
	}
	return a + machine.MulDiv(b, b, 3*max(a, 1))
}

// communication returns the time of two all-reduces per layer (after attention and after the feed-forward part) and of
// collecting the logits.
func (r *Roofline) communication(tokens, sampled int64) int64 {
	return communication(&r.h, &r.h.Group, tokens, sampled)
}

func communication(h *hardware.Hardware, g *hardware.Group, tokens, sampled int64) int64 {
	if g.TP < 2 {
		return 0
	}
	return 2*int64(h.Model.Layers)*g.AllReduce(2*tokens*int64(h.Model.Hidden)) +
		g.AllGather(2*sampled*int64(h.Model.Vocab)) + g.Broadcast(broadcastBytes(tokens, sampled))
}

// broadcastBytes returns the size of the leader's message to its ranks: a token id for each token and a scheduling
// record for each sequence.
func broadcastBytes(tokens, sequences int64) int64 { return 8*tokens + 256*sequences + 512 }

// expertsTouched returns the average number of different experts of a layer that a batch visits when tokens choose
// independently: E·(1-(1-k/E)^tokens), in integers.
func (r *Roofline) expertsTouched(tokens int64) int64 {
	experts, active := int64(r.h.Model.Experts), int64(r.h.Model.ActiveExperts)
	if experts == 0 {
		return 0
	}
	const one = 1 << 30
	missed, base := int64(one), one-one*active/experts // probability that an expert is missed
	for n := min(tokens, 1<<20); n > 0; n >>= 1 {
		if n&1 == 1 {
			missed = missed * base >> 30
		}
		base = base * base >> 30
	}
	return max(min(active, experts), (experts*(one-missed)+one/2)>>30)
}

// betweenNodes returns the further time of a step whose collectives cross nodes. Tables and calibrations are of one
// node.
func betweenNodes(h *hardware.Hardware) func(tokens, sampled int64) engine.Fixed {
	if h.Group.Nodes < 2 {
		return func(int64, int64) engine.Fixed { return 0 }
	}
	one := h.Group
	one.Nodes, one.Within = 1, h.Accelerator.Fabric
	return func(tokens, sampled int64) engine.Fixed {
		return engine.Fixed(max(0, communication(h, &h.Group, tokens, sampled)-
			communication(h, &one, tokens, sampled))) << engine.FixedShift
	}
}
