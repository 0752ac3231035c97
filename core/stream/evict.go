package stream

import "github.com/windtunnel/windtunnel/core/machine"

// Evict ends a request that the picker wants its room back from, also in the
// middle of its response: the client gets the answer, or as much as Envoy can
// still tell it.
func (s *Stream) Evict(now machine.Time, a Answer) []Effect {
	s.begin(now)
	if s.state != over {
		s.answerWith(s.now, a, "evicted by flow control")
	}
	return s.out
}
