package program

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/scenario"
)

// What is off by more than the tolerance, and more than a timer is, is pointed out; so are
// outcomes.
func TestCompareTimes(t *testing.T) {
	live := report.Summary{Requests: 10, Outcomes: map[flow.Outcome]int{flow.Completed: 10}, Spans: []report.SpanSummary{
		{Name: "ttft", P50: 0.100, P90: 0.200, P99: 0.300}, {Name: "pick", P50: 0.0001, P90: 0.0002, P99: 0.0003}}}
	virtual := report.Summary{Requests: 10, Outcomes: map[flow.Outcome]int{flow.Completed: 9, flow.TimedOut: 1}, Spans: []report.SpanSummary{
		{Name: "ttft", P50: 0.104, P90: 0.220, P99: 0.400}, {Name: "pick"}}}
	x := compareTimes(live, virtual, 5)
	x.answer()
	if got := strings.Join(x.over(), ", "); got != "ttft p90 (+10.0%)" {
		t.Errorf("pointed out is %q", got)
	}
	if want := "10 ended completed live and 9 in virtual time; 0 ended timed_out live and 1 in virtual time"; !strings.Contains(x.Answer, want) {
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

// Hops that were measured take the place of a scenario's; what was not measured stays.
func TestMeasuredHops(t *testing.T) {
	s, err := scenario.Parse("a.yaml", []byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a}], hops: {sidecar: 7us}}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := hopsFrom(s, &hops.Times{Network: "110us", Envoy: "lognormal(60us, 5us)", Scrape: "0"}); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string][2]string{"network": {s.Hops.Network.String(), "110us"}, "envoy": {s.Hops.Envoy.String(), "lognormal(60us, 5us)"}, "sidecar": {s.Hops.Sidecar.String(), "7us"}} {
		if strings.ReplaceAll(x[0], "µ", "u") != x[1] {
			t.Errorf("%s takes %s, expected %s", name, x[0], x[1])
		}
	}
	if err := hopsFrom(s, &hops.Times{Network: "soon"}); err == nil {
		t.Error("a hop that is no time is taken")
	}
}
