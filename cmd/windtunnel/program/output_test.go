package program

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/limit"
)

// Every span that a summary measures can be expected in a scenario, and no
// other.
func TestSpansCanBeExpected(t *testing.T) {
	limit := scenario.Quantiles{Max: time.Second}
	all := scenario.Expectations{
		Spans: scenario.SpanExpectations{Total: limit, TTFT: limit, Pick: limit, Hold: limit, QueueP: limit,
			PrefillP: limit, Queue: limit, Prefill: limit, Decode: limit}}
	var sum report.Summary
	for _, s := range report.Spans() {
		sum.Spans = append(sum.Spans, report.SpanSummary{Name: s.Name, Max: 0.5})
	}
	got := report.JudgeBy(all.Check)(sum)
	if len(got) != len(report.Spans()) {
		t.Fatalf("%d spans are measured and %d can be expected", len(report.Spans()), len(got))
	}
	for _, e := range got {
		if !e.OK || e.Found != "500ms" {
			t.Errorf("%+v", e)
		}
	}
}

// Every measure that a summary may have can be expected, in its unit, and no other.
func TestMeasuresCanBeExpected(t *testing.T) {
	units := map[report.Unit]string{report.Seconds: "1s", report.Share: "50%", report.PerSecond: "7", report.Count: "7",
		report.Ratio: "7", report.USD: "7"}
	var names []string
	for _, m := range report.Measures() {
		names = append(names, m.Name)
		var l limit.Limit
		if err := l.UnmarshalText([]byte(m.Name + " <= " + units[m.Unit])); err != nil {
			t.Error(err)
		}
	}
	known := limit.Measures()
	slices.Sort(names)
	slices.Sort(known)
	if d := cmp.Diff(names, known); d != "" {
		t.Errorf("measures of a summary (-) and those that can be expected (+):\n%s", d)
	}
}
