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

// Decision is the result of one Pick, and the argument of all later calls: Commit, Response, Release. Picker.Pick
// resets a released decision for another request and reuses its buffers.
type Decision struct {
	Request *Request
	View    *View
	At      machine.Time

	// Err is the reason for no endpoint. Everything below may then be incomplete.
	Err *apierror.Error

	// Candidates are the endpoints after subset and screeners. Nothing may change them.
	Candidates []int32
	// Profiles are the profile runs in order.
	Profiles []ProfileResult
	// Primary is the index of the run whose endpoints are the destination.
	Primary int
	// Targets are the destination endpoints, best first.
	Targets []Target
	// HideScores is true if the destination was rewritten, so that the scores would name other addresses.
	HideScores bool
	// Set and Drop are headers that plug-ins add to the request or remove from it.
	Set  header.List
	Drop []string
	// Screened lists the endpoints that each screener removed (with Detail).
	Screened []Removal
	// Disagg is the kind of disaggregation that a profile handler chose ("decode-only", "prefill-decode", ...), ""
	// without such a handler. DisaggBy is the handler.
	Disagg   string
	DisaggBy Plugin
	// Handled is true once the profile handler ran: nothing refused the request before.
	Handled bool
	// Detail states that the record is complete and includes removals and ties.
	Detail bool
	// Saturation of the candidates, if admission computed it; else -1.
	Saturation float64

	// Spans are the plug-ins' durations (with Options.Stopwatch).
	Spans []Span
	// Took is the decision's whole duration, and Admission the outcome of flow control in words. The driver sets both,
	// for Explain.
	Took      machine.Time
	Admission string

	cycle     Cycle
	data      []any
	fresh     []bool
	committed bool
	released  bool
	scratch   []int32
	own       []int32 // memory for Candidates, if they are not all endpoints
}

// Span is one call of a plug-in. Point is the value of the label extension_point of llm_d_epp_plugin_duration_seconds.
type Span struct {
	Point  string
	Plugin Plugin
	Took   machine.Time
}

// Target is one destination endpoint.
type Target struct {
	Endpoint *Endpoint
	// HostPort is the request's destination. It differs from the endpoint's own when a data-parallel handler rewrites
	// the port.
	HostPort string
	Score    float64
}

// Removal lists the endpoints that one filter removed, as indexes of the View.
type Removal struct {
	By      Plugin
	Removed []int32
}

// ProfileResult is one run of a profile.
type ProfileResult struct {
	Name string
	tables
	Scorers []WeightedScorer
	// Picked are the chosen endpoints, best first, and Picker the plug-in that chose them. A failed run has none.
	Picked []int32
	Picker Plugin
}

// tables hold a run's values for every endpoint. In a large pool they are nearly all of a decision's memory.
type tables struct {
	// Removed lists the endpoints that each filter removed, in order (with Detail).
	Removed []Removal
	// Left are the endpoints after all filters. Raw and Totals have the same order.
	Left []int32
	// Raw[i] are scorer i's clamped scores, len(Left) of them; Totals are the weighted sums.
	Raw    [][]float64
	Totals []float64
	// Tied are the endpoints that shared the best total, if more than one did (with Detail). The picker drew one of
	// them at random.
	Tied []int32

	rawBuf []float64
}

// freeList holds memory of stripped decisions for the next ones.
type freeList[T any] struct{ list []T }

func (s *freeList[T]) take() (x T) {
	if n := len(s.list); n > 0 {
		x, s.list = s.list[n-1], s.list[:n-1]
	}
	return x
}

// Strip makes a decision drop the endpoints that it did not choose, once they are recorded. The decision stays in
// flight as long as its request; the next decision reuses the dropped memory.
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
		if _, reusable := x.(Reusable); reusable {
			for len(p.data) <= i {
				p.data = append(p.data, freeList[any]{})
			}
			p.data[i].list = append(p.data[i].list, x)
			d.data[i], d.fresh[i] = nil, false
		}
	}
}

// Reusable marks data that a plug-in keeps for a decision (Data) and does not need once the decision has taken effect.
type Reusable interface{ Reusable() }

// WeightedScorer is a scorer and its weight in a profile.
type WeightedScorer struct {
	Scorer Scorer
	Weight float64
}

// Ok reports whether the run found an endpoint.
func (r *ProfileResult) Ok() bool { return r != nil && len(r.Picked) > 0 }

// Profile returns the run of the named profile, nil if it did not run.
func (d *Decision) Profile(name string) *ProfileResult {
	for i := range d.Profiles {
		if d.Profiles[i].Name == name {
			return &d.Profiles[i]
		}
	}
	return nil
}

// PrimaryProfile returns the run whose endpoints are the destination, nil if there is none.
func (d *Decision) PrimaryProfile() *ProfileResult {
	if d.Primary < 0 || d.Primary >= len(d.Profiles) {
		return nil
	}
	return &d.Profiles[d.Primary]
}

// Prefiller returns the endpoint that prefills for the destination, nil if none does.
func (d *Decision) Prefiller() *Endpoint {
	r := d.Profile("prefill")
	if !r.Ok() || r == d.PrimaryProfile() {
		return nil
	}
	return d.View.States[r.Picked[0]].Endpoint
}

// ScoreList returns the endpoints' totals in the profile that chose, as "pod-0=0.75,pod-1=2.4"; at most
// record.DefaultExplained of them.
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

// Destination returns the destination header's value: one "ip:port" or several separated by commas.
func (d *Decision) Destination() (all string) {
	for i := range d.Targets {
		if i > 0 {
			all += ","
		}
		all += d.Targets[i].HostPort // no copy where there is only one
	}
	return all
}

// SetHeader adds a header to the request.
func (d *Decision) SetHeader(name, value string) {
	d.Set = append(d.Set, header.Header{Name: name, Value: value})
}

// reset prepares a decision for another request and keeps its buffers.
func (d *Decision) reset(plugins int) {
	d.Err, d.Request, d.View = nil, nil, nil
	d.Candidates = nil
	d.Profiles = d.Profiles[:0]
	d.Targets = d.Targets[:0]
	d.Set, d.Drop = d.Set[:0], d.Drop[:0]
	d.Screened, d.Spans = d.Screened[:0], d.Spans[:0]
	d.Primary, d.HideScores, d.Handled = -1, false, false
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

// Follow makes an uncommitted decision choose the endpoints of another picker's decision, in its own view. The
// plug-ins' data for the request stays. Follow returns false if the view lacks one of the endpoints.
func (d *Decision) Follow(other *Decision) bool {
	d.Err, d.Primary = nil, other.Primary
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

// run returns one more profile run, with an old one's buffers if there are any.
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

// InForce reports whether the decision has taken effect and was not released yet.
func (d *Decision) InForce() bool { return d.committed && !d.released }

// Data returns a plug-in's data for one decision, from Produce to Release. The first call allocates it. fresh is true
// at the first call for this decision: the plug-in must then reset what an earlier request left.
func Data[T any](d *Decision, p Plugin) (data *T, fresh bool) {
	i := p.base().index
	if t, ok := d.data[i].(*T); ok {
		fresh = !d.fresh[i]
		d.fresh[i] = true
		return t, fresh
	}
	d.fresh[i] = true
	if p := d.cycle.p; p != nil && i < len(p.data) {
		if old, ok := p.data[i].take().(*T); ok {
			d.data[i] = old
			return old, true
		}
	}
	t := new(T)
	d.data[i] = t
	return t, true
}

// Peek returns a plug-in's data for this decision, nil if it kept none.
func Peek[T any](d *Decision, p Plugin) *T {
	i := p.base().index
	if i < 0 || i >= len(d.data) || !d.fresh[i] {
		return nil
	}
	t, _ := d.data[i].(*T)
	return t
}

// Results are the results of decisions, as document 003 names them.
var Results = []string{"success", "no_pods", "filtered_out", "error"}

// Result returns one of Results: success, or why no pod was chosen.
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
