package sources

import (
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Distance is how far a table is from what it is made of, from other sources of the same
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
	// Others are the other sources; none where the hardware is nobody's that is known.
	Others []Other `json:"others,omitempty"`
	// Peak is the least of a point's time over the least that the hardware can take; 0
	// where that is not known. Nearest is that point.
	Peak    float64 `json:"peak,omitempty"`
	Nearest string  `json:"nearest,omitempty"`
}

// Other is what another source says of a table's points, of prompts (time to first token) and of
// decode steps (time per output token).
type Other struct {
	Source string `json:"source"`
	TTFT   Off    `json:"ttft"`
	TPOT   Off    `json:"tpot"`
}

// Off is how far figures are off, as shares of what they are held against.
type Off struct {
	// Moves is the median, with its sign: below 0 is faster than the table.
	Moves float64 `json:"moves"`
	// Median and Most are without it, and Worst is the point that is off the most.
	Median float64 `json:"median"`
	Most   float64 `json:"most"`
	Worst  string  `json:"worst,omitempty"`
}

// offs collects how far points are off.
type offs struct {
	list  []float64
	most  float64
	worst latency.Point
}

func (o *offs) add(p latency.Point, off float64) {
	if math.Abs(off) > o.most {
		o.most, o.worst = math.Abs(off), p
	}
	o.list = append(o.list, off)
}

func (o *offs) off() (x Off) {
	if len(o.list) == 0 {
		return x
	}
	slices.Sort(o.list)
	x.Moves = share(o.list[len(o.list)/2])
	for i, v := range o.list {
		o.list[i] = math.Abs(v)
	}
	slices.Sort(o.list)
	x.Median, x.Most = share(o.list[len(o.list)/2]), share(o.most)
	if x.Most > 0 {
		x.Worst = o.worst.String()
	}
	return x
}

// DistanceOf measures a table. The error says why it is none, or which point is faster
// than the hardware.
func DistanceOf(m *latency.Measured) (Distance, error) {
	d := Distance{Model: m.Model, System: m.System, Backend: m.Backend, TP: m.TP, Points: len(m.Points)}
	h, err := hardware.Names{Model: m.Model, Accelerator: m.System, TP: m.TP}.Resolve()
	if err != nil {
		h = nil // somebody's own
	}
	timer, err := latency.New(latency.Config{Kind: latency.KindTable, Points: m.Points, Hardware: h})
	if err != nil {
		return d, err
	}
	var given offs
	for _, p := range m.Points {
		given.add(p, float64(timer.StepTime(p.Step()).Time())/float64(p.Nanoseconds)-1)
		if h == nil {
			continue
		}
		if x := float64(p.Nanoseconds) / float64(h.Floor(p.Step()).Nanoseconds); d.Nearest == "" || x < d.Peak {
			d.Peak, d.Nearest = math.Round(x*1e4)/1e4, p.String()
		}
	}
	d.Given = given.off()
	if h == nil {
		return d, nil
	}
	for _, s := range Of(h) {
		var prompts, decode offs
		same := true
		for _, p := range m.Points {
			took := s.Timer.StepTime(p.Step())
			same = same && took == timer.StepTime(p.Step())
			which := &prompts
			if p.Decode {
				which = &decode
			}
			which.add(p, float64(took.Time())/float64(p.Nanoseconds)-1)
		}
		if !same { // else it is this table
			d.Others = append(d.Others, Other{s.Name, prompts.off(), decode.off()})
		}
	}
	return d, nil
}
