package stats

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// residency follows a sample of the cached blocks from when they are filled until they are evicted, as vLLM's
// --kv-cache-metrics does (vllm/v1/core/kv_cache_metrics.py). It chooses blocks by their hashes, so that every run with
// one seed samples the same blocks.
type residency struct {
	below  uint64 // follows blocks whose mixed hash is below this; 0 follows none
	blocks map[uint64]*followed
}

// followed holds the times of one block.
type followed struct {
	stored   machine.Time
	accesses [4]machine.Time // the latest, oldest first
	n        int
}

// SampleBlocks follows this share of the KV blocks, 0 to 1, for the vllm:kv_block_* histograms. The engine must report
// its blocks (engine.Config.KVEvents), and sequences must carry their Blocks.
func (s *Stats) SampleBlocks(share float64) {
	if share > 0 {
		s.residency = &residency{below: uint64(min(share, 1) * (1 << 63) * 2 * (1 - 1e-16)),
			blocks: map[uint64]*followed{}}
	}
}

// SamplesBlocks reports whether any blocks are sampled.
func (s *Stats) SamplesBlocks() bool { return s.residency != nil }

func (r *residency) stored(at machine.Time, hashes []uint64) {
	for _, h := range hashes {
		if _, known := r.blocks[h]; !known && h*0x9E3779B97F4A7C15 < r.below {
			r.blocks[h] = &followed{stored: at}
		}
	}
}

func (r *residency) accessed(at machine.Time, hashes []uint64) {
	for _, h := range hashes {
		b := r.blocks[h]
		if b == nil {
			continue
		}
		if b.n == len(b.accesses) {
			copy(b.accesses[:], b.accesses[1:])
			b.n--
		}
		b.accesses[b.n] = at
		b.n++
	}
}

func (s *Stats) blocksGone(at machine.Time, hashes []uint64) {
	r := s.residency
	for _, h := range hashes {
		b := r.blocks[h]
		if b == nil {
			continue
		}
		delete(r.blocks, h)
		last := b.stored
		for i, access := range b.accesses[:b.n] {
			if i > 0 {
				s.blockReuse.observe((access - last).Seconds())
			}
			last = access
		}
		s.blockLifetime.observe((at - b.stored).Seconds())
		s.blockIdle.observe((at - last).Seconds())
	}
}

// blockEffect processes the engine's block events.
func (s *Stats) blockEffect(fx *engine.Effects, f *engine.Effect) {
	switch {
	case s.residency == nil:
	case f.Kind == engine.AllBlocksCleared:
		clear(s.residency.blocks)
	case f.Tier != engine.TierGPU:
	case f.Kind == engine.BlockStored:
		s.residency.stored(f.At, fx.BlockHashes(f))
	case f.Kind == engine.BlockRemoved:
		s.blocksGone(f.At, fx.BlockHashes(f))
	}
}

func (x *Look) writeResidency(w metrics.Writer) {
	if x.residency == nil {
		return
	}
	all := x.histograms(nil)
	for _, h := range all[requestHistograms:][:sampledHistograms] {
		histogramOf(w, h.name, h.histogram)
	}
}
