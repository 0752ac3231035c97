// Package apiserver is the time of a model server's API server: the process in front of the engine that parses and
// tokenizes requests, and turns tokens into text and events. vLLM's is one Python process, which does one thing at a
// time. It delays first tokens when many requests arrive at once, or when the engine makes many tokens.
package apiserver

import "github.com/windtunnel/windtunnel/core/machine"

// Costs are the times of an API server; the zero value takes no time.
type Costs struct {
	// Latency delays a request, and no other.
	Latency machine.Time
	// Request, PromptToken and OutputToken are work for a request, for each token of its prompt, and for each token of
	// an answer. The process works on them one after the other.
	Request, PromptToken, OutputToken machine.Time
}

// Queue is the work that an API server has still to do. Each completion of a request counts as one.
type Queue struct {
	costs     Costs
	work      machine.Time // at the time at
	at        machine.Time
	generated uint64 // tokens of answers until at
}

// New returns an idle API server's queue.
func New(c Costs) Queue { return Queue{costs: c} }

// Free reports whether the API server takes no time.
func (q *Queue) Free() bool { return q.costs == Costs{} }

// Enter adds a completion that arrives now, with a prompt of that many tokens, and returns the time until the engine
// gets it. generated is the number of tokens that the engine has made so far.
func (q *Queue) Enter(now machine.Time, prompt int, generated uint64) machine.Time {
	c := &q.costs
	// A restarted engine counts from 0.
	made := machine.Time(generated - min(q.generated, generated))
	q.work = max(0, q.work+made*c.OutputToken-(now-q.at)) + c.Request + machine.Time(prompt)*c.PromptToken
	q.at, q.generated = now, generated
	return q.work + c.Latency
}
