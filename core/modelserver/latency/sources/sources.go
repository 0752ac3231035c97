// Package sources compares the published sources of step times for one hardware. Their differences on the same step
// show how far any of them can be trusted.
package sources

import (
	"math"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Source is a timer from one source for some hardware.
type Source struct {
	Name  string
	Timer *latency.Timer
}

// Of returns the sources of a hardware: AIConfigurator's operator tables where there are some, the roofline of the data
// sheets with the rates that kernels reach, and inference-sim's roofline where it has a utilization.
func Of(h *hardware.Hardware) (all []Source) {
	for _, s := range []struct {
		name string
		kind latency.Kind
	}{{"AIConfigurator", latency.KindTable}, {"roofline", latency.KindRoofline},
		{"inference-sim", latency.KindInferenceSim}} {
		// A source without figures for the hardware is left out.
		if timer, err := latency.New(latency.Config{Kind: s.kind, Hardware: h}); err == nil {
			all = append(all, Source{s.name, timer})
		}
	}
	return all
}

// Range is the change of a time with another source: as shares of the used time, down to the fastest source and up to
// the slowest. If the used source is the fastest or the slowest, that side is 0 and has no name.
type Range struct {
	Low     float64 `json:"low"`
	Fastest string  `json:"fastest,omitempty"`
	High    float64 `json:"high"`
	Slowest string  `json:"slowest,omitempty"`
}

// RangeOf returns the range of a step's time around the time that a run used. ok is false if there is no other source.
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

// NameOf returns the name of the source of a timer, or the timer's own description if it is not one of the sources.
func NameOf(t *latency.Timer, all []Source) string {
	for _, x := range all {
		if x.Timer.Source() == t.Source() {
			return x.Name
		}
	}
	return t.Source()
}

// share rounds to a millionth, so that the last bit does not depend on the processor.
func share(v float64) float64 { return math.Round(v*1e6) / 1e6 }
