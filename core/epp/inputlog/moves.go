package inputlog

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Moves counts the decisions that another configuration would have made differently; Look is for Other.
type Moves struct {
	// Decisions are the compared decisions: about requests with a body that at least one of the two could decide. Moved
	// are those with another destination, and Prefill those with another prefill endpoint, or none in place of one.
	Decisions int `json:"decisions"`
	Moved     int `json:"moved"`
	Prefill   int `json:"prefillMoved"`
	// Refused are requests that only the other configuration refuses, and Admitted those that only the recorded one
	// refused when it picked. Queue are requests that flow control refused without a decision.
	Refused  int `json:"refused"`
	Admitted int `json:"admitted"`
	Queue    int `json:"refusedInQueue"`
	// Requests are the requests that the other configuration treats differently, in order: the latest Most of them,
	// all if Most is 0.
	Requests []MovedRequest `json:"requests"`
	Most     int            `json:"-"`

	endpoints map[string]*MovedEndpoint
	reasons   map[string]int
	scores    map[string]*MovedScore
}

// MovedRequest is a request that another configuration treats differently.
type MovedRequest struct {
	Request string `json:"request"`
	// From is the recorded endpoint, as namespace/name, and To the other configuration's; "" where it refuses the
	// request. PrefillFrom and PrefillTo are the prefill endpoints, if they differ.
	From        string `json:"from"`
	To          string `json:"to"`
	PrefillFrom string `json:"prefillFrom,omitempty"`
	PrefillTo   string `json:"prefillTo,omitempty"`
	// Why is the reason in words. Scores are the scorers whose preference for To over From changed, the greatest
	// change first.
	Why    string         `json:"why"`
	Scores []ChangedScore `json:"scores,omitempty"`
}

// Text returns the difference and its reason in words: "a → b  queue-scorer +0.2 → +1", where the numbers are a changed
// score's Recorded and Other.
func (x *MovedRequest) Text() string {
	name := func(id string) string { return cmp.Or(id[strings.LastIndexByte(id, '/')+1:], "none") }
	from, to := name(x.From), name(x.To)
	if x.From == x.To {
		from, to = "prefill "+name(x.PrefillFrom), name(x.PrefillTo)
	}
	var why []string
	if len(x.Scores) == 0 || !strings.HasPrefix(x.Why, "scorer ") {
		why = []string{x.Why}
	}
	for _, s := range x.Scores {
		why = append(why, fmt.Sprintf("%s %+.3g → %+.3g", s.Scorer, s.Recorded, s.Other))
	}
	return fmt.Sprintf("%s → %s  %s", from, to, strings.Join(why, ", "))
}

// ChangedScore is by how much a scorer prefers the other endpoint to the recorded one, weighted, by each configuration.
type ChangedScore struct {
	Scorer   string  `json:"scorer"`
	Recorded float64 `json:"recorded"`
	Other    float64 `json:"other"`
}

// MovedEndpoint counts the requests that an endpoint had, and would have had.
type MovedEndpoint struct {
	Endpoint string `json:"endpoint"` // namespace/name
	Recorded int    `json:"recorded"`
	Other    int    `json:"other"`
	Moved    int    `json:"moved"` // from it to others
}

// MovedReason counts the requests that moved for one reason.
type MovedReason struct {
	Reason   string `json:"reason"`
	Requests int    `json:"requests"`
}

// MovedScore is the distance between the scores of a scorer that both configurations have.
type MovedScore struct {
	Scorer   string  `json:"scorer"`
	Compared int     `json:"compared"` // scores: one for each request and endpoint
	Mean     float64 `json:"meanDifference"`
	Largest  float64 `json:"largestDifference"`
	sum      float64
}

// Endpoints returns the endpoints by name.
func (m *Moves) Endpoints() []MovedEndpoint {
	out := make([]MovedEndpoint, 0, len(m.endpoints))
	for _, id := range slices.Sorted(maps.Keys(m.endpoints)) {
		out = append(out, *m.endpoints[id])
	}
	return out
}

// Reasons returns the reasons, the most frequent first.
func (m *Moves) Reasons() []MovedReason {
	out := make([]MovedReason, 0, len(m.reasons))
	for _, why := range slices.Sorted(maps.Keys(m.reasons)) {
		out = append(out, MovedReason{why, m.reasons[why]})
	}
	machine.SortStableFunc(out, func(a, b MovedReason) int { return cmp.Compare(b.Requests, a.Requests) })
	return out
}

// Scores returns the scorers by name.
func (m *Moves) Scores() []MovedScore {
	out := make([]MovedScore, 0, len(m.scores))
	for _, name := range slices.Sorted(maps.Keys(m.scores)) {
		s := *m.scores[name]
		s.Mean = s.sum / float64(s.Compared)
		out = append(out, s)
	}
	return out
}

// Look compares a recorded decision with the other configuration's own. It returns the difference, nil without one.
func (m *Moves) Look(r *epp.Request, own *picker.Decision) *MovedRequest {
	was := r.Decision
	switch {
	case was == nil || was.Err != nil && len(was.Profiles) == 0 && len(was.Candidates) == 0:
		m.Queue++
		return nil
	case r.HeaderOnly(), was.Err != nil && len(was.Targets) > 0: // it failed when it took effect
		return nil
	}
	if m.endpoints == nil {
		m.endpoints, m.reasons, m.scores = map[string]*MovedEndpoint{}, map[string]int{}, map[string]*MovedScore{}
	}
	m.Decisions++
	x := MovedRequest{Request: r.ID, From: destination(was), To: destination(own)}
	if x.From != "" {
		m.endpoint(x.From).Recorded++
	}
	if x.To != "" {
		m.endpoint(x.To).Other++
	}
	m.compareScores(was, own)
	switch from, to := prefiller(was), prefiller(own); {
	case x.From == "" && x.To == "":
		return nil
	case x.To == "":
		m.Refused++
		x.Why = "refused: " + own.Err.Message
	case x.From == "":
		m.Admitted++
		x.Why = "no longer refused: " + was.Err.Message
	case from != to:
		m.Prefill++
		x.PrefillFrom, x.PrefillTo, x.Why = from, to, "prefilled elsewhere"
	}
	if x.From != "" && x.To != "" && x.From != x.To {
		m.Moved++
		m.endpoint(x.From).Moved++
		x.Why, x.Scores = reason(was, own, x.From, x.To)
	}
	if x.Why == "" {
		return nil
	}
	if x.From != x.To {
		m.reasons[x.Why]++
	}
	if m.Requests = append(m.Requests, x); m.Most > 0 && len(m.Requests) > m.Most {
		m.Requests = m.Requests[1:]
	}
	return &x
}

func (m *Moves) endpoint(id string) *MovedEndpoint {
	if m.endpoints[id] == nil {
		m.endpoints[id] = &MovedEndpoint{Endpoint: id}
	}
	return m.endpoints[id]
}

func destination(d *picker.Decision) string {
	if d.Err != nil || len(d.Targets) == 0 {
		return ""
	}
	return d.Targets[0].Endpoint.ID()
}

func prefiller(d *picker.Decision) string {
	if e := d.Prefiller(); e != nil {
		return e.ID()
	}
	return ""
}

// compareScores adds the distances between the scores of scorers and endpoints that both decisions have.
func (m *Moves) compareScores(was, own *picker.Decision) {
	a, b := was.PrimaryProfile(), own.PrimaryProfile()
	if a == nil || b == nil {
		return
	}
	for i := range b.Raw {
		name := b.Scorers[i].Scorer.Name()
		j := slices.IndexFunc(a.Scorers, func(s picker.WeightedScorer) bool { return s.Scorer.Name() == name })
		if j < 0 || j >= len(a.Raw) {
			continue
		}
		s := m.scores[name]
		if s == nil {
			s = &MovedScore{Scorer: name}
			m.scores[name] = s
		}
		for k, n := range b.Left {
			if v, ok := score(was, a, j, own.View.States[n].ID()); ok {
				d := math.Abs(b.Raw[i][k] - v)
				s.Compared++
				s.sum += d
				s.Largest = max(s.Largest, d)
			}
		}
	}
}

// score returns a profile's score of an endpoint.
func score(d *picker.Decision, r *picker.ProfileResult, scorer int, endpoint string) (float64, bool) {
	for k, n := range r.Left {
		if d.View.States[n].ID() == endpoint {
			return r.Raw[scorer][k], true
		}
	}
	return 0, false
}

// reason returns the reason for which another configuration chose to and not from, and the scorers whose preference for
// to changed.
func reason(was, own *picker.Decision, from, to string) (string, []ChangedScore) {
	if by := remover(own, from); by != "" {
		return by + " takes the recorded endpoint out", nil
	}
	if by := remover(was, to); by != "" {
		return by + " took the other endpoint out", nil
	}
	a, b := was.PrimaryProfile(), own.PrimaryProfile()
	if a == nil || b == nil {
		return "the profile handler", nil
	}
	list := changes(was, own, from, to)
	if b.Total(index(own, from)) == b.Total(index(own, to)) {
		return "a tie, which is drawn", list
	}
	// The reason is the scorer whose preference for the other endpoint grew most.
	if i := slices.IndexFunc(list, func(x ChangedScore) bool { return x.Other > x.Recorded }); i >= 0 {
		return "scorer " + list[i].Scorer, list
	}
	if b.Picker != nil {
		return "picker " + b.Picker.Name(), list
	}
	return "the picker", list
}

// changes returns the scorers whose preference for to over from differs between two decisions, the greatest change
// first.
func changes(was, own *picker.Decision, from, to string) (list []ChangedScore) {
	prefers := func(d *picker.Decision, name string) (sum float64) {
		r := d.PrimaryProfile()
		for i := range r.Raw {
			if r.Scorers[i].Scorer.Name() == name {
				x, _ := score(d, r, i, to)
				y, _ := score(d, r, i, from)
				sum += r.Scorers[i].Weight * (x - y)
			}
		}
		return sum
	}
	names := map[string]bool{}
	for _, d := range []*picker.Decision{was, own} {
		for _, s := range d.PrimaryProfile().Scorers {
			names[s.Scorer.Name()] = true
		}
	}
	change := func(x ChangedScore) float64 { return math.Abs(x.Other - x.Recorded) }
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if x := (ChangedScore{name, prefers(was, name), prefers(own, name)}); change(x) > 1e-12 {
			list = append(list, x)
		}
	}
	machine.SortStableFunc(list, func(a, b ChangedScore) int { return cmp.Compare(change(b), change(a)) })
	return list
}

func index(d *picker.Decision, id string) int32 { return int32(d.View.Find(id)) }

// remover returns the screener or filter that removed an endpoint, "" if none did.
func remover(d *picker.Decision, id string) string {
	removed := func(kind string, list []picker.Removal) string {
		for i := range list {
			for _, n := range list[i].Removed {
				if d.View.States[n].ID() == id {
					return kind + " " + list[i].By.Name()
				}
			}
		}
		return ""
	}
	if by := removed("screener", d.Screened); by != "" {
		return by
	}
	if r := d.PrimaryProfile(); r != nil {
		return removed("filter", r.Removed)
	}
	return ""
}
