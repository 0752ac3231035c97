package picker

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Cycle is one Pick in progress, as plug-ins see it.
type Cycle struct {
	Now      machine.Time
	Request  *Request
	View     *View
	Decision *Decision
	// Candidates are the endpoints after subset and screeners, with which profiles begin. Plug-ins must not change
	// them.
	Candidates []int32

	p       *Picker
	answers []Answer
	running Plugin // the plug-in to name in a panic
	peer    int32  // the primary profile's endpoint while a second profile runs, -1 for none
	seed    uint64
	brief   bool // only the chosen endpoints of the decision are read
	all     bool // every endpoint of the pool is a candidate
}

// State returns the endpoint at an index of the View, with its metrics.
func (c *Cycle) State(i int32) *State { return &c.View.States[i] }

// Answer returns the answer to a plug-in's Need, nil if there is none.
func (c *Cycle) Answer(p Plugin, key string) *Answer {
	for i := range c.answers {
		if c.answers[i].Plugin == p.Name() && c.answers[i].Key == key {
			return &c.answers[i]
		}
	}
	return nil
}

// Draw returns a source of random values for this request and purpose. The same
// seed, request and purpose give the same values, whatever else is drawn.
func (c *Cycle) Draw(purpose string) machine.Draw {
	return machine.DrawFor(c.seed, "picker", purpose, c.Request.ID)
}

// Peer returns the endpoint that an earlier profile of this request chose (the decode endpoint while a prefill endpoint
// is chosen), or -1.
func (c *Cycle) Peer() int32 { return c.peer }

// SetPeer sets the endpoint that Peer returns in later profiles.
func (c *Cycle) SetPeer(i int32) { c.peer = i }

// HasProfile reports whether a profile is configured.
func (c *Cycle) HasProfile(name string) bool { return c.p.profile(name) != nil }

// Profiles returns the configured profile names, in order.
func (c *Cycle) Profiles() []string { return c.p.profileNames }

// SetPrimary names the profile run whose endpoints are the destination.
func (c *Cycle) SetPrimary(name string) {
	for i := range c.Decision.Profiles {
		if c.Decision.Profiles[i].Name == name {
			c.Decision.Primary = i
		}
	}
}

// Run runs one profile: filters in order, then scorers, then its picker. The result's Ok is false if no endpoint was
// left. Run returns nil if there is no such profile. The result is valid until the next Run.
func (c *Cycle) Run(name string) *ProfileResult {
	pr := c.p.profile(name)
	if pr == nil {
		return nil
	}
	d := c.Decision
	r := d.run(name)
	scorers, own := c.weighed(pr.scorers)
	if c.brief && c.all && !own && c.runBriefly(pr, r) {
		return r
	}
	r.Left = append(r.Left, c.Candidates...)
	for _, f := range pr.filters {
		if d.Detail {
			d.scratch = append(d.scratch[:0], r.Left...)
		}
		t := c.startTurn(f)
		r.Left = f.Filter(c, r.Left)
		c.endTurn("Filter", f, t)
		if d.Detail && len(r.Left) < len(d.scratch) {
			r.Removed = appendRemoval(r.Removed, f, d.scratch, r.Left)
		}
		if len(r.Left) == 0 {
			return r
		}
	}
	if len(r.Left) == 0 {
		return r
	}
	n := len(r.Left)
	r.Scorers = scorers
	r.rawBuf = grow(r.rawBuf, n*len(pr.scorers))
	r.Totals = grow(r.Totals, n)
	clear(r.Totals)
	for i := range r.Scorers {
		s := &r.Scorers[i]
		raw := r.rawBuf[i*n : (i+1)*n : (i+1)*n]
		clear(raw)
		t := c.startTurn(s.Scorer)
		s.Scorer.Score(c, r.Left, raw)
		c.endTurn("Scorer", s.Scorer, t)
		w, totals := s.Weight, r.Totals[:len(raw)]
		for j, v := range raw {
			if !(v >= 0) { // includes NaN
				v, raw[j] = 0, 0
			} else if v > 1 {
				v, raw[j] = 1, 1
			}
			totals[j] += float64(v * w) // no fused multiply-add, for the same digits on every machine
		}
		r.Raw = append(r.Raw, raw)
	}
	t := c.startTurn(pr.picker)
	r.Picker = pr.picker
	r.Picked = pr.picker.PickEndpoints(c, r.Left, r.Totals, r.Picked)
	c.endTurn("Picker", pr.picker, t)
	if force := c.p.opt.Force; force != nil {
		if forced := force(c, name, r.Left); len(forced) > 0 {
			r.Picked = append(r.Picked[:0], forced...)
		}
	}
	if d.Detail {
		r.Tied = appendTied(r.Tied, r.Left, r.Totals)
	}
	return r
}

// weighed returns a profile's scorers with their weights for this request, and whether these differ from the profile's.
func (c *Cycle) weighed(list []WeightedScorer) (out []WeightedScorer, own bool) {
	out = list
	for _, x := range c.p.weighers {
		c.running = x
		for i := range list {
			if by := x.Weigh(c.Request, list[i].Scorer); by != 1 {
				if !own {
					out, own = slices.Clone(list), true
				}
				out[i].Weight *= by
			}
		}
	}
	return out, own
}

// runBriefly runs a profile from the changes since its last run, or without scores where its picker reads none. It
// returns false if neither is possible. The result holds only the chosen endpoint.
func (c *Cycle) runBriefly(pr *profile, r *ProfileResult) bool {
	switch {
	case pr.standing != nil:
		endpoint, total, ok := pr.standing.pick(c, pr.picker.(BestPicker))
		if !ok {
			return false
		}
		r.Picked, r.Totals = append(r.Picked, endpoint), append(r.Totals, total)
	case pr.blind:
		c.running = pr.picker
		r.Picked = pr.picker.PickEndpoints(c, c.Candidates, nil, r.Picked)
		r.Totals = append(r.Totals, 0)
	default:
		return false
	}
	r.Left, r.Scorers, r.Picker = append(r.Left, r.Picked...), pr.scorers, pr.picker
	return true
}

// startTurn notes that a plug-in runs, and endTurn how long it took by the driver's stopwatch.
func (c *Cycle) startTurn(p Plugin) machine.Time {
	c.running = p
	return c.p.Stopwatch()
}

func (c *Cycle) endTurn(point string, p Plugin, began machine.Time) {
	if c.p.opt.Stopwatch != nil {
		c.Decision.Spans = append(c.Decision.Spans, Span{point, p, c.p.opt.Stopwatch() - began})
	}
}

// handled records the handler's calls as the real EPP counts them: one for each profile that it chose, one in which it
// chose none, and one for the results, if there are any. Their time excludes the profiles' plug-ins.
func (c *Cycle) handled(h Plugin, began machine.Time, first int) {
	if c.p.opt.Stopwatch == nil {
		return
	}
	d := c.Decision
	own := c.p.opt.Stopwatch() - began
	for _, s := range d.Spans[first:] {
		own -= s.Took
	}
	turns := len(d.Profiles) + 1
	for range turns {
		d.Spans = append(d.Spans, Span{"ProfilePicker", h, max(0, own) / machine.Time(turns)})
	}
	if len(d.Profiles) > 0 {
		d.Spans = append(d.Spans, Span{"ProcessProfilesResults", h, 0})
	}
}

func grow(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n, n+n/4)
	}
	return s[:n]
}

// appendRemoval records the difference between before and after, which have the same order. It reuses an old record's
// memory.
func appendRemoval(list []Removal, by Plugin, before, after []int32) []Removal {
	if n := len(list); n < cap(list) {
		list = list[:n+1]
	} else {
		list = append(list, Removal{})
	}
	r := &list[len(list)-1]
	r.By, r.Removed = by, r.Removed[:0]
	j := 0
	for _, i := range before {
		if j < len(after) && after[j] == i {
			j++
			continue
		}
		r.Removed = append(r.Removed, i)
	}
	return list
}

func appendTied(tied, left []int32, totals []float64) []int32 {
	best, n := totals[0], 0
	for _, v := range totals {
		if v > best {
			best, n = v, 1
		} else if v == best {
			n++
		}
	}
	if n < 2 {
		return tied
	}
	for i, v := range totals {
		if v == best {
			tied = append(tied, left[i])
		}
	}
	return tied
}
