package scenario

import (
	"cmp"
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
)

// engine returns the engine's configuration of the pool's server with this index, for a live and a virtual run.
func (s *Scenario) engine(p *Pool, d *Deployment, index int) (engine.Config, error) {
	m := d.server
	batching, err := engine.ParseBatching(string(m.Batching))
	if err != nil {
		return engine.Config{}, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	c := engine.Config{
		Seed: s.Seed, Index: uint64(index), Batching: batching,
		MaxNumSeqs: m.MaxNumSeqs, MaxNumBatchedTokens: m.MaxNumBatchedTokens, MaxModelLen: max(0, int(m.MaxModelLen)),
		MaxNewTokens: m.MaxNewTokens,
		BlockSize:    m.BlockSize, NumGPUBlocks: m.NumGPUBlocks, NumCPUBlocks: m.NumCPUBlocks,
		DisableChunkedPrefill: !m.ChunkedPrefill, DisablePrefixCaching: !m.PrefixCaching,
		LongPrefillTokenThreshold: m.LongPrefillTokenThreshold,
		MaxNumPartialPrefills:     m.MaxNumPartialPrefills, MaxLongPartialPrefills: m.MaxLongPartialPrefills,
		ReportSteps: true, // for the metrics
		// A recorded step is reported when it ends, among the events of that time.
		SingleSteps: m.stepDetail() != lifecycle.NoSteps,
		LoRAs: engine.LoRAs{MaxLoRAs: m.MaxLoRAs, MaxCPULoRAs: m.MaxCPULoRAs,
			LoRALoadTime:     machine.FromDuration(m.LoRALoadTime),
			LoRAActivateTime: machine.FromDuration(m.LoRAActivateTime)},
		KVHoldTimeout: machine.FromDuration(p.Disaggregation.HoldBlocks),
	}
	if p.Disaggregation.OnTransferFailure == Recompute {
		c.KVLoadFailure = engine.KVLoadRecompute
	}
	if m.SchedulingPolicy == Priority {
		c.Policy = engine.PolicyPriority
	}
	if m.Batching == Independent {
		c.MaxModelLen = cmp.Or(c.MaxModelLen, longestPrompt) // there is no KV cache that a prompt could overflow
		return c, nil
	}
	c.KVEvents = m.KVEvents.Published()
	if err := s.steps(p, d, index, &c); err != nil {
		return c, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	return c, nil
}

// longestPrompt is the largest prompt of any engine, in tokens.
const longestPrompt = 1 << 24

// stepDetail returns the recorded detail of the engines' steps.
func (m *ModelServer) stepDetail() lifecycle.StepDetail {
	switch m.EngineSteps {
	case WholeSteps:
		return lifecycle.WholeSteps
	case StepPhases:
		return lifecycle.StepPhases
	}
	return lifecycle.NoSteps
}

// stream returns the configuration of the streams of a replica of a pool's EPP, without a recorder.
func (s *Scenario) stream(p *Pool, replica int) stream.Config {
	c := stream.Config{Hold: p.Flow == Held, MaxBodyBytes: int(p.EPP.MaxBodyBytes), Seed: s.Seed,
		BodyIdle: machine.FromDuration(p.EPP.BodyIdleTimeout), BodyTotal: machine.FromDuration(p.EPP.BodyTimeout),
		Deadline: machine.FromDuration(p.EPP.Deadline), HoldLimit: machine.FromDuration(p.EPP.HoldLimit),
		MetadataBytes: int(p.EPP.MetadataBytes)}
	if p.EPP.Errors == EPPErrors {
		c.Errors = stream.EPPErrors
	}
	if len(s.Pools) > 1 {
		c.Identity = append(c.Identity, record.D("pool", p.Name))
	}
	if p.EPP.Replicas > 1 {
		c.Identity = append(c.Identity, record.D("picker", p.PickerName(replica)))
	}
	return c
}

// PickerName returns the name of a replica of the pool's EPP.
func (p *Pool) PickerName(replica int) string { return fmt.Sprintf("%s-epp-%d", p.Name, replica) }

// pickerSeed returns the seed of a replica of a pool's EPP, by their numbers.
func (s *Scenario) pickerSeed(pool, replica int) uint64 {
	if pool == 0 && replica == 0 {
		return s.Seed
	}
	d := machine.NewDraw(s.Seed, "epp", "seed", uint64(pool)<<16|uint64(replica))
	return d.Uint64()
}

func (d *Deployment) serverName(index int) string {
	if d.apart && d.group == nil && !d.Prefills {
		return fmt.Sprintf("%s-decode-%d", d.Name, index-d.First)
	}
	return fmt.Sprintf("%s-%d", d.Name, index-d.First)
}
