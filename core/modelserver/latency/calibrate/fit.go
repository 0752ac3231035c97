package calibrate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Fit is the result of the probes.
type Fit struct {
	// Points are the points of the table.
	Points []latency.Point
	// Extrapolated holds the indexes among Points that were not measured: of batches that did not fit, and continue
	// those that did.
	Extrapolated map[int]bool
	// Spread is the deviation of a prompt's repeats from their median, as a share: the median over all.
	Spread float64
	// HeldOut holds the probes that the table does not use.
	HeldOut []HeldOut
	// LeftOut is the reason why Points has no steps with both prompts and tokens, or "" if it has them.
	LeftOut string
	// Prefix is the result for a repeated prompt; nil if that was not probed.
	Prefix *Prefix
}

// HeldOut is a probe that the table does not use: its measured time and the table's prediction.
type HeldOut struct {
	Name            string
	Of              Kind
	Took, Predicted machine.Time
}

// Kind is the kind of a held-out probe.
type Kind string

// The kinds.
const (
	Prompts Kind = "prompts"
	Decodes Kind = "decode steps"
	Mixed   Kind = "mixed steps"
	Traffic Kind = "Poisson traffic"
)

// Kinds returns all kinds of held-out probes.
func Kinds() []Kind { return []Kind{Prompts, Decodes, Mixed, Traffic} }

// Off returns the error of the prediction, as a share of the measured time.
func (h *HeldOut) Off() float64 { return float64(h.Predicted-h.Took) / float64(h.Took) }

// Fit returns a table of the measurements so far. The error names the missing ones.
func (p *Plan) Fit() (*Fit, error) {
	f := &Fit{Prefix: p.Prefix}
	if f.Prefix != nil && f.Prefix.Warm == 0 {
		f.Prefix = nil
	}
	var spreads []float64
	for _, list := range p.prompts {
		took := slices.Clone(list)
		mid := median(took)
		for _, t := range took {
			spreads = append(spreads, math.Abs(float64(t-mid))/float64(mid))
		}
	}
	var err error
	if f.Points, f.Extrapolated, err = p.table(); err != nil {
		return nil, err
	}
	f.Spread = median(spreads)
	var table *latency.Table
	table, f.Points, f.LeftOut, err = p.fitted(f.Points)
	if err != nil {
		return nil, fmt.Errorf("the measured times do not make a table: %w; was the server idle?", err)
	}
	for _, x := range p.held {
		s, of := hardware.PrefillStep(int64(x.probe.Prompt)), Prompts
		if n := x.probe.Requests; x.probe.kind != prefill {
			s, of = &engine.Step{DecodeSeqs: n, DecodeContext: int64(math.Round(x.context * float64(n)))}, Decodes
		}
		if x.probe.kind == mixed {
			whole := hardware.PrefillStep(int64(x.probe.Later[0].Prompt))
			whole.DecodeSeqs, whole.DecodeContext = s.DecodeSeqs, s.DecodeContext
			s, of = whole, Mixed
		}
		f.HeldOut = append(f.HeldOut,
			HeldOut{Name: x.probe.Name, Of: of, Took: machine.Time(median(slices.Clone(x.took))),
				Predicted: table.StepTime(s).Time()})
	}
	held, err := p.checkTraffic(table)
	f.HeldOut = append(f.HeldOut, held...)
	return f, err
}

// fitted returns the table of points, without its mixed steps if they contradict the rest: a prompt that waited on a
// busy machine gives no information about such steps.
func (p *Plan) fitted(points []latency.Point) (t *latency.Table, used []latency.Point, leftOut string, err error) {
	if t, err = latency.NewTable(points, nil); err != nil && len(p.mixes) > 0 {
		bare := points[:len(points)-len(p.mixes)]
		if rest, worse := latency.NewTable(bare, nil); worse == nil {
			return rest, bare, err.Error(), nil
		}
	}
	return t, points, "", err
}

// table returns the points measured so far, and which of them are extrapolated.
func (p *Plan) table() (points []latency.Point, extrapolated map[int]bool, err error) {
	extrapolated = map[int]bool{}
	longest := int64(0)
	for _, n := range slices.Sorted(maps.Keys(p.prompts)) {
		longest = max(longest, median(slices.Clone(p.prompts[n]))) // a fall is noise
		points = append(points, latency.Point{Batch: 1, Context: int64(n), Nanoseconds: longest})
	}
	if len(points) < 2 || len(p.steps) == 0 {
		return nil, nil, fmt.Errorf("%d lengths of prompts and %d batches were measured; expected at least 2 and 1",
			len(points), len(p.steps))
	}
	perToken := p.perToken()
	contexts := p.limits.contexts()
	for _, b := range slices.Sorted(maps.Keys(p.steps)) {
		list := slices.Clone(p.steps[b])
		machine.SortFunc(list, func(x, y step) int { return int(math.Copysign(1, x.context-y.context)) })
		last := int64(1)
		for _, c := range contexts {
			// A context a little longer than the requested one was measured. Correct the time to the requested one.
			took := int64(math.Round(at(list, float64(c), perToken*float64(b))))
			last = max(last, took)
			if most, known := p.full[b]; known && c >= most || float64(c) > list[len(list)-1].context {
				extrapolated[len(points)] = true
			}
			points = append(points, latency.Point{Decode: true, Batch: int64(b), Context: int64(c), Nanoseconds: last})
		}
	}
	for _, x := range p.mixes {
		points = append(points, latency.Point{Decode: true, Batch: int64(x.batch),
			Context: int64(math.Round(x.context)), Prompt: int64(x.prompt), Nanoseconds: int64(math.Round(x.took))})
	}
	return points, extrapolated, nil
}

// perToken returns the time that each token in the KV cache adds to a step, in nanoseconds, from the largest batch that
// was measured at two contexts.
func (p *Plan) perToken() float64 {
	for _, b := range slices.Backward(slices.Sorted(maps.Keys(p.steps))) {
		if list := p.steps[b]; len(list) > 1 {
			x, y := list[len(list)-2], list[len(list)-1]
			if y.context > x.context {
				return math.Max(0, (y.took-x.took)/(y.context-x.context)/float64(b))
			}
		}
	}
	return 0
}

// at returns the duration of a batch's step at a context. Between two measured contexts it interpolates, before the
// first it continues that line, and beyond the last it adds slope per token.
func at(list []step, context, slope float64) float64 {
	i := 0
	for i+1 < len(list) && list[i+1].context <= context {
		i++
	}
	x := list[i]
	if i+1 < len(list) {
		y := list[i+1]
		slope = (y.took - x.took) / (y.context - x.context)
	}
	return math.Max(1, x.took+slope*(context-x.context))
}

// About describes the origin of a file of step times.
type About struct {
	Model, System, Backend string
	TP                     int
	// Lines are comments at the beginning of the file.
	Lines []string
}

// Write writes the file for a scenario's stepTimes.
func (f *Fit) Write(w io.Writer, a *About) error {
	var b strings.Builder
	for _, line := range a.Lines {
		fmt.Fprintf(&b, "# %s\n", strings.Join(strings.Fields(line), " "))
	}
	b.WriteString("model,system,backend,tp,phase,batch,context_tokens,ms\n")
	for i, p := range f.Points {
		phase := "prefill"
		if p.Decode {
			phase = "decode"
		}
		if p.Prompt > 0 {
			phase = fmt.Sprintf("mixed:%d", p.Prompt)
		}
		if f.Extrapolated[i] {
			b.WriteString("# not measured, because so much does not fit; continues the measured points:\n")
		}
		fmt.Fprintf(&b, "%s,%s,%s,%d,%s,%d,%d,%d.%06d\n", field(a.Model), field(a.System), field(a.Backend),
			max(a.TP, 1), phase, p.Batch, p.Context, p.Nanoseconds/1e6, p.Nanoseconds%1e6)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// field returns a text that the file can contain unchanged as a field.
func field(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == ',' || r == '"' || r < ' ' {
			return '_'
		}
		return r
	}, text)
	if strings.HasPrefix(text, "#") {
		text = "_" + text[1:]
	}
	return text
}

// Errors returns the median and the largest error of the table, as shares, over one kind of probe.
func (f *Fit) Errors(of Kind) (mid, most float64, err error) {
	var list []float64
	for i := range f.HeldOut {
		if f.HeldOut[i].Of == of {
			list = append(list, math.Abs(f.HeldOut[i].Off()))
		}
	}
	if len(list) == 0 {
		return 0, 0, errors.New("nothing was held out")
	}
	return median(list), slices.Max(list), nil
}
