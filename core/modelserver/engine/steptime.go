package engine

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Fixed is a span of time in units of 2^-16 ns (15 femtoseconds). Step times are fixed point and not floating point, so
// that a thousand steps taken at once end exactly when a thousand single steps end, on every processor.
type Fixed int64

// FixedShift is the number of fraction bits of Fixed.
const FixedShift = 16

// NoKnot is the Line.Until of a line that never bends.
const NoKnot = math.MaxInt64

// ToFixed converts whole nanoseconds.
func ToFixed(t machine.Time) Fixed { return Fixed(t) << FixedShift }

// FixedNanos converts nanoseconds in floating point. It is for tables and coefficients when a timer is built, and never
// for the times of steps.
func FixedNanos(ns float64) Fixed { return Fixed(math.Round(ns * (1 << FixedShift))) }

// Time returns whole nanoseconds, rounded down.
func (f Fixed) Time() machine.Time { return machine.Time(f >> FixedShift) }

// Step is the work of one engine step. All lengths are in tokens.
type Step struct {
	// Index counts the engine's steps from 0. A timer with jitter keys its draw with it.
	Index uint64

	// PrefillSeqs is the number of requests that compute a part of their prompt. PrefillTokens is the number of new
	// tokens in these parts. PrefillContext is the number of tokens before the parts (the sum over requests of tokens
	// computed or cached before). PrefillPairs is the number of (token, token it attends to) pairs that they add: the
	// sum over requests of new*context + new*(new+1)/2. PrefillFinished is the number of these requests that complete
	// their prompt in this step.
	PrefillSeqs     int
	PrefillFinished int
	PrefillTokens   int64
	PrefillContext  int64
	PrefillPairs    int64

	// DecodeSeqs is the number of requests that compute one output token. DecodeContext is the number of tokens that
	// these attend to: the sum over requests of prompt and output so far, with the new token's input. DecodeSeqs
	// includes a request that computes only its last token, because its prompt was fetched from another engine, or
	// because it was preempted and the rest is still cached: that is the same work.
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
	Until int64 // first DecodeContext beyond the line; NoKnot: none
}

// StepTimer returns the durations of steps. core/modelserver/latency has the implementations. A StepTimer must be a
// pure function of its arguments.
type StepTimer interface {
	// StepTime returns the duration of one step. Less than 1 ns counts as 1 ns.
	StepTime(s *Step) Fixed

	// DecodeLine returns the closed form around steps that only decode, with the given batch size (at least 1) and
	// DecodeContext. It must agree exactly with StepTime wherever it applies. A timer without a closed form (one with
	// jitter) returns false, and the engine then takes single steps.
	DecodeLine(batch int, context int64) (Line, bool)
}

// Schedule holds the ends of a run's steps: an arithmetic series. It is exact: a run cut in two has the same ends.
type Schedule struct {
	Start machine.Time // beginning of the first step
	Frac  Fixed        // fraction of a nanosecond left over by earlier steps
	Base  Fixed        // duration of the first step
	Grow  Fixed        // difference between the duration of a step and of the one before
}

// End returns the end of step number k of the run, counted from 1; End(0) is Start.
func (s *Schedule) End(k int) machine.Time {
	return s.Start + (s.Frac + s.sum(k)).Time()
}

func (s *Schedule) sum(k int) Fixed {
	n := Fixed(k)
	return n*s.Base + s.Grow*(n*(n-1)/2)
}
