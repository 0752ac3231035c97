package engine

import "github.com/windtunnel/windtunnel/core/machine"

// Stats holds an engine's counters and gauges, at the engine's own time. Counters only grow.
type Stats struct {
	// Running and Waiting are numbers of requests; together they are all requests in flight.
	Running int
	Waiting int
	// Paused is the number of Running requests that wait for Resume, Pulling the number of Waiting requests that wait
	// for KV from another engine.
	Paused  int
	Pulling int

	Accepted    uint64
	Rejected    uint64
	Finished    uint64
	Aborted     uint64
	Preemptions uint64
	Steps       uint64

	// Busy is the time spent in steps. Divided by the time passed, it is the accelerator's utilization.
	// BatchingIndependent does not count it.
	Busy machine.Time

	PromptTokens       uint64 // of completed prompts
	GenerationTokens   uint64
	PrefixCacheQueries uint64 // prompt tokens looked up
	PrefixCacheHits    uint64 // prompt tokens found
	CPUCacheHits       uint64 // prompt tokens brought back from host memory; not among PrefixCacheHits

	LoRALoads       uint64 // adapters brought from disk to host memory
	LoRAActivations uint64 // adapters brought into a slot of the accelerator
}

// Stats returns the counters and gauges at the engine's time.
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

// Generated returns Stats' GenerationTokens. It settles nothing, so that a caller may ask at every request.
func (e *Engine) Generated() uint64 {
	n := e.stats.GenerationTokens
	if x := &e.run; x.active && x.begun != x.steps {
		n += uint64(x.ended(e.now)-x.done) * uint64(x.decoding)
	}
	return n
}

// Computing reports whether a step is running; under BatchingIndependent, whether anything is in flight.
func (e *Engine) Computing() bool {
	if e.independent() {
		return e.ids.Len() > 0
	}
	return e.run.active
}

// KVBlocksUsed returns the number of blocks of the KV cache in use: by requests, or held for other engines. Blocks that
// are merely cached do not count, as in vLLM's kv_cache_usage_perc.
func (e *Engine) KVBlocksUsed() int {
	if e.pool == nil {
		return 0
	}
	e.catchUp(e.now)
	return e.pool.used()
}

// KVBlocksHeld returns the number of blocks of the KV cache with content: those in use, and those that are merely
// cached. findable is the number of these blocks that requests can find by the hash of their content.
func (e *Engine) KVBlocksHeld() (blocks, findable int) {
	if e.pool == nil {
		return 0, 0
	}
	e.catchUp(e.now)
	return e.pool.total - e.pool.blank, e.pool.named
}

// Cached calls each with the hash of every full block whose content is cached, and with its tier. Checks compare an
// index of KV events with it. A block that was announced and still belongs to one request alone is not included.
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
