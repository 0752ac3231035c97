package engine

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

	Accepted uint64
	Rejected uint64
	Finished uint64
	Aborted  uint64

	PromptTokens     uint64 // computed or found, of prompts that were completed
	GenerationTokens uint64
}

// Stats reads the counters.
func (e *Engine) Stats() Stats { return e.stats }
