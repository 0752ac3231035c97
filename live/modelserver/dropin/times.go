package dropin

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// independent gives every request its own times.
func (r *Result) independent(so *modelserver.ServerOptions) error {
	for _, t := range []struct {
		flag   string
		timing Timing
		to     **dist.Dist
	}{{"time-to-first-token", r.TimeToFirstToken, &so.Prefill},
		{"inter-token-latency", r.InterTokenLatency, &so.TokenTime}} {
		if !t.timing.Set() {
			continue
		}
		d, err := t.timing.dist()
		if err != nil {
			return fmt.Errorf("--%s: %w", t.flag, err)
		}
		*t.to = &d
	}
	return nil
}

// Defaults if the command line gives neither times nor a model of the catalogue.
const (
	defaultTTFT = 100 * machine.Millisecond
	defaultITL  = 20 * machine.Millisecond
)

// steps gives a batching engine its step times: the given times, otherwise the times of the model on an accelerator,
// otherwise constants.
func (r *Result) steps(so *modelserver.ServerOptions) error {
	config := latency.Config{Component: "step"}
	if r.Seed != nil {
		config.Seed = *r.Seed
	}
	hw, err := r.hardware()
	if err != nil {
		return err
	}
	switch {
	case r.TimeToFirstToken.Set() || r.InterTokenLatency.Set() || r.PrefillTimePerToken.Set() ||
		r.PrefillOverhead.Set():
		if err := r.given(&config); err != nil {
			return err
		}
	case hw != nil:
		config.Kind, config.Hardware = latency.KindVLLM, hw
	default:
		config.Kind, config.Constant = latency.KindConstant,
			latency.Constant{TimeToFirstToken: defaultTTFT, InterTokenLatency: defaultITL}
	}
	timer, err := latency.New(config)
	if err != nil {
		return err
	}
	so.Engine.Timer = timer
	if r.TimeFactorUnderLoad > 1 {
		so.Engine.Timer = newUnderLoad(timer, r.TimeFactorUnderLoad, r.Engine.MaxNumSeqs)
	} else if config.Kind == latency.KindConstant && config.Jitter.Factor.IsConstant() {
		so.Engine.Timer = modelserver.NewAdjustable(config.Constant) // the admin API can change it
	}
	if hw == nil {
		if r.Profile == ProfileSGLang && so.Engine.NumGPUBlocks == 0 {
			so.Engine.NumGPUBlocks = sglangTokens / r.Engine.BlockSize
		}
		return nil
	}
	plan, err := hardware.PlanMemory(
		hardware.MemoryConfig{Hardware: hw, BlockSize: r.Engine.BlockSize, GPUMemoryUtilization: r.GPUMemoryUtilization,
			MaxNumSeqs: r.Engine.MaxNumSeqs, MaxNumBatchedTokens: r.Engine.MaxNumBatchedTokens,
			MaxModelLen: max(r.Engine.MaxModelLen, 1), EnforceEager: r.EnforceEager,
			KVBytes: int64(r.KVCacheBytes), HostLimitBytes: int64(r.MemoryLimit),
			SwapSpaceBytes: int64((r.SwapSpaceGiB + r.KVOffloadingGiB/float64(max(1, r.TensorParallel))) * (1 << 30))})
	var oom *hardware.OutOfMemoryError
	if errors.As(err, &oom) && r.RestartOOM {
		so.OutOfMemory = err
		so.Engine.NumGPUBlocks = max(so.Engine.NumGPUBlocks, so.Engine.MaxModelLen, 8192) // the engine never serves
	} else if err != nil {
		return err
	}
	so.Engine.NumGPUBlocks = cmp.Or(so.Engine.NumGPUBlocks, plan.NumGPUBlocks)
	if so.OutOfMemory == nil {
		if err := r.context(so, hw, &plan); err != nil {
			return err
		}
	}
	so.Engine.NumCPUBlocks = max(so.Engine.NumCPUBlocks, plan.NumCPUBlocks)
	so.MemoryBytes = plan.Weights + plan.Activations + plan.Runtime
	so.Engine.KVBytesPerToken = plan.BlockBytes * int64(hw.Group.TP) / int64(max(r.Engine.BlockSize, 1))
	return nil
}

// context chooses the longest sequence if the command line gives none: the model's own context, or as much of it as the
// KV cache holds. With vLLM's profile, --max-model-len auto is needed for the latter. Without it, context returns an
// error, in vLLM's words, because vLLM refuses to start.
func (r *Result) context(so *modelserver.ServerOptions, h *hardware.Hardware, plan *hardware.MemoryPlan) error {
	if r.Engine.MaxModelLen > 0 {
		return nil
	}
	own, fits := h.Model.MaxModelLen, so.Engine.NumGPUBlocks*r.Engine.BlockSize
	own = cmp.Or(own, engineModelLen)
	if own > fits && r.Engine.MaxModelLen == 0 && r.Profile == ProfileVLLM {
		const gib = 1 << 30
		need := plan.BlockBytes * int64((own+r.Engine.BlockSize-1)/r.Engine.BlockSize)
		return fmt.Errorf("--max-model-len: to serve at least one request with the model's max seq len (%d), %.2f "+
			"GiB KV cache is needed, which is larger than the available KV cache memory (%.2f GiB); "+
			"based on the available memory, the estimated maximum model length is %d; increase "+
			"--gpu-memory-utilization, decrease --max-model-len, or set it to auto",
			own, float64(need)/gib, float64(int64(so.Engine.NumGPUBlocks)*plan.BlockBytes)/gib, fits)
	}
	so.Engine.MaxModelLen = min(own, fits)
	return nil
}

// hardware returns the model on its accelerator. It returns nil if the command line names no accelerator and the model
// is not in the catalogue.
func (r *Result) hardware() (*hardware.Hardware, error) {
	n := hardware.Names{Model: r.Model, Accelerator: r.Accelerator, TP: r.TensorParallel,
		DP: r.DataParallel, EP: r.ExpertParallel, Nodes: r.Nodes, Version: r.VLLMVersion, Quantization: r.Quantization,
		KVCacheDType: strings.TrimPrefix(r.KVCacheDType, "auto"), NCCLIBDisable: r.NCCLIBDisable}
	if r.ModelConfig != "" {
		text, err := r.file(r.ModelConfig, modelshape.MaxConfigBytes)
		if err != nil {
			return nil, fmt.Errorf("--model-config: %w", err)
		}
		shape, err := modelshape.ParseConfig(r.ModelConfig, text)
		if err != nil {
			return nil, fmt.Errorf("--model-config: %w", err)
		}
		shape.Name, n.Shape = r.Model, &shape
		n.Accelerator = cmp.Or(r.Accelerator, defaultAccelerator)
	} else if r.Accelerator == "" {
		if _, err := modelshape.Named(r.Model); err != nil || r.Profile == ProfileSim {
			return nil, nil
		}
		n.Accelerator = defaultAccelerator
	}
	h, err := n.Resolve()
	if err != nil {
		return nil, fmt.Errorf("--accelerator: %w", err)
	}
	return h, nil
}

// given makes step times from llm-d-inference-sim's flags.
func (r *Result) given(c *latency.Config) error {
	var ttft, itl, overhead, perToken machine.Time
	if err := errors.Join(spans(spanFlag{"time-to-first-token", r.TimeToFirstToken, &ttft}),
		spans(spanFlag{"inter-token-latency", r.InterTokenLatency, &itl}),
		spans(spanFlag{"prefill-overhead", r.PrefillOverhead, &overhead}),
		spans(spanFlag{"prefill-time-per-token", r.PrefillTimePerToken, &perToken})); err != nil {
		return err
	}
	perTokens := ttft == 0 && (overhead > 0 || perToken > 0)
	switch r.LatencyCalculator {
	case "constant":
		perTokens = false
	case "per-token":
		perTokens, ttft = true, 0
	}
	if perTokens {
		c.Kind = latency.KindPerToken
		c.PerToken = latency.PerToken{Step: engine.ToFixed(max(itl, 1)), PrefillOverhead: engine.ToFixed(overhead),
			PrefillToken: engine.ToFixed(perToken)}
	} else {
		c.Kind, c.Constant = latency.KindConstant, latency.Constant{TimeToFirstToken: ttft, InterTokenLatency: itl}
	}
	for _, t := range []struct {
		timing Timing
		mean   machine.Time
	}{{r.InterTokenLatency, itl}, {r.TimeToFirstToken, ttft}, {r.PrefillOverhead, max(overhead, ttft)}} {
		if t.timing.StdDev == "" || t.mean == 0 {
			continue
		}
		dev, err := parseSpan(t.timing.StdDev)
		if err != nil {
			return fmt.Errorf("standard deviation: %w", err)
		}
		if dev > 0 {
			c.Jitter.Factor, err = dist.ParseUnit(dist.Millionths,
				fmt.Sprintf("normal(1, %.6f, min=0.3, max=1.7)", dev.Seconds()/t.mean.Seconds()))
			return err
		}
	}
	return nil
}

// dist returns a timing as a distribution.
func (t Timing) dist() (dist.Dist, error) {
	mean, err := parseSpan(t.Mean)
	if err != nil {
		return dist.Parse(t.Mean)
	}
	if t.StdDev == "" {
		return dist.Fixed(mean), nil
	}
	dev, err := parseSpan(t.StdDev)
	if err != nil {
		return dist.Dist{}, err
	}
	return dist.Parse(fmt.Sprintf("normal(%s, %s)", mean.Duration(), dev.Duration()))
}

// spanFlag is a flag with one span, and where it goes.
type spanFlag struct {
	flag   string
	timing Timing
	to     *machine.Time
}

// spans parses those flags that are given, up to the first error.
func spans(flags ...spanFlag) error {
	for _, x := range flags {
		if !x.timing.Set() {
			continue
		}
		d, err := parseSpan(x.timing.Mean)
		if err != nil {
			return fmt.Errorf("--%s: %w", x.flag, err)
		}
		*x.to = d
	}
	return nil
}

// parseSpan parses a duration, or a number of milliseconds.
func parseSpan(v string) (machine.Time, error) {
	if ms, err := strconv.ParseFloat(v, 64); err == nil {
		if !(ms >= 0 && ms <= 3.6e6) {
			return 0, wrong(v, "0 to 3600000 milliseconds")
		}
		return machine.Time(math.Round(ms * 1e6)), nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > time.Hour {
		return 0, wrong(v, "milliseconds or a duration up to 1h such as 50ms")
	}
	return machine.FromDuration(d), nil
}
