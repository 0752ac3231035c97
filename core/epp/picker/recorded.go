package picker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/record"
)

// Recorded returns a decision's details for the record, live and in virtual time: the values that people read first
// and, with explain, the whole explanation for windtunnel explain. Each list of endpoints has the best explain
// endpoints; 0 is a default, without an explanation.
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

// best returns the totals of a profile's n best endpoints, in the pool's order.
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
