package inputlog

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
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

	endpoints map[string]*MovedEndpoint
	reasons   map[string]int
	scores    map[string]*MovedScore
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
	slices.SortStableFunc(out, func(a, b MovedReason) int { return cmp.Compare(b.Requests, a.Requests) })
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

// Look compares a recorded decision with the other configuration's own.
func (m *Moves) Look(r *epp.Request, own *picker.Decision) {
	was := r.Decision
	switch {
	case was == nil || was.Err != nil && len(was.Profiles) == 0 && len(was.Candidates) == 0:
		m.Queue++
		return
	case r.HeaderOnly(), was.Err != nil && len(was.Targets) > 0: // it failed when it took effect
		return
	}
	if m.endpoints == nil {
		m.endpoints, m.reasons, m.scores = map[string]*MovedEndpoint{}, map[string]int{}, map[string]*MovedScore{}
	}
	m.Decisions++
	from, to := destination(was), destination(own)
	if from != "" {
		m.endpoint(from).Recorded++
	}
	if to != "" {
		m.endpoint(to).Other++
	}
	m.compareScores(was, own)
	switch {
	case from == "" && to == "":
		return
	case to == "":
		m.Refused++
		m.reasons["refused: "+own.Err.Message]++
		return
	case from == "":
		m.Admitted++
		m.reasons["no longer refused: "+was.Err.Message]++
		return
	}
	if prefiller(was) != prefiller(own) {
		m.Prefill++
	}
	if from != to {
		m.Moved++
		m.endpoint(from).Moved++
		m.reasons[reason(was, own, from, to)]++
	}
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

// reason returns the reason for which another configuration chose to and not from.
func reason(was, own *picker.Decision, from, to string) string {
	if by := remover(own, from); by != "" {
		return by + " takes the recorded endpoint out"
	}
	if by := remover(was, to); by != "" {
		return by + " took the other endpoint out"
	}
	a, b := was.PrimaryProfile(), own.PrimaryProfile()
	if a == nil || b == nil {
		return "the profile handler"
	}
	if b.Total(index(own, from)) == b.Total(index(own, to)) {
		return "a tie, which is drawn"
	}
	// The reason is the scorer whose preference for the other endpoint grew most.
	change := map[string]float64{}
	add := func(d *picker.Decision, r *picker.ProfileResult, sign float64) {
		for i := range r.Raw {
			x, _ := score(d, r, i, to)
			y, _ := score(d, r, i, from)
			change[r.Scorers[i].Scorer.Name()] += sign * r.Scorers[i].Weight * (x - y)
		}
	}
	add(own, b, 1)
	add(was, a, -1)
	best, most := "", 1e-12
	for _, name := range slices.Sorted(maps.Keys(change)) {
		if change[name] > most {
			best, most = name, change[name]
		}
	}
	if best == "" {
		if b.Picker != nil {
			return "picker " + b.Picker.Name()
		}
		return "the picker"
	}
	return "scorer " + best
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
