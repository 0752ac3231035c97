package engine

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Fixed is a span of time in units of 2^-16 ns (15 femtoseconds). Step times
// are fixed point and not floating point, so that a thousand steps taken at
// once end exactly where a thousand single steps end, on every processor.
type Fixed int64

// FixedShift is the number of fraction bits of Fixed.
const FixedShift = 16

// NoKnot is the Line.Until of a line that never bends.
const NoKnot = math.MaxInt64

// ToFixed converts whole nanoseconds.
func ToFixed(t machine.Time) Fixed { return Fixed(t) << FixedShift }

// FixedNanos converts a float of nanoseconds, for reading tables and
// coefficients when a timer is built; never on the time path.
func FixedNanos(ns float64) Fixed { return Fixed(math.Round(ns * (1 << FixedShift))) }

// Time is f in whole nanoseconds, rounded down.
func (f Fixed) Time() machine.Time { return machine.Time(f >> FixedShift) }

// Step is what one engine step computes. All lengths are in tokens.
type Step struct {
	// Index counts the engine's steps from 0; a timer with jitter keys its draw
	// with it.
	Index uint64

	// PrefillSeqs is how many requests compute a part of their prompt,
	// PrefillTokens how many new tokens these parts have together,
	// PrefillContext how many tokens lie before the parts (sum over requests of
	// what was computed or cached before), and PrefillPairs how many
	// (token, token it attends to) pairs they add: the sum over requests of
	// new*context + new*(new+1)/2. PrefillFinished of the requests complete
	// their prompt in this step.
	PrefillSeqs     int
	PrefillFinished int
	PrefillTokens   int64
	PrefillContext  int64
	PrefillPairs    int64

	// DecodeSeqs is how many requests compute one output token, DecodeContext
	// how many tokens these attend to, all together: the sum over requests of
	// prompt and output so far, the new token's input included. A request that
	// computes only its last token, because its prompt was fetched from another
	// engine or because it was preempted and the rest is still cached, is among
	// them: that is the same work.
	DecodeSeqs    int
	DecodeContext int64
}

// Line is the closed form of decode-only steps: with a given batch size, a
// step whose DecodeContext is c, for Context <= c < Until, takes
//
//	Base + Slope*(c-Context)
//
// where Context is the value that the line was asked for. Base is at least
// 1 ns and Slope is not negative.
type Line struct {
	Base  Fixed
	Slope Fixed // per token of DecodeContext
	Until int64 // first DecodeContext to which it does not apply; NoKnot: none
}

// StepTimer says how long steps take; core/modelserver/latency has the implementations.
// It must be a pure function of its arguments.
type StepTimer interface {
	// StepTime is the duration of one step. Less than 1 ns counts as 1 ns.
	StepTime(s *Step) Fixed

	// DecodeLine is the closed form around steps that only decode, with the
	// given batch size (at least 1) and DecodeContext. It must agree exactly
	// with StepTime wherever it applies. A timer that has none (one with jitter)
	// returns false, and the engine then takes single steps.
	DecodeLine(batch int, context int64) (Line, bool)
}

// Schedule is when the steps of a run end: an arithmetic series. It is exact:
// a run cut in two has the same ends.
type Schedule struct {
	Start machine.Time // when the first step begins
	Frac  Fixed        // below 1 ns: what earlier steps left over
	Base  Fixed        // duration of the first step
	Grow  Fixed        // how much longer each step is than the one before
}

// End is when step number k of the run ends, counted from 1; End(0) is Start.
func (s *Schedule) End(k int) machine.Time {
	return s.Start + (s.Frac + s.sum(k)).Time()
}

func (s *Schedule) sum(k int) Fixed {
	n := Fixed(k)
	return n*s.Base + s.Grow*(n*(n-1)/2)
}
