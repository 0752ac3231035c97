package search

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/stats"
)

// required is an objective as the user wrote it.
type required struct {
	text    string
	measure report.Measure
	bound   float64
}

// rule returns the objective in the form that a search judges. A share becomes the share of requests that miss it.
func (b *required) rule(sampled bool) Objective {
	if b.measure.HigherIsBetter {
		return Objective{Bound: 1 - b.bound, Share: true, Sampled: sampled}
	}
	return Objective{Quantile: b.measure.Quantile(), Bound: b.bound}
}

// measured returns an estimate in the form of the answer.
func (b *required) measured(e Estimate) report.Measured {
	low, high := e.Low, e.High
	if b.measure.HigherIsBetter {
		e.Value, low, high = 1-e.Value, 1-high, 1-low
	}
	x := report.Estimate{Interval: stats.Interval{Value: e.Value, Low: low, High: high}, Sure: true}
	switch {
	case math.IsNaN(e.Value):
		x = report.Estimate{Why: "no request completed"}
	case math.IsInf(high, 0):
		x.Sure, x.Why = false, "too short: runs differ too much"
	}
	return b.measure.Measured(x)
}

// values returns the requests' values for the objective.
func (b *required) values(list []report.Ended, slo record.SLO) (out []float64) {
	for i := range list {
		e := &list[i]
		switch v, ok := b.measure.Of(e); {
		case b.measure.Name == "completed":
			out = append(out, missed(e.Completed))
		case b.measure.HigherIsBetter && e.Judged:
			out = append(out, missed(e.Good))
		case b.measure.HigherIsBetter:
			out = append(out, missed(e.Keeps(slo)))
		case ok:
			out = append(out, v)
		}
	}
	return out
}

func missed(kept bool) float64 {
	if kept {
		return 0
	}
	return 1
}

// observed returns the data of a run that a search needs, from all its requests in the order of sending.
func observed(list []report.Ended, objectives []required, slo record.SLO) (x Run) {
	machine.SortFunc(list, func(a, b report.Ended) int {
		return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Number, b.Number))
	})
	for i := range objectives {
		x.Values = append(x.Values, objectives[i].values(list[int(WarmUp*float64(len(list))):], slo))
	}
	ttft, _ := report.MeasureNamed("ttft mean")
	e2e, _ := report.MeasureNamed("e2e mean")
	mean := func(m report.Measure, list []report.Ended) (mean float64) {
		n := 0.0
		for i := range list {
			if v, ok := m.Of(&list[i]); ok {
				n++
				mean += (v - mean) / n
			}
		}
		return mean
	}
	half, after := len(list)/2, Served*(mean(e2e, list)-mean(ttft, list))
	x.Early, x.Late = mean(ttft, list[:half])+after, mean(ttft, list[half:])+after
	return x
}

// parseObjectives parses the values of --objective. Unless the user has another objective for completed, 999 of 1,000
// requests must complete, since a server that refuses requests is fast.
func parseObjectives(list []string) (out []required, err error) {
	bad := func(text string, hints ...string) error {
		return exit.Errorf(exit.Usage, "--objective: found %q; expected a latency and its bound such as "+
			"ttft.p99=200ms, of ttft, tpot or e2e at mean, p50, p90, p95 or p99, or the least share, "+
			"completed=99.9%% or attainment=95%%%s", text, strings.Join(hints, ""))
	}
	completes := false
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		m, ok := report.MeasureNamed(strings.Replace(name, ".", " ", 1))
		b := required{text: text, measure: m}
		switch {
		case !ok:
			return nil, bad(text)
		case m.Name == "completed" || m.Name == "attainment":
			number, percent := strings.CutSuffix(value, "%")
			share, err := strconv.ParseFloat(number, 64)
			if b.bound = share / 100; err != nil || !percent || !(share > 0 && share <= 100) {
				return nil, bad(text)
			}
			completes = completes || m.Name == "completed"
		case m.Unit == report.Seconds:
			var d strictyaml.Duration
			if err := d.UnmarshalText([]byte(value)); err != nil && value != "" {
				return nil, bad(text, "; "+err.Error())
			}
			if b.bound = d.Time().Seconds(); d <= 0 {
				return nil, bad(text)
			}
		default:
			return nil, bad(text)
		}
		out = append(out, b)
	}
	if len(out) == 0 {
		return nil, exit.Hint(exit.Usage, errors.New("--objective is missing: a load is judged by it"),
			"Try: windtunnel capacity mine.yaml --objective ttft.p99=200ms")
	}
	if !completes {
		m, _ := report.MeasureNamed("completed")
		out = append(out, required{"completed=99.9%", m, 0.999})
	}
	return out, nil
}
