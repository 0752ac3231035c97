package plugins

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
)

// sticky is sticky-session-scorer, document 003's SessionAffinity: the endpoint
// that served the session (header x-session-id) before scores by stickiness,
// high 1, medium 0.5, low 0.25; all others score 0. A session that was silent
// for ttl is forgotten.
type sticky struct {
	named
	session
	worth        float64
	hits, misses int64
}

func newSticky(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	args := struct {
		TTL        config.Duration `json:"ttl"`
		Stickiness string          `json:"stickiness"`
		Header     string          `json:"headerName"`
	}{config.Duration(300 * machine.Second), "high", picker.HeaderSessionID}
	if err := p.Decode(&args); err != nil {
		return nil, err
	}
	s := &sticky{named: base("sticky-session-scorer", name)}
	switch args.Stickiness {
	case "high":
		s.worth = 1
	case "medium":
		s.worth = .5
	case "low":
		s.worth = .25
	default:
		return nil, p.Errorf("stickiness must be high, medium or low, found %q", args.Stickiness)
	}
	if args.TTL <= 0 {
		return nil, p.Errorf("ttl must be above 0s")
	}
	s.Strategy = strategySessionID
	s.SessionID.Sources = append(s.SessionID.Sources, sessionSource{Header: args.Header})
	s.SessionID.TTLSeconds, s.SessionID.SweepSeconds = args.TTL.Time().Seconds(), 10
	s.ttl, s.bindings = args.TTL.Time(), map[string]binding{}
	return s, nil
}

// Score prefers the endpoint that the session knows.
func (s *sticky) Score(c *picker.Cycle, in []int32, scores []float64) {
	pinned := s.choose(c, s, in)
	for j, i := range in {
		if i == pinned {
			scores[j] = s.worth
		}
	}
}

// Commit remembers where the session went, and whether it stayed.
func (s *sticky) Commit(now machine.Time, d *picker.Decision) {
	if seen := picker.Peek[seenBound](d, s); seen != nil && seen.id != "" {
		was, bound := s.bindings[seen.id]
		if r := d.PrimaryProfile(); seen.present && bound && r.Ok() && d.View.States[r.Picked[0]].ID() == was.endpoint {
			s.hits++
		} else {
			s.misses++
		}
	}
	s.commit(now, d, s)
}

// Affinity is how many requests with a session went where it had been before,
// and how many did not.
func (s *sticky) Affinity() (hits, misses int64) { return s.hits, s.misses }
