package scenario

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/stream"
)

// Engine is the engine of the pool's server with this index, as the core takes
// it: the same for a live and a virtual run.
func (s *Scenario) Engine(p *Pool, index int) (engine.Config, error) {
	m := p.Server(index)
	batching, err := engine.ParseBatching(string(m.Batching))
	if err != nil {
		return engine.Config{}, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	c := engine.Config{
		Seed: s.Seed, Index: uint64(index), Batching: batching,
		MaxNumSeqs: m.MaxNumSeqs, MaxNumBatchedTokens: m.MaxNumBatchedTokens, MaxModelLen: m.MaxModelLen,
		MaxNewTokens: m.MaxNewTokens,
		BlockSize:    m.BlockSize, NumGPUBlocks: m.NumGPUBlocks, NumCPUBlocks: m.NumCPUBlocks,
		DisableChunkedPrefill: !m.ChunkedPrefill, DisablePrefixCaching: !m.PrefixCaching,
		LongPrefillTokenThreshold: m.LongPrefillTokenThreshold,
		MaxNumPartialPrefills:     m.MaxNumPartialPrefills, MaxLongPartialPrefills: m.MaxLongPartialPrefills,
		ReportSteps: true, // the metrics count them
		// A recorded step is reported when it ends, among the events of that time.
		SingleSteps: m.StepDetail() != lifecycle.NoSteps,
		MaxLoRAs:    m.MaxLoRAs, MaxCPULoRAs: m.MaxCPULoRAs, LoRALoadTime: machine.FromDuration(m.LoRALoadTime),
		LoRAActivateTime: machine.FromDuration(m.LoRAActivateTime),
		KVHoldTimeout:    p.Disaggregation.holdBlocks(),
	}
	if p.Disaggregation.OnTransferFailure == Recompute {
		c.KVLoadFailure = engine.KVLoadRecompute
	}
	if m.SchedulingPolicy == Priority {
		c.Policy = engine.PolicyPriority
	}
	if m.Batching == Independent {
		if c.MaxModelLen == 0 {
			c.MaxModelLen = longestPrompt // there is no KV cache that a prompt could overflow
		}
		return c, nil
	}
	c.KVEvents = m.KVEvents.Published()
	if err := s.steps(p, index, &c); err != nil {
		return c, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	return c, nil
}

// Adapters are the LoRA adapters that the pool's servers know from the start,
// by the numbers that engines know them by.
func (p *Pool) Adapters() map[string]engine.AdapterID {
	out := map[string]engine.AdapterID{}
	for _, name := range p.ModelServer.LoRAAdapters {
		if _, twice := out[name]; !twice {
			out[name] = engine.AdapterID(len(out) + 1)
		}
	}
	return out
}

// longestPrompt is the most tokens that an engine takes at all.
const longestPrompt = 1 << 24

// StepDetail is what of the engines' steps is recorded.
func (m *ModelServer) StepDetail() lifecycle.StepDetail {
	switch m.EngineSteps {
	case WholeSteps:
		return lifecycle.WholeSteps
	case StepPhases:
		return lifecycle.StepPhases
	}
	return lifecycle.NoSteps
}

// Draws are the random properties of requests at such servers.
func (s *Scenario) Draws(m *ModelServer) lifecycle.Draws {
	return lifecycle.Draws{Seed: s.Seed, Prefill: &m.Prefill, TokenTime: &m.InterTokenLatency,
		OutputTokens: &m.OutputTokens}
}

// Stream is what the streams of a replica of a pool's EPP share, without a recorder.
func (s *Scenario) Stream(p *Pool, replica int) stream.Config {
	c := stream.Config{Hold: p.Flow == Held, MaxBodyBytes: int(p.EPP.MaxBodyBytes), Seed: s.Seed,
		BodyIdle: machine.FromDuration(p.EPP.BodyIdleTimeout), BodyTotal: machine.FromDuration(p.EPP.BodyTimeout),
		Deadline: machine.FromDuration(p.EPP.Deadline), HoldLimit: machine.FromDuration(p.EPP.HoldLimit),
		MetadataBytes: int(p.EPP.MetadataBytes)}
	if p.EPP.Errors == EPPErrors {
		c.Errors = stream.EPPErrors
	}
	if len(s.Pools) > 1 {
		c.Told = append(c.Told, flow.D("pool", p.Name))
	}
	if p.EPP.Replicas > 1 {
		c.Told = append(c.Told, flow.D("picker", p.PickerName(replica)))
	}
	return c
}

// PickerName is what people call a replica of the pool's EPP.
func (p *Pool) PickerName(replica int) string { return fmt.Sprintf("%s-epp-%d", p.Name, replica) }

// PickerService is the time that a replica of a pool's EPP takes for each request.
func (s *Scenario) PickerService(pool, replica int) epp.ServiceConfig {
	e := &s.Pools[pool].EPP
	return epp.ServiceConfig{Takes: e.ServiceTime, Workers: e.Workers, Seed: s.PickerSeed(pool, replica)}
}

// PickerSeed is what a replica of a pool's EPP draws from, by their numbers.
func (s *Scenario) PickerSeed(pool, replica int) uint64 {
	if pool == 0 && replica == 0 {
		return s.Seed
	}
	d := machine.NewDraw(s.Seed, "epp", "seed", uint64(pool)<<16|uint64(replica))
	return d.Uint64()
}

// ServerName is what people call the pool's model server with this index.
func (p *Pool) ServerName(index int) string {
	g, number := p.group(index)
	switch {
	case g != nil:
		return fmt.Sprintf("%s-%s-%d", p.Name, g.Name, number)
	case p.Disaggregation.PrefillReplicas == 0:
		return fmt.Sprintf("%s-%d", p.Name, index)
	case p.Prefills(index):
		return fmt.Sprintf("%s-prefill-%d", p.Name, index-p.Decoders())
	}
	return fmt.Sprintf("%s-decode-%d", p.Name, index)
}
