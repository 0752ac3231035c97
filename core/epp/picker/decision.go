package picker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Decision is the outcome of one Pick, and the handle for everything that
// follows: Commit, Response, Release. It can be reused for another request
// once it was released (Picker.Pick resets it); its buffers then stay.
type Decision struct {
	Request *Request
	View    *View
	At      machine.Time

	// Err is why there is no endpoint; everything below may then be incomplete.
	Err *apierror.Error

	// Candidates are the endpoints after subset and screeners. Nobody changes them.
	Candidates []int32
	// Profiles are the profile runs in their order.
	Profiles []ProfileResult
	// Primary is the index of the run whose endpoints are the destination.
	Primary int
	// Targets are the destination endpoints, best first.
	Targets []Target
	// HideScores is set when the destination was rewritten, so that the
	// scores would name other addresses.
	HideScores bool
	// Set and Drop are headers that plug-ins add to the request or take from it.
	Set  header.List
	Drop []string
	// Screened lists what each screener removed (with Detail).
	Screened []Removal
	// Disagg is the kind of disaggregation that a profile handler chose
	// ("decode-only", "prefill-decode", ...), "" without such a handler, and
	// DisaggBy the handler.
	Disagg   string
	DisaggBy Plugin
	// Handled says that the profile handler was asked: nothing refused the request before.
	Handled bool
	// Detail says that the record is complete: removals and ties too.
	Detail bool
	// Forced says that a test chose the endpoints.
	Forced bool
	// Saturation of the candidates, when admission asked for it; else -1.
	Saturation float64

	// Spans are how long each plug-in took (with Options.Stopwatch).
	Spans []Span
	// Took is how long all of it took, and Admission how the request came to be
	// decided; the driver says both, for Explain.
	Took      machine.Time
	Admission string

	cycle     Cycle
	data      []any
	fresh     []bool
	committed bool
	released  bool
	scratch   []int32
	own       []int32 // memory for Candidates, where they are not all
}

// Span is one plug-in's turn. Point is the extension point as it stands in the
// label extension_point of llm_d_epp_plugin_duration_seconds.
type Span struct {
	Point  string
	Plugin Plugin
	Took   machine.Time
}

// Target is one destination endpoint.
type Target struct {
	Endpoint *Endpoint
	// HostPort is where the request goes; it differs from the endpoint's own
	// when a data-parallel handler rewrites the port.
	HostPort string
	Score    float64
}

// Removal holds what one filter took out.
type Removal struct {
	By      Plugin
	Removed []int32
}

// ProfileResult is one run of one profile.
type ProfileResult struct {
	Name string
	tables
	// Scorers are the profile's scorers.
	Scorers []WeightedScorer
	// Picked are the chosen endpoints, best first, and Picker is what chose them.
	// Empty is a failed run.
	Picked []int32
	Picker Plugin
}

// tables hold what a run has of every endpoint: in a large pool nearly all of a
// decision's memory.
type tables struct {
	// Removed lists what each filter took out, in order (with Detail).
	Removed []Removal
	// Left are the endpoints after all filters. Raw and Totals run beside it.
	Left []int32
	// Raw[i] are scorer i's clamped scores, one slice of len(Left) each; Totals
	// the weighted sums.
	Raw    [][]float64
	Totals []float64
	// Tied are the endpoints that shared the best total, when more than one
	// did (with Detail). Which of them won was drawn.
	Tied []int32

	rawBuf []float64
}

// freeList is memory that stripped decisions left to the next ones.
type freeList[T any] struct{ list []T }

func (s *freeList[T]) take() (x T) {
	if n := len(s.list); n > 0 {
		x, s.list = s.list[n-1], s.list[:n-1]
	}
	return x
}

// Strip has a decision forget the endpoints that it did not choose: what it says
// of them is told, and it stays in flight for as long as its request. The next
// decision has the memory.
func (p *Picker) Strip(d *Decision) {
	if d.own != nil {
		p.candidates.list = append(p.candidates.list, d.own)
	}
	d.Candidates, d.own, d.Screened, d.scratch, d.cycle.Candidates = nil, nil, nil, nil, nil
	for i := range d.Profiles {
		p.tables.list = append(p.tables.list, d.Profiles[i].tables)
		d.Profiles[i].tables = tables{}
	}
	for i, x := range d.data {
		if _, spare := x.(Spare); spare {
			for len(p.data) <= i {
				p.data = append(p.data, freeList[any]{})
			}
			p.data[i].list = append(p.data[i].list, x)
			d.data[i], d.fresh[i] = nil, false
		}
	}
}

// Spare marks what a plug-in keeps for a decision (Data) and needs no more once
// that has taken effect.
type Spare interface{ Spare() }

// WeightedScorer is a scorer's place in a profile.
type WeightedScorer struct {
	Scorer Scorer
	Weight float64
}

// Ok reports whether the run found an endpoint.
func (r *ProfileResult) Ok() bool { return r != nil && len(r.Picked) > 0 }

// Profile returns the run of the named profile, nil when it did not run.
func (d *Decision) Profile(name string) *ProfileResult {
	for i := range d.Profiles {
		if d.Profiles[i].Name == name {
			return &d.Profiles[i]
		}
	}
	return nil
}

// PrimaryProfile returns the run whose endpoints are the destination, nil when
// there is none.
func (d *Decision) PrimaryProfile() *ProfileResult {
	if d.Primary < 0 || d.Primary >= len(d.Profiles) {
		return nil
	}
	return &d.Profiles[d.Primary]
}

// Prefiller returns the endpoint that prefills for another one, nil when none does.
func (d *Decision) Prefiller() *Endpoint {
	r := d.Profile("prefill")
	if !r.Ok() || r == d.PrimaryProfile() {
		return nil
	}
	return d.View.States[r.Picked[0]].Endpoint
}

// ScoreList returns every endpoint's total in the profile that chose:
// "pod-0=0.75,pod-1=2.4"; at most record.DefaultExplained of them.
func (d *Decision) ScoreList() string {
	r := d.PrimaryProfile()
	if r == nil {
		return ""
	}
	var b strings.Builder
	for j, i := range r.Left {
		if j >= len(r.Totals) {
			break
		}
		if j == record.DefaultExplained {
			fmt.Fprintf(&b, ",and %d more", len(r.Left)-j)
			break
		}
		if j > 0 {
			b.WriteByte(',')
		}
		b.WriteString(d.View.States[i].Name + "=" + strconv.FormatFloat(r.Totals[j], 'g', 6, 64))
	}
	return b.String()
}

// Destination returns the destination header's value: "ip:port", several separated
// by commas.
func (d *Decision) Destination() string {
	switch len(d.Targets) {
	case 0:
		return ""
	case 1:
		return d.Targets[0].HostPort
	}
	n := 0
	for i := range d.Targets {
		n += len(d.Targets[i].HostPort) + 1
	}
	b := make([]byte, 0, n)
	for i := range d.Targets {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, d.Targets[i].HostPort...)
	}
	return string(b)
}

// SetHeader adds a header to the request.
func (d *Decision) SetHeader(name, value string) {
	d.Set = append(d.Set, header.Header{Name: name, Value: value})
}

// reset readies a decision for another request and keeps its buffers.
func (d *Decision) reset(plugins int) {
	d.Err, d.Request, d.View = nil, nil, nil
	d.Candidates = nil
	d.Profiles = d.Profiles[:0]
	d.Targets = d.Targets[:0]
	d.Set, d.Drop = d.Set[:0], d.Drop[:0]
	d.Screened, d.Spans = d.Screened[:0], d.Spans[:0]
	d.Primary, d.HideScores, d.Forced, d.Handled = -1, false, false, false
	d.Disagg, d.DisaggBy = "", nil
	d.Took, d.Admission = 0, ""
	d.Saturation = -1
	d.committed, d.released = false, false
	if len(d.data) < plugins {
		d.data = append(d.data, make([]any, plugins-len(d.data))...)
		d.fresh = append(d.fresh, make([]bool, plugins-len(d.fresh))...)
	}
	clear(d.fresh)
}

// Follow makes a decision that was not committed yet choose what another
// picker's has chosen, in its own view: what plug-ins have worked out for the
// request stays. It is false where one of the endpoints is not there.
func (d *Decision) Follow(other *Decision) bool {
	d.Err, d.Forced, d.Primary = nil, true, other.Primary
	d.Profiles, d.Targets = d.Profiles[:0], append(d.Targets[:0], other.Targets...)
	for i := range other.Profiles {
		r := d.run(other.Profiles[i].Name)
		for _, n := range other.Profiles[i].Picked {
			at := d.View.Find(other.View.States[n].ID())
			if at < 0 {
				return false
			}
			r.Picked = append(r.Picked, int32(at))
		}
	}
	return true
}

// run makes room for one more profile run, reusing an old one's buffers.
func (d *Decision) run(name string) *ProfileResult {
	if n := len(d.Profiles); n < cap(d.Profiles) {
		d.Profiles = d.Profiles[:n+1]
	} else {
		d.Profiles = append(d.Profiles, ProfileResult{})
	}
	r := &d.Profiles[len(d.Profiles)-1]
	if r.Left == nil && d.cycle.p != nil {
		r.tables = d.cycle.p.tables.take()
	}
	r.Name = name
	r.Removed, r.Left, r.Raw = r.Removed[:0], r.Left[:0], r.Raw[:0]
	r.Totals, r.Tied, r.Picked = r.Totals[:0], r.Tied[:0], r.Picked[:0]
	r.Scorers, r.Picker = nil, nil
	return r
}

// InForce reports whether the decision took effect and was not released yet.
func (d *Decision) InForce() bool { return d.committed && !d.released }

// Data returns what a plug-in keeps for one decision, from Produce to Release. It
// is made at the first call; fresh reports the first call for this decision, at
// which the plug-in must reset what an earlier request left in it.
func Data[T any](d *Decision, p Plugin) (data *T, fresh bool) {
	i := p.base().index
	if t, ok := d.data[i].(*T); ok {
		fresh = !d.fresh[i]
		d.fresh[i] = true
		return t, fresh
	}
	d.fresh[i] = true
	if p := d.cycle.p; p != nil && i < len(p.data) {
		if spare, ok := p.data[i].take().(*T); ok {
			d.data[i] = spare
			return spare, true
		}
	}
	t := new(T)
	d.data[i] = t
	return t, true
}

// Peek returns what a plug-in kept for this decision, nil when it kept nothing.
func Peek[T any](d *Decision, p Plugin) *T {
	i := p.base().index
	if i < 0 || i >= len(d.data) || !d.fresh[i] {
		return nil
	}
	t, _ := d.data[i].(*T)
	return t
}

// Results hold the results of decisions, as document 003 names them.
var Results = []string{"success", "no_pods", "filtered_out", "error"}

// Result reports whether a pod was chosen, and else what was lacking.
func (d *Decision) Result() string {
	switch {
	case d.Err == nil:
		return Results[0]
	case len(d.Candidates) == 0:
		return Results[1]
	case len(d.Profiles) > 0 && !d.Profiles[len(d.Profiles)-1].Ok():
		return Results[2]
	}
	return Results[3]
}
