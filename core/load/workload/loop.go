package workload

import "github.com/windtunnel/windtunnel/core/machine"

// Loop decides when the conversations of a workload begin. In a closed loop a number of them begins at first, and
// another one whenever one ends. In an open loop they begin at the times of their arrivals, unless the limit of
// conversations in flight is reached. None begins once all requests are planned or, in a closed loop, once the time is
// up.
type Loop struct {
	c        *Config
	arrivals *Arrivals
	limit    int // of conversations in flight
	begun    int // conversations, including those that wait
	planned  int // requests of these conversations
	flying   int
	waiting  []*Conversation // for the limit
	others   Conversation    // the last one of another share
}

// NewLoop returns the loop of a workload with at most limit conversations in flight.
func NewLoop(c *Config, limit int) *Loop { return &Loop{c: c, arrivals: c.Arrivals(), limit: limit} }

// Open reports whether conversations arrive by the clock.
func (l *Loop) Open() bool { return l.c.Rate > 0 }

// First returns how many conversations of a closed loop arrive at the beginning.
func (l *Loop) First() int { return min(l.limit, l.c.Requests) }

// Arrival returns the time of the share's next arrival in an open loop, and false after the last one.
func (l *Loop) Arrival() (machine.Time, bool) {
	for l.planned < l.c.Requests {
		at, more := l.arrivals.Next()
		if !more {
			l.planned = l.c.Requests // the arrivals have ended early
		}
		if !more || l.c.Shares < 2 || l.begun%l.c.Shares == l.c.Share {
			return at, more
		}
		l.planned += l.c.ConversationIn(&l.others, l.begun, l.planned).Turns
		l.begun++
	}
	return 0, false
}

// Arrived returns the conversation that arrives now, and whether it begins now; otherwise Ended returns it later.
// memory is a conversation that has ended, to reuse, or nil. The result is nil once all requests are planned.
func (l *Loop) Arrived(memory *Conversation) (v *Conversation, begins bool) {
	if memory == nil {
		memory = new(Conversation)
	}
	if v = l.c.ConversationIn(memory, l.begun, l.planned); v == nil {
		return nil, false
	}
	l.begun++
	l.planned += v.Turns
	if l.Open() && l.flying >= l.limit {
		l.waiting = append(l.waiting, v)
		return v, false
	}
	l.flying++
	return v, true
}

// Ended handles the end of a conversation. It returns the waiting conversation that begins now, if any, or says that
// another one arrives now.
func (l *Loop) Ended(now machine.Time) (begins *Conversation, arrives bool) {
	l.flying--
	switch {
	case len(l.waiting) > 0:
		begins, l.waiting = l.waiting[0], l.waiting[1:]
		l.flying++
	case !l.Open() && l.c.Until > 0 && now >= l.c.Until:
		l.planned = l.c.Requests // time is up
	case !l.Open():
		arrives = l.planned < l.c.Requests
	}
	return begins, arrives
}

// InFlight returns the number of conversations that have begun and not ended, and Waiting of those that wait for the
// limit.
func (l *Loop) InFlight() int { return l.flying }
func (l *Loop) Waiting() int  { return len(l.waiting) }

// Over reports whether all conversations have ended and no other one will begin.
func (l *Loop) Over() bool { return l.flying == 0 && l.planned >= l.c.Requests }
