package plugins

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/picker"
)

// HeaderPriority is document 003's header for quality of service. It counts
// for requests whose objective says nothing.
const HeaderPriority = "x-priority"

// criticality is criticality-scorer of document 002, which gives it a weight
// but no formula. Here the more critical a request, the more an idle endpoint
// is worth to it:
//
//	score = 0.5 + c * (idle - 0.5)
//
// c is 1 for a critical request, 0.5 for a standard and 0 for a sheddable one
// (which is then indifferent, and leaves the idle endpoints to the others).
// idle is 1 - qps/maxQps where the endpoint says so, else 1 - (waiting +
// running) / the most of any candidate. docs/documents.md has the reasons.
type criticality struct{ named }

func newCriticality(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	return &criticality{base("criticality-scorer", name)}, p.Decode(&struct{}{})
}

// Score keeps idle endpoints for critical requests.
func (s *criticality) Score(c *picker.Cycle, in []int32, scores []float64) {
	states := c.View.States
	most := int64(0)
	for _, i := range in {
		most = max(most, states[i].Waiting+states[i].Running)
	}
	level := criticalityOf(c.Request)
	for j, i := range in {
		st := &states[i]
		idle := 1.0
		switch {
		case st.Serving != nil && st.Serving.MaxQPS > 0:
			idle = 1 - qpsShare(st)
		case most > 0:
			idle = 1 - float64(st.Waiting+st.Running)/float64(most)
		}
		scores[j] = .5 + float64(level*(idle-.5))
	}
}

// criticalityOf is a request's place between sheddable (0) and critical (1):
// the sign of its InferenceObjective's priority (which is also what an
// InferenceModel's criticality becomes), else the header x-priority.
func criticalityOf(r *picker.Request) float64 {
	switch p := r.Objective.Priority; {
	case p > 0:
		return 1
	case p < 0:
		return 0
	case r.Objective.Name != "":
		return .5
	}
	v, _ := r.Headers.Get(HeaderPriority)
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "critical", "high":
		return 1
	case "sheddable", "low":
		return 0
	}
	return .5
}
