package proxy

import (
	"math/bits"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Bucket holds the tokens of one route's rate limit. Like Envoy's, it begins full and fills continuously.
type Bucket struct {
	Limit gateway.RateLimit
	spent uint64       // missing tokens, in billionths
	at    machine.Time // filled up to this time, in billionths of the limit's unit
}

const token = 1_000_000_000

// Take takes a token at time now and reports whether there was one.
func (b *Bucket) Take(now machine.Time) bool {
	now /= machine.FromDuration(b.Limit.Every()) / token
	over, back := bits.Mul64(uint64(max(0, now-b.at)), uint64(b.Limit.Requests))
	if b.at = max(b.at, now); over > 0 {
		back = b.spent
	}
	b.spent -= min(back, b.spent)
	if b.spent+token > token*uint64(b.Limit.Requests) {
		return false
	}
	b.spent += token
	return true
}
