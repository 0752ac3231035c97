// Package machine has the interface of every deciding part of windtunnel, and the order in which virtual time wakes
// them.
//
// A machine is plain data. It takes a message and the time, and returns effects: what should happen. It owns no
// goroutine, clock, socket or random source. Its three methods are:
//
//	Input(now, message, fx)   take a message; the machine first advances to now
//	Next() (Time, bool)       the time of the next wake-up, if any
//	Advance(now, fx)          play everything due up to now and add its effects to fx
//
// Machine has the whole contract.
//
// live/ wraps a machine in a lock and a timer that fires at Next. virtual/ gives it one place in a Queue, ordered by
// Next. Both see the same effects in the same order.
package machine

import (
	"math"
	"strconv"
	"time"
)

// Time is a count of nanoseconds since the run began. Callers always pass it in; nothing in core reads a clock.
type Time int64

// Never is later than every other Time. A machine with nothing pending may return it, with false, from Next.
const Never Time = math.MaxInt64

// Spans in nanoseconds.
const (
	Microsecond Time = 1e3
	Millisecond Time = 1e6
	Second      Time = 1e9
)

// FromDuration converts a span of wall time or of a scenario.
func FromDuration(d time.Duration) Time { return Time(d) }

// Duration returns t as a span since the run began.
func (t Time) Duration() time.Duration { return time.Duration(t) }

// Seconds returns t in seconds, for people and for JSON.
func (t Time) Seconds() float64 { return float64(t) / 1e9 }

// Add returns t+d, or Never where that overflows.
func (t Time) Add(d Time) Time {
	if t == Never || d == Never || (d > 0 && t > Never-d) {
		return Never
	}
	return t + d
}

// String prints t in seconds with nanosecond precision and no trailing zeros, as in golden files.
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return strconv.FormatFloat(t.Seconds(), 'f', -1, 64) + "s"
}

// Class orders what happens at one time: step ends first, then aborts, arrivals, everything else, and last the readers
// that change nothing. Without a fixed order a live and a virtual run of one scenario drift apart.
type Class uint8

// The classes, in their order at equal times.
const (
	ClassStepEnd Class = iota
	ClassAbort
	ClassArrival
	ClassTimer
	ClassLook
)
