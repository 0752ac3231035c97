package lifecycle

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// Draws are what is random about a simulated request. Every draw is keyed by
// the run's seed and the request's own id, so that a live and a virtual server
// draw the same values whatever the order in which requests reach them.
type Draws struct {
	Seed uint64
	// Prefill and TokenTime are the request's own times where every request is
	// alone on its server (document 000); unused under other batching. Nil leaves
	// them to the engine.
	Prefill, TokenTime *dist.Dist
	// OutputTokens is how many tokens an answer has if the request allows. Nil
	// says nothing about it.
	OutputTokens *dist.Dist
}

// PrefillTime is how long the request's prefill takes; 0 leaves it to the engine.
func (d *Draws) PrefillTime(request string) machine.Time {
	return machine.Time(d.draw(d.Prefill, "prefill", request))
}

// InterTokenTime is the time from one token of the request to the next; 0 leaves
// it to the engine.
func (d *Draws) InterTokenTime(request string) machine.Time {
	return machine.Time(d.draw(d.TokenTime, "token_time", request))
}

// Tokens is how many tokens the model says before it stops by itself; 0 where
// nothing is known of it.
func (d *Draws) Tokens(request string) int {
	return int(d.draw(d.OutputTokens, "output_tokens", request))
}

func (d *Draws) draw(from *dist.Dist, purpose, request string) int64 {
	if from == nil {
		return 0
	}
	draw := machine.DrawFor(d.Seed, "server", purpose, request)
	return max(1, from.Sample(&draw))
}
