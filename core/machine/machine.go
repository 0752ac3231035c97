// Package machine holds the one shape that every deciding part of windtunnel
// has, and the order in which their wake-ups are played.
//
// A machine is plain data that is given a message and the time, and returns
// what should happen as effects. It owns no goroutine, clock, socket or random
// source. Its three verbs are:
//
//	Input(now, message, fx)   take a message; the machine first advances to now
//	Next() (Time, bool)       when it wants to be woken, if at all
//	Advance(now, fx)          play everything due up to now, handing out effects
//
// Machine has the contract in full.
//
// live/ wraps a machine in a lock and a timer that rings at Next. virtual/
// gives it one slot in a Queue keyed by Next. Both see the same effects in the
// same order.
package machine

import (
	"math"
	"strconv"
	"time"
)

// Time is a count of nanoseconds since the run began. It is always passed in;
// nothing in core reads a clock.
type Time int64

// Never is later than every other Time; a machine with nothing pending may
// return it beside false from Next.
const Never Time = math.MaxInt64

// Convenient spans, in nanoseconds.
const (
	Microsecond Time = 1e3
	Millisecond Time = 1e6
	Second      Time = 1e9
)

// FromDuration converts a span of wall or scenario time.
func FromDuration(d time.Duration) Time { return Time(d) }

// Duration is t as a span since the run began.
func (t Time) Duration() time.Duration { return time.Duration(t) }

// Seconds is t in seconds, for people and for JSON.
func (t Time) Seconds() float64 { return float64(t) / 1e9 }

// Add returns t+d, saturating at Never instead of overflowing.
func (t Time) Add(d Time) Time {
	if t == Never || d == Never || (d > 0 && t > Never-d) {
		return Never
	}
	return t + d
}

// String prints t in seconds with nanosecond precision and no trailing zeros,
// the form used by golden files.
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return strconv.FormatFloat(t.Seconds(), 'f', -1, 64) + "s"
}

// Class orders what happens at one and the same time: step ends come first,
// then aborts, then arrivals, then everything else, and last who only looks at
// what there is. Without a fixed order a
// live and a virtual run of one scenario drift apart.
type Class uint8

// The classes, in the order in which they are played at equal times.
const (
	ClassStepEnd Class = iota
	ClassAbort
	ClassArrival
	ClassTimer
	ClassLook
)
