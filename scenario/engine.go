package scenario

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/engine"
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
	return engine.Config{
		Seed: s.Seed, Index: uint64(index), Batching: batching,
		MaxNumSeqs: m.MaxNumSeqs, MaxNumBatchedTokens: m.MaxNumBatchedTokens, MaxModelLen: m.MaxModelLen,
		BlockSize: m.BlockSize, NumGPUBlocks: m.NumGPUBlocks,
	}, nil
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
func (p *Pool) ServerName(index int) string { return fmt.Sprintf("%s-%d", p.Name, index) }
