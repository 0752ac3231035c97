package latency

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// Serving computes a step of a vLLM server: the model's arithmetic and reads at the rates that its kernels reach, the
// kernels of each layer beside that, the collectives, and the engine process's own work. The model's shape and the
// accelerator's data sheet give the quantities, and a Calibration gives the rates and the overheads.
type Serving struct {
	token, weights engine.Fixed // arithmetic of a token, and reads of the dense weights
	sample, head   engine.Fixed // the same of the output head
	experts        experts
	context        engine.Fixed // decoding, for each token of context
	pair           int64        // a prompt's attention, for each pair of tokens, in 2^-pairShift ns
	tokenBeside    engine.Fixed // memory-bound kernels and collectives of a token
	step, prefill  engine.Fixed // every step, and every step with a prompt
	sequence       engine.Fixed
	release        hardware.VLLM
	between        func(tokens, sampled int64) engine.Fixed // the further time of collectives between nodes
}

// experts is the part of the mixture of experts. A batch visits count·x/(count+x) different experts of a layer, where x
// is the number of (token, expert) pairs: the experts' popularity is exponentially distributed, because tokens do not
// choose independently.
type experts struct {
	count, active int64
	token         engine.Fixed // arithmetic of a token
	compute, read engine.Fixed // of each visited expert, in all layers
	ranks         int64        // data-parallel ranks whose tokens meet at the experts
	coincidence   int64        // in thousandths
	imbalance     int64        // in thousandths
}

// NewServing computes the rates of a model on an accelerator. Its products are rounded before they are added, so that
// processors with and without fused arithmetic get the same integers. Every step is computed in integers.
func NewServing(h *hardware.Hardware, c *Calibration) (*Serving, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	m, a, g := &h.Model, &h.Accelerator, &h.Group
	blackwell := a.FP4TFLOPS > 0
	choose := func(p, onBlackwell Parameter) float64 {
		if blackwell {
			return c.SI(onBlackwell)
		}
		return c.SI(p)
	}
	rate := func(q modelshape.Quantization) float64 { // FLOP per second
		compute := q.Compute
		if a.FLOPS(compute) == a.FLOPS(modelshape.BF16) {
			compute = modelshape.BF16
		}
		share := map[modelshape.DType]float64{modelshape.BF16: c.SI(Matrix16), modelshape.FP4: c.SI(MatrixFP4),
			modelshape.FP8:  choose(MatrixFP8, MatrixFP8Blackwell),
			modelshape.INT8: choose(MatrixFP8, MatrixFP8Blackwell)}[compute]
		return float64(a.FLOPS(compute)) * share
	}
	bandwidth, tp, ranks := float64(a.BandwidthBytes), float64(g.TP), float64(g.Ranks())
	layers := float64(m.Layers)
	readRate := bandwidth * choose(ReadWeights, ReadWeightsBlackwell)
	attention, feed := h.Weights.Of(modelshape.Attention), h.Weights.Of(modelshape.FeedForward)
	attentionParams, feedParams := float64(m.AttentionParams())/tp, float64(m.FeedForwardParams())/tp
	head := float64(m.HeadParams()) / tp
	bits := func(q modelshape.Quantization) float64 { return float64(q.MilliBits) / 8000 }
	s := &Serving{
		token:   seconds(2*attentionParams/rate(attention) + 2*feedParams/rate(feed)),
		weights: seconds((float64(attentionParams*bits(attention)) + float64(feedParams*bits(feed))) / readRate),
		sample:  seconds(2 * head / rate(modelshape.Quantization{})),
		head:    seconds(2 * head / readRate),
		context: seconds(max(float64(m.KVBytesPerTokenRank(h.KV, g.TP))/(bandwidth*c.SI(ReadKV)),
			float64(m.DecodePairFLOP())/tp/(float64(a.FLOPS(modelshape.BF16))*c.SI(Attention)))),
		pair: int64(float64(m.PairFLOP()) / tp / (float64(a.FLOPS(modelshape.BF16)) * c.SI(Attention)) * 1e9 *
			(1 << pairShift)),
		prefill:  seconds(layers * c.SI(PrefillLayer)),
		sequence: seconds(c.SI(HostSequence)),
		between:  betweenNodes(h), release: h.VLLM,
	}
	if h.VLLM.SlowPrefill {
		s.prefill = seconds(layers * c.SI(PrefillLayerOld))
	}
	host := c.SI(Host)
	if h.VLLM.AsyncScheduling {
		host = float64(host * c.SI(HostAsync))
		s.sequence = seconds(c.SI(HostSequence) * c.SI(HostAsync))
	}
	step := host + float64(layers*c.SI(Layer))
	hidden := 2 * float64(m.Hidden) // bytes
	beside := layers * c.SI(Pointwise) * hidden / bandwidth
	if g.Ranks() > 1 {
		// Custom all-reduces move every rank's part to and from it. Collectives between nodes have their own time.
		step += 2 * layers * c.SI(AllReduce) * float64(g.Within.HopNanoseconds) / 1500
		beside += 2 * layers * 2 * hidden * float64(g.DP) * (ranks - 1) / ranks /
			(float64(g.Within.BytesPerSecond) * c.SI(AllReduceRate))
	}
	if m.Experts > 0 {
		expertLayers := float64(m.ExpertLayers())
		step += float64(expertLayers * c.SI(ExpertLayer))
		s.experts = newExperts(h, c, rate, choose)
	}
	s.step, s.tokenBeside = seconds(step), seconds(beside)
	return s, nil
}

// weightOnlyFLOPS is the peak, in FLOP per second, of the tensor instructions that kernels with 4-bit weights and
// 16-bit arithmetic use: Hopper's, also on Blackwell.
const weightOnlyFLOPS = 989e12

func newExperts(h *hardware.Hardware, c *Calibration, rate func(modelshape.Quantization) float64,
	choose func(p, onBlackwell Parameter) float64) experts {
	m, a, g := &h.Model, &h.Accelerator, &h.Group
	q := h.Weights.Of(modelshape.Experts)
	layers, ranks := float64(m.ExpertLayers()), float64(g.Ranks())
	one := layers * float64(m.ExpertParams()) / ranks // a rank's part of an expert, over all layers
	bytes := one * float64(q.MilliBits) / 8000
	read := bytes / (float64(a.BandwidthBytes) * choose(ReadExperts, ReadExpertsBlackwell))
	flops := rate(q) * choose(ExpertMatrix, ExpertMatrixBlackwell)
	if q.MilliBits < 8000 && (q.Compute != modelshape.FP4 || a.FP4TFLOPS == 0) {
		flops = min(rate(modelshape.Quantization{}), c.SI(Matrix16)*weightOnlyFLOPS) * c.SI(ExpertMatrixWeightOnly)
		read = max(bytes/(float64(a.BandwidthBytes)*choose(ReadWeights, ReadWeightsBlackwell)),
			bytes/c.SI(Dequantize))
	}
	touch := float64(layers * c.SI(TouchExpert))
	e := experts{count: int64(m.Experts), active: int64(m.ActiveExperts), ranks: int64(g.DP),
		token:       seconds(2 * one * float64(m.ActiveExperts) / flops),
		compute:     seconds(2 * one * c.SI(ExpertTile) / flops),
		coincidence: int64(c.SI(Coincidence) * 1000), imbalance: 1000}
	if g.EP && g.Ranks() > 1 {
		touch /= ranks
		e.imbalance = int64(c.SI(Imbalance) * 1000)
	}
	e.read = seconds(read + touch)
	return e
}

func seconds(s float64) engine.Fixed { return engine.FixedNanos(s * 1e9) }

// StepTime implements engine.StepTimer.
func (s *Serving) StepTime(x *engine.Step) engine.Fixed {
	decode := int64(x.DecodeSeqs)
	if x.PrefillTokens == 0 {
		return s.decode(decode) + s.context*engine.Fixed(x.DecodeContext)
	}
	pairs := engine.Fixed(machine.MulDiv(x.PrefillPairs, s.pair, 1<<(pairShift-engine.FixedShift)))
	padded := s.padded(decode)
	prompt := s.padded(decode+x.PrefillTokens) - padded
	return s.batch(padded, prompt, decode+int64(x.PrefillFinished)) + s.prefill + pairs +
		s.context*engine.Fixed(x.DecodeContext) + s.sequence*engine.Fixed(decode)
}

// DecodeLine implements engine.StepTimer: the time is linear in the context.
func (s *Serving) DecodeLine(batch int, context int64) (engine.Line, bool) {
	return engine.Line{Base: s.decode(int64(batch)) + s.context*engine.Fixed(context), Slope: s.context,
		Until: engine.NoKnot}, true
}

func (s *Serving) decode(batch int64) engine.Fixed {
	t := s.sequence*engine.Fixed(batch) + s.batch(s.padded(batch), 0, batch)
	if s.release.GraphSize(int(batch)) == 0 {
		t += s.prefill // as a prompt, without a CUDA graph
	}
	return t
}

// padded returns the tokens that a batch computes: those of the smallest CUDA graph that holds it, whole or piecewise.
func (s *Serving) padded(tokens int64) int64 {
	return max(tokens, int64(s.release.GraphSize(int(tokens))))
}

// batch returns the time of everything but attention.
func (s *Serving) batch(decode, prompt, sampled int64) engine.Fixed {
	tokens := decode + prompt
	t := s.step + s.tokenBeside*engine.Fixed(tokens) + s.between(tokens, sampled)
	t += overlapFixed(s.token*engine.Fixed(tokens), s.weights)
	t += overlapFixed(s.sample*engine.Fixed(sampled), s.head)
	if s.experts.count > 0 {
		t += s.experts.time(decode, prompt)
	}
	return t
}

func (e *experts) time(decode, prompt int64) engine.Fixed {
	tokens := decode*e.ranks + prompt + prompt*(e.ranks-1)*e.coincidence/1000
	const unit = 1024 // of an expert
	pairs := tokens * e.active
	visited := max(e.active*unit, machine.MulDiv(e.count*unit, pairs, e.count+pairs))
	each := func(f engine.Fixed) engine.Fixed { return engine.Fixed(machine.MulDiv(visited, int64(f), unit)) }
	t := overlapFixed(e.token*engine.Fixed(tokens)+each(e.compute), each(e.read))
	return engine.Fixed(machine.MulDiv(int64(t), e.imbalance, 1000))
}

func overlapFixed(a, b engine.Fixed) engine.Fixed { return engine.Fixed(overlap(int64(a), int64(b))) }
