package sources

import (
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Distance measures the differences of a table from its own points, from other sources of the same figures, and from
// the hardware's limit.
type Distance struct {
	Model   string `json:"model"`
	System  string `json:"system"`
	Backend string `json:"backend"`
	TP      int    `json:"tp"`
	Points  int    `json:"points"`
	// Given is the difference of the table from its own points: the table lifts noise that falls with context.
	Given Off `json:"given"`
	// Others are the other sources; none if the hardware is unknown.
	Others []Other `json:"others,omitempty"`
	// Peak is the least ratio of a point's time to the hardware's least possible time; 0 if that is unknown. Nearest is
	// the point of that ratio.
	Peak    float64 `json:"peak,omitempty"`
	Nearest string  `json:"nearest,omitempty"`
}

// Other is the difference of another source at a table's points: for prompts (time to first token) and for decode steps
// (time per output token).
type Other struct {
	Source string `json:"source"`
	TTFT   Off    `json:"ttft"`
	TPOT   Off    `json:"tpot"`
}

// Off is the difference of figures from a reference, as shares of the reference.
type Off struct {
	// Moves is the signed median: below 0 is faster than the table.
	Moves float64 `json:"moves"`
	// Median and Most are of absolute values, and Worst is the point with the largest.
	Median float64 `json:"median"`
	Most   float64 `json:"most"`
	Worst  string  `json:"worst,omitempty"`
}

// offs collects the differences of points.
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

// DistanceOf measures a table. The error is the reason why it is not a table, or names the point that is faster than
// the hardware.
func DistanceOf(m *latency.Measured) (Distance, error) {
	d := Distance{Model: m.Model, System: m.System, Backend: m.Backend, TP: m.TP, Points: len(m.Points)}
	h, err := hardware.Names{Model: m.Model, Accelerator: m.System, TP: m.TP}.Resolve()
	if err != nil {
		h = nil // a user's own hardware
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
		if !same { // otherwise it is this table
			d.Others = append(d.Others, Other{s.Name, prompts.off(), decode.off()})
		}
	}
	return d, nil
}
