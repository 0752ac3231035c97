package session

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/machine"
)

// sessionSticky is SessionAffinity with document 003's arguments: the endpoint
// of the session for ttl; stickiness high is 1, medium .6, low .3.
type sessionSticky struct {
	sessionScorer
	stick        float64
	hits, misses int64
}

// NewSticky makes a session-sticky-scorer.
func NewSticky(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	ps := struct {
		TTL        config.Duration `json:"ttl" above:"0s"`
		Stickiness string          `json:"stickiness" oneof:"high,medium,low"`
	}{config.Duration(300 * machine.Second), "high"}
	if err := p.Decode(&ps); err != nil {
		return nil, err
	}
	stick := map[string]float64{"high": 1, "medium": .6, "low": .3}[ps.Stickiness]
	s := &sessionSticky{stick: stick}
	s.Strategy, s.ttl, s.bindings = strategySessionID, ps.TTL.Time(), newMemory[binding]()
	s.sweep = machine.Second
	return s, nil
}

// Score prefers the session's endpoint.
func (s *sessionSticky) Score(c *picker.Cycle, in []int32, scores []float64) {
	pinned := s.choose(c, in)
	for j, i := range in {
		if i == pinned {
			scores[j] = s.stick
		}
	}
}

// Commit remembers the session.
func (s *sessionSticky) Commit(now machine.Time, d *picker.Decision) {
	if id := s.sessionID(d.Request); id != "" {
		was, bound := s.bound(now, id)
		if r := d.PrimaryProfile(); bound && r.Ok() && d.View.States[r.Picked[0]].ID() == was.Endpoint {
			s.hits++
		} else {
			s.misses++
		}
	}
	s.session.Commit(now, d)
}

// Affinity returns how many requests with a session went where it had been before,
// and how many did not.
func (s *sessionSticky) Affinity() (hits, misses int64) { return s.hits, s.misses }
