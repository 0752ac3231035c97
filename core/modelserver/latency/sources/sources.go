// Package sources holds the published sources of step times for one hardware against each
// other: what they say of the same step is how far any of them is to be trusted.
package sources

import (
	"math"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Source is one that says how long steps take on some hardware.
type Source struct {
	Name  string
	Timer *latency.Timer
}

// Of lists the sources of a hardware: AIConfigurator's operator tables where there are some, the
// roofline of the data sheets with what kernels reach of them, and inference-sim's with its utilisation
// where it has one.
func Of(h *hardware.Hardware) (all []Source) {
	for _, s := range []struct {
		name string
		kind latency.Kind
	}{{"AIConfigurator", latency.KindTable}, {"roofline", latency.KindRoofline},
		{"inference-sim", latency.KindInferenceSim}} {
		// A source that knows nothing of the hardware is not one of its sources.
		if timer, err := latency.New(latency.Config{Kind: s.kind, Hardware: h}); err == nil {
			all = append(all, Source{s.name, timer})
		}
	}
	return all
}

// Range is how far a time would move with another source: as shares of the time that is used,
// down to the fastest source and up to the slowest. Where the one that is used is the
// fastest or the slowest, that side is 0 and has no name.
type Range struct {
	Low     float64 `json:"low"`
	Fastest string  `json:"fastest,omitempty"`
	High    float64 `json:"high"`
	Slowest string  `json:"slowest,omitempty"`
}

// RangeOf is the range of a step's time around the one that a run used. ok is false where there
// is nothing to hold it against.
func RangeOf(used engine.StepTimer, all []Source, s *engine.Step) (r Range, ok bool) {
	t := float64(used.StepTime(s))
	for _, x := range all {
		off := share(float64(x.Timer.StepTime(s))/t - 1)
		if off < r.Low {
			r.Low, r.Fastest = off, x.Name
		}
		if off > r.High {
			r.High, r.Slowest = off, x.Name
		}
	}
	return r, len(all) > 0
}

// NameOf is the name of the source that a timer is, or what it says of itself where it is none of
// them.
func NameOf(t *latency.Timer, all []Source) string {
	for _, x := range all {
		if x.Timer.Source() == t.Source() {
			return x.Name
		}
	}
	return t.Source()
}

// share rounds to a millionth, so that no processor's last bit shows.
func share(v float64) float64 { return math.Round(v*1e6) / 1e6 }
