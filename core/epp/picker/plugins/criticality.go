package plugins

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// criticality is criticality-scorer. Document 002 gives it a weight and no
// formula; here critical requests (priority above 0) prefer the endpoints with
// the least load (1 - load), sheddable ones (below 0) those with the most, so
// that room stays for others, and standard ones have no preference (.5).
type criticality struct{ named }

// Score goes by the request's priority.
func (s *criticality) Score(c *picker.Cycle, in []int32, scores []float64) {
	for j, i := range in {
		switch p := c.Request.Objective.Priority; {
		case p > 0:
			scores[j] = 1 - load01(c.State(i))
		case p < 0:
			scores[j] = load01(c.State(i))
		default:
			scores[j] = .5
		}
	}
}
