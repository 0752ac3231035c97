package serving

import (
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Draws are what is random about a simulated request. Every draw is keyed by
// the run's seed and the request's own id, so that a live and a virtual server
// draw the same values whatever the order in which requests reach them.
type Draws struct {
	Seed uint64
	// Prefill and TokenTime are the request's own times where every request is
	// alone on its server (document 000); unused under other batching.
	Prefill, TokenTime latency.Dist
	// OutputTokens is how many tokens an answer has if the request allows.
	OutputTokens latency.Dist
}

// PrefillTime is how long the request's prefill takes.
func (d *Draws) PrefillTime(request string) machine.Time {
	draw := machine.DrawFor(d.Seed, "server", "prefill", request)
	return max(1, machine.Time(d.Prefill.Sample(&draw)))
}

// InterTokenTime is the time from one token of the request to the next.
func (d *Draws) InterTokenTime(request string) machine.Time {
	draw := machine.DrawFor(d.Seed, "server", "token_time", request)
	return max(1, machine.Time(d.TokenTime.Sample(&draw)))
}

// Tokens is how many tokens the request's answer has: drawn, but never more
// than it asks for. asked 0 asks for no particular number.
func (d *Draws) Tokens(request string, asked int) int {
	draw := machine.DrawFor(d.Seed, "server", "output_tokens", request)
	n := max(1, int(d.OutputTokens.Sample(&draw)))
	if asked > 0 {
		n = min(n, asked)
	}
	return n
}
