package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
)

// Differences above the tolerance and above a timer's error are reported, and so are outcomes.
func TestCompareTimes(t *testing.T) {
	live := report.Summary{Requests: 10, Outcomes: map[record.Outcome]int{record.Completed: 10},
		Spans: []report.SpanSummary{
			{Name: "ttft", P50: 0.100, P90: 0.200, P99: 0.300}, {Name: "pick", P50: 0.0001, P90: 0.0002, P99: 0.0003}}}
	virtual := report.Summary{Requests: 10, Outcomes: map[record.Outcome]int{record.Completed: 9, record.TimedOut: 1},
		Spans: []report.SpanSummary{
			{Name: "ttft", P50: 0.104, P90: 0.220, P99: 0.400}, {Name: "pick"}}}
	x := compareTimes(live, virtual, 5)
	x.answer()
	if got := strings.Join(x.over(), ", "); got != "ttft p90 (+10.0%)" {
		t.Errorf("pointed out is %q", got)
	}
	want := "10 ended completed live and 9 in virtual time; 0 ended timed_out live and 1 in virtual time"
	if !strings.Contains(x.Answer, want) {
		t.Errorf("the answer is %q, expected %q in it", x.Answer, want)
	}
	live.Spans, virtual.Spans = tokenTimes([]float64{0.006, 0.005}), tokenTimes([]float64{0.0053, 0.0061})
	if x = compareTimes(live, virtual, 5); strings.Join(x.over(), ", ") != "tpot p50 (+6.0%)" {
		t.Errorf("of times per token is pointed out %q", x.over())
	}
	if x = compareTimes(live, live, 5); len(x.over())+len(x.Outcomes) > 0 {
		t.Errorf("a summary differs from itself: %+v", x)
	}
}

// Each request is compared with itself. The result names requests with another outcome, even if the counts are equal,
// with another server, with the largest difference, and in one run alone.
func TestCompareRequests(t *testing.T) {
	one := func(number int32, o record.Outcome, server string, ttft, e2e machine.Time) *oneRequest {
		return &oneRequest{id: fmt.Sprint("req-", number), server: server, outcome: o,
			ended: report.Ended{Number: number, TTFT: ttft * machine.Microsecond, E2E: e2e * machine.Microsecond,
				Tokens: 3, Completed: o == record.Completed}}
	}
	live := Requests{1: one(1, record.Completed, "a", 100e3, 200e3), 2: one(2, record.Completed, "a", 100e3, 210e3),
		3: one(3, record.TimedOut, "b", 0, 900e3), 4: one(4, record.Completed, "b", 100e3, 200e3)}
	virtual := Requests{1: one(1, record.Completed, "b", 101e3, 204e3), 2: one(2, record.TimedOut, "a", 0, 900e3),
		3: one(3, record.Completed, "b", 100e3, 200e3), 4: one(4, record.Completed, "b", 130e3, 210e3),
		5: one(5, record.Completed, "", 1, 2)}
	x := &Result{Requests: 4}
	x.eachRequest(live, virtual)
	want := []apart{
		{Span: "total", Requests: 2, P50: 0.004, P90: 0.01, Most: 0.01, Request: "req-4", Live: 0.2, Virtual: 0.21},
		{Span: "ttft", Requests: 2, P50: 0.001, P90: 0.03, Most: 0.03, Request: "req-4", Live: 0.1, Virtual: 0.13},
		{Span: "tpot", Requests: 2, P50: 0.0015, P90: 0.01, Most: 0.01, Request: "req-4", Live: 0.05, Virtual: 0.04}}
	if d := cmp.Diff(want, x.PerRequest); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]ends{{"req-2", "completed", "timed_out"}, {"req-3", "timed_out", "completed"},
		{"req-5", "", "completed"}}, x.Ends); d != "" || x.Otherwise != 3 {
		t.Error(x.Otherwise, d)
	}
	if d := cmp.Diff([]ends{{"req-1", "a", "b"}}, x.Servers); d != "" || x.Moved != 1 {
		t.Error(x.Moved, d)
	}
	x.answer()
	for _, want := range []string{
		"3 of 4 requests ended otherwise, the first req-2: completed live, timed_out in virtual time",
		"1 of 4 requests went to another server, the first req-1: a live, b in virtual time"} {
		if !strings.Contains(x.Answer, want) {
			t.Errorf("expected %q in %q", want, x.Answer)
		}
	}
	y := &Result{}
	if y.eachRequest(live, live); y.Otherwise+y.Moved > 0 || y.PerRequest[0].Most != 0 {
		t.Errorf("requests differ from themselves: %+v", y)
	}
	spans := compareTimes(report.Summary{Spans: tokenTimes([]float64{1})},
		report.Summary{Spans: []report.SpanSummary{{Name: "ttft"}}}, 5)
	if d := cmp.Diff([]string{"tpot live", "ttft in virtual time"}, spans.OneTime); d != "" {
		t.Error(d)
	}
}
