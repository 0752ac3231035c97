package lifecycle

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// Draws holds the distributions of a simulated request's random values. The run's seed and the request's own id key
// every draw, so that a live and a virtual server draw the same values in whatever order requests arrive.
type Draws struct {
	Seed uint64
	// Prefill and TokenTime are the request's own times if requests do not share their server (document 000); other
	// batching ignores them. Nil leaves them to the engine.
	Prefill, TokenTime *dist.Dist
	// OutputTokens is the length of an answer, if the request allows it. Nil leaves the length open.
	OutputTokens *dist.Dist
}

// PrefillTime returns the duration of the request's prefill; 0 leaves it to the engine.
func (d *Draws) PrefillTime(request string) machine.Time {
	return machine.Time(d.draw(d.Prefill, "prefill", request))
}

// InterTokenTime returns the time between two tokens of the request; 0 leaves it to the engine.
func (d *Draws) InterTokenTime(request string) machine.Time {
	return machine.Time(d.draw(d.TokenTime, "token_time", request))
}

// Tokens returns the number of tokens that the model generates before it stops by itself; 0 if it is unknown.
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
