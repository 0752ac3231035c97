package engine

import "github.com/windtunnel/windtunnel/core/machine"

// Stats is an engine's counters and gauges, at the engine's own time. Counters
// only grow.
type Stats struct {
	// Running and Waiting are requests; together they are all in flight.
	Running int
	Waiting int
	// Paused is how many of Running wait for Resume, Pulling how many of Waiting
	// wait for KV from another engine.
	Paused  int
	Pulling int

	Accepted    uint64
	Rejected    uint64
	Finished    uint64
	Aborted     uint64
	Preemptions uint64
	Steps       uint64

	// Busy is the time spent in steps: the accelerator's utilisation is its share
	// of the time passed. Not counted under BatchingIndependent.
	Busy machine.Time

	PromptTokens       uint64 // of prompts that were completed
	GenerationTokens   uint64
	PrefixCacheQueries uint64 // prompt tokens looked up
	PrefixCacheHits    uint64 // of these, found
	CPUCacheHits       uint64 // of these, brought back from host memory; not among PrefixCacheHits

	LoRALoads       uint64 // adapters brought from disk to host memory
	LoRAActivations uint64 // adapters brought into a slot of the accelerator
}

// Stats reads the counters and gauges at the engine's time.
func (e *Engine) Stats() Stats {
	e.catchUp(e.now)
	s := e.stats
	s.Running = e.batch.size
	if e.independent() {
		s.Running = e.ids.Len() - s.Pulling
	}
	if e.run.active {
		s.Busy += e.now - e.run.schedule.Start
	}
	s.Waiting = e.ids.Len() - s.Running
	return s
}

// Computing says whether a step is under way; under BatchingIndependent,
// whether anything is in flight.
func (e *Engine) Computing() bool {
	if e.independent() {
		return e.ids.Len() > 0
	}
	return e.run.active
}

// KVBlocksUsed is how many blocks of the KV cache are in use: by requests, or
// held for other engines. What is merely cached does not count, as in vLLM's
// kv_cache_usage_perc.
func (e *Engine) KVBlocksUsed() int {
	if e.pool == nil {
		return 0
	}
	e.catchUp(e.now)
	return e.pool.used()
}

// KVBlocksHeld is how many blocks of the KV cache hold something: those in use,
// and those that are merely cached. Of all these findable is how many can be
// found by the hash of their content.
func (e *Engine) KVBlocksHeld() (blocks, findable int) {
	if e.pool == nil {
		return 0, 0
	}
	e.catchUp(e.now)
	return e.pool.total - e.pool.blank, e.pool.named
}

// Cached calls each with the hash of every full block whose content the cache
// has, and where it is: what an index of KV events is held against. A block
// that is announced and still belongs to one request alone is not among them.
func (e *Engine) Cached(each func(hash uint64, tier Tier)) {
	if e.pool == nil {
		return
	}
	e.catchUp(e.now)
	for i := range e.pool.nodes {
		x := &e.pool.nodes[i]
		if x.anonymous() {
			continue
		}
		for p := range x.blocks() {
			tier := TierGPU
			if p >= x.count {
				tier = TierCPU
			}
			each(x.chain.at(x.start+p), tier)
		}
	}
}
