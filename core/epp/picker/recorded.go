package picker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/record"
)

// Recorded is what the record of a request says of a decision, live and in
// virtual time: the metrics that a person reads at a glance and, where somebody
// keeps it, the whole of it for windtunnel explain. Each list of endpoints has
// the best of them, so many as explain says, or a default where that is 0 and
// nothing is explained.
func (d *Decision) Recorded(explain int) []record.Detail {
	var out []record.Detail
	if len(d.Targets) > 0 {
		out = append(out, record.D("name", d.Targets[0].Endpoint.Name))
	}
	out = append(out, record.D("candidates", len(d.Candidates)))
	if m := d.Request.TargetModel; m != "" {
		out = append(out, record.D("model", m))
	}
	if r := d.PrimaryProfile(); r != nil && len(r.Scorers) > 0 {
		out = append(out, record.D("profile", r.Name))
		out = append(out, record.D("scores", d.best(r, cmp.Or(explain, record.DefaultExplained))))
		if len(r.Tied) > 1 {
			out = append(out, record.D("tied", len(r.Tied)))
		}
	}
	if d.Disagg != "" {
		out = append(out, record.D("disaggregation", d.Disagg))
	}
	if explain == 0 {
		return out
	}
	e := d.Explain()
	e.Trim(explain)
	return append(out, record.D(record.Explanation, e))
}

// best returns the total scores of a profile's n best endpoints, in the order of the
// pool.
func (d *Decision) best(r *ProfileResult, n int) []string {
	list := make([]int, min(len(r.Left), len(r.Totals)))
	for j := range list {
		list[j] = j
	}
	if len(list) > n {
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(r.Totals[b], r.Totals[a]) })
		list = list[:n]
		slices.Sort(list)
	}
	scores := make([]string, len(list))
	for k, j := range list {
		scores[k] = fmt.Sprintf("%s=%.4g", d.View.States[r.Left[j]].Name, r.Totals[j])
	}
	return scores
}
