package program

import (
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// Every span that a summary measures can be expected in a scenario, and no
// other.
func TestSpansCanBeExpected(t *testing.T) {
	limit := scenario.Quantiles{Max: time.Second}
	all := scenario.Expectations{Spans: scenario.SpanExpectations{Total: limit, TTFT: limit, Pick: limit, Hold: limit, QueueP: limit, PrefillP: limit, Queue: limit, Prefill: limit, Decode: limit}}
	var sum report.Summary
	for _, s := range report.Spans() {
		sum.Spans = append(sum.Spans, report.SpanSummary{Name: s.Name, Max: 0.5})
	}
	got := judge(&all, sum)
	if len(got) != len(report.Spans()) {
		t.Fatalf("%d spans are measured and %d can be expected", len(report.Spans()), len(got))
	}
	for _, e := range got {
		if !e.OK || e.Found != "500ms" {
			t.Errorf("%+v", e)
		}
	}
}
