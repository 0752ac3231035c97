package latency

import (
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/latency/hardware"
)

// Distance is how far a table is from what it is made of, from another source of the same
// figures, and from what the hardware can do.
type Distance struct {
	Model   string `json:"model"`
	System  string `json:"system"`
	Backend string `json:"backend"`
	TP      int    `json:"tp"`
	Points  int    `json:"points"`
	// Given is how far the table is off its own points: noise that falls with context is
	// lifted.
	Given Off `json:"given"`
	// Roofline is by how much the roofline, which has never seen the points, says another
	// time than they: the spread of two sources, of prompts and of decode steps. Nil where
	// the hardware is nobody's that is known.
	Prefill *Off `json:"rooflinePrefill,omitempty"`
	Decode  *Off `json:"rooflineDecode,omitempty"`
	// Peak is the least of a point's time over the least that the hardware can take; 0
	// where that is not known. Nearest is that point.
	Peak    float64 `json:"peak,omitempty"`
	Nearest string  `json:"nearest,omitempty"`
}

// Off is how far figures are off, as shares of what they are held against.
type Off struct {
	Median float64 `json:"median"`
	Most   float64 `json:"most"`
}

func offOf(list []float64) *Off {
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	share := func(v float64) float64 { return math.Round(v*1e6) / 1e6 }
	return &Off{share(list[len(list)/2]), share(list[len(list)-1])}
}

// Distance measures a table. The error says why it is none, or which point is faster
// than the hardware.
func (m *Measured) Distance() (Distance, error) {
	d := Distance{Model: m.Model, System: m.System, Backend: m.Backend, TP: m.TP, Points: len(m.Points)}
	h, err := hardware.Names{Model: m.Model, Accelerator: m.System, TP: m.TP}.Resolve()
	if err != nil {
		h = nil // somebody's own
	}
	timer, err := New(Config{Kind: KindTable, Points: m.Points, Hardware: h})
	if err != nil {
		return d, err
	}
	var roof *Timer
	if h != nil {
		if roof, err = New(Config{Kind: KindRoofline, Hardware: h}); err != nil {
			return d, err
		}
	}
	var given, prefill, decode []float64
	for _, p := range m.Points {
		s := hardware.PrefillStep(p.Context)
		if p.Decode {
			s = hardware.DecodeStep(p.Batch, p.Context)
		}
		off := func(t *Timer) float64 { return math.Abs(float64(t.StepTime(s).Time())/float64(p.Nanoseconds) - 1) }
		given = append(given, off(timer))
		if h == nil {
			continue
		}
		if p.Decode {
			decode = append(decode, off(roof))
		} else {
			prefill = append(prefill, off(roof))
		}
		if x := float64(p.Nanoseconds) / float64(h.Floor(s).Nanoseconds); d.Nearest == "" || x < d.Peak {
			d.Peak, d.Nearest = math.Round(x*1e4)/1e4, p.String()
		}
	}
	d.Given, d.Prefill, d.Decode = *offOf(given), offOf(prefill), offOf(decode)
	return d, nil
}
