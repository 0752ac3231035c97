package picker

import (
	"encoding/json"
	"fmt"

	"github.com/windtunnel/windtunnel/core/flow"
)

// RecordedEndpoints is how many endpoints of a profile the record of a decision
// shows.
const RecordedEndpoints = 32

// Recorded is what the record of a request says of a decision, live and in
// virtual time: the figures that a person reads at a glance and, where somebody
// keeps it, the whole of it for windtunnel explain.
func (d *Decision) Recorded(explain bool) []flow.Detail {
	var out []flow.Detail
	if len(d.Targets) > 0 {
		out = append(out, flow.D("name", d.Targets[0].Endpoint.Name))
	}
	out = append(out, flow.D("candidates", len(d.Candidates)))
	if m := d.Request.TargetModel; m != "" {
		out = append(out, flow.D("model", m))
	}
	if r := d.PrimaryProfile(); r != nil && len(r.Scorers) > 0 {
		out = append(out, flow.D("profile", r.Name))
		scores := make([]string, 0, len(r.Left))
		for j, i := range r.Left {
			if j < len(r.Totals) {
				scores = append(scores, fmt.Sprintf("%s=%.4g", d.View.States[i].Name, r.Totals[j]))
			}
		}
		out = append(out, flow.D("scores", scores))
		if len(r.Tied) > 1 {
			out = append(out, flow.D("tied", len(r.Tied)))
		}
	}
	if d.Disagg != "" {
		out = append(out, flow.D("disaggregation", d.Disagg))
	}
	if !explain {
		return out
	}
	e := d.Explain()
	e.Trim(RecordedEndpoints)
	if text, err := json.Marshal(e); err == nil {
		out = append(out, flow.D(flow.Explanation, string(text)))
	}
	return out
}
