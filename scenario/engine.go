package scenario

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/core/stream"
)

// Engine is the engine of the pool's server with this index, as the core takes
// it: the same for a live and a virtual run.
func (s *Scenario) Engine(p *Pool, index int) (engine.Config, error) {
	m := &p.ModelServer
	batching, err := engine.ParseBatching(string(m.Batching))
	if err != nil {
		return engine.Config{}, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	c := engine.Config{
		Seed: s.Seed, Index: uint64(index), Batching: batching,
		MaxNumSeqs: m.MaxNumSeqs, MaxNumBatchedTokens: m.MaxNumBatchedTokens, MaxModelLen: m.MaxModelLen,
		BlockSize: m.BlockSize, NumGPUBlocks: m.NumGPUBlocks,
		KVHoldTimeout: p.Disaggregation.holdBlocks(),
	}
	if p.Disaggregation.OnTransferFailure == Recompute {
		c.KVLoadFailure = engine.KVLoadRecompute
	}
	if m.Batching == Independent {
		if c.MaxModelLen == 0 {
			c.MaxModelLen = longestPrompt // there is no KV cache that a prompt could overflow
		}
		return c, nil
	}
	c.KVEvents = m.KVEvents.Published()
	return c, p.stepTimes(&c)
}

// longestPrompt is the most tokens that an engine takes at all.
const longestPrompt = 1 << 24

// stepTimes gives an engine that batches its clock: constants where the
// scenario has them, else what the model takes on the accelerator, whose
// memory then also says how many KV blocks there are.
func (p *Pool) stepTimes(c *engine.Config) error {
	m := &p.ModelServer
	if p.timer == nil {
		config := latency.Config{Kind: latency.KindConstant, Constant: latency.Constant{
			TimeToFirstToken: machine.Time(m.Prefill.Quantile(0.5)), InterTokenLatency: machine.Time(m.InterTokenLatency.Quantile(0.5))}}
		if !m.constant {
			h, err := p.hardware()
			if err != nil {
				return fmt.Errorf("pool %s: %w", p.Name, err)
			}
			config = latency.Config{Hardware: h}
		}
		timer, err := latency.New(config)
		if err != nil {
			return fmt.Errorf("pool %s: %w", p.Name, err)
		}
		p.timer = timer
	}
	c.Timer = p.timer
	if c.NumGPUBlocks > 0 || m.constant {
		return nil
	}
	h, err := p.hardware()
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.Name, err)
	}
	plan, err := latency.PlanMemory(latency.MemoryConfig{Hardware: h, BlockSize: m.BlockSize, MaxNumSeqs: m.MaxNumSeqs,
		MaxNumBatchedTokens: m.MaxNumBatchedTokens, MaxModelLen: m.MaxModelLen})
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.Name, err)
	}
	c.NumGPUBlocks = plan.NumGPUBlocks
	return nil
}

// defaultAccelerator is what a batching model server runs on when the scenario
// does not say.
const defaultAccelerator = "H100"

// hardware is the model on the accelerator whose step times are simulated.
func (p *Pool) hardware() (*latency.Hardware, error) {
	m := &p.ModelServer
	n := latency.HardwareNames{Model: m.Model, Accelerator: m.Accelerator, TP: m.TensorParallelSize}
	if n.Model == "" {
		n.Model = p.Model
	}
	if n.Accelerator == "" {
		n.Accelerator = defaultAccelerator
	}
	return n.Resolve()
}

// checkHardware tells where a model server's times come from, and what is
// wrong with it.
func (s *Scenario) checkHardware(p *Pool, path string) Problems {
	var out Problems
	m := &p.ModelServer
	written := func(field string) bool { return s.where[path+"."+field] != position{} }
	if m.Batching == Independent {
		for _, field := range []string{"model", "accelerator", "tensorParallelSize"} {
			if written(field) {
				out = append(out, s.problem(path+"."+field, "given with batching independent, where each request takes its own prefill and interTokenLatency",
					"batching: continuous, static or none beside it"))
			}
		}
		return out
	}
	m.constant = written("prefill") || written("interTokenLatency")
	if m.constant {
		for _, f := range []struct {
			name string
			dist latency.Dist
		}{{"prefill", m.Prefill}, {"interTokenLatency", m.InterTokenLatency}} {
			if !f.dist.IsConstant() {
				out = append(out, s.problem(path+"."+f.name, fmt.Sprintf("%s with batching %s, where requests share steps", f.dist, m.Batching),
					"one duration, such as 200ms, or neither of prefill and interTokenLatency: the accelerator then tells the times"))
			}
		}
		if written("accelerator") {
			out = append(out, s.problem(path+".accelerator", "given beside prefill or interTokenLatency", "one or the other: both say how long a step takes"))
		}
		return out
	}
	if _, err := p.hardware(); err != nil {
		field := ".model"
		if strings.Contains(err.Error(), "accelerator") {
			field = ".accelerator"
		}
		out = append(out, s.problem(path+field, err.Error(), ""))
	}
	return out
}

// Draws are the random properties of requests at the pool's servers.
func (s *Scenario) Draws(p *Pool) serving.Draws {
	m := &p.ModelServer
	return serving.Draws{Seed: s.Seed, Prefill: m.Prefill, TokenTime: m.InterTokenLatency, OutputTokens: m.OutputTokens}
}

// Stream is what the EPP's streams of a pool share, without a recorder.
func (s *Scenario) Stream(p *Pool) stream.Config {
	c := stream.Config{Hold: p.Flow == Held, MaxBodyBytes: int(p.EPP.MaxBodyBytes), Seed: s.Seed,
		Deadline: machine.FromDuration(p.EPP.Deadline), HoldLimit: machine.FromDuration(p.EPP.HoldLimit),
		MetadataBytes: int(p.EPP.MetadataBytes)}
	if p.EPP.Errors == EPPErrors {
		c.Errors = stream.EPPErrors
	}
	return c
}

// ServerName is what people call the pool's model server with this index.
func (p *Pool) ServerName(index int) string {
	switch {
	case p.Disaggregation.PrefillReplicas == 0:
		return fmt.Sprintf("%s-%d", p.Name, index)
	case p.Prefills(index):
		return fmt.Sprintf("%s-prefill-%d", p.Name, index-p.Replicas)
	}
	return fmt.Sprintf("%s-decode-%d", p.Name, index)
}
