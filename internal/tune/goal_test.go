package tune

import (
	"math"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
)

// Objectives and limits read measures, numbers of the summary and expressions.
func TestGoal(t *testing.T) {
	v := search.Variant{File: "picked.yaml", Text: []byte(picked)}
	s, err := v.Scenario(0)
	if err != nil {
		t.Fatal(err)
	}
	played, err := (&search.Player{}).Play(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := &run{played, report.Runs{played.Sample}.Under(s.Workload.SLO)}
	ttft, rate := valueOf(x.measures, "ttft p90"), valueOf(x.measures, "requests/s")
	for text, want := range map[string]float64{
		"ttft.p90":                               ttft,
		"requests/s":                             -rate,
		"min:requests/s":                         rate,
		"max:ttft.p90":                           -ttft,
		"max:outcomes.completed":                 -30,
		"min:refusals[epp: queue full]":          0,
		"min:2 * ttft_p90 + requests_s":          2*ttft + rate,
		"max:requests_s > 1 ? ttft_p90 : 0":      -ttft,
		"min:hit_rate":                           0,
		"max:nonsense":                           0,
		"nonsense":                               0,
		"min:2 * nonsense":                       0,
		"min:2 * 3":                              0,
		"min:ttft_p90 +":                         0,
		"min:classes[chat].attainment":           0,
		"max:classes[chat].":                     0,
		"min:" + strings.Repeat("(", 2000) + "1": 0,
	} {
		g, err := newGoal(s, []string{text}, nil, nil)
		wrong := want == 0 && !strings.Contains(text, "refusals") && !strings.Contains(text, "chat].attainment")
		if (err != nil) != wrong {
			t.Errorf("%s: found %v", text, err)
			continue
		}
		if err != nil {
			if !strings.Contains(err.Error(), "--objective "+text) {
				t.Errorf("%s: found %v", text, err)
			}
			continue
		}
		got := g.score(x)
		if strings.Contains(text, "chat].attainment") { // no run has this class
			if got.possible() {
				t.Errorf("%s: found %+v", text, got)
			}
			continue
		}
		if math.Abs(got.Values[0]-want) > 1e-9 {
			t.Errorf("%s: found %v; expected %v", text, got.Values[0], want)
		}
	}
	for keep, kept := range map[string]bool{"outcomes.completed >= 30": true, "outcomes.completed >= 31": false,
		"ttft.p90<=1h": true, "ttft p90 <= 1ns": false, "hops.epp.endpoint_picked <= 30": true} {
		g, err := newGoal(s, nil, []string{keep}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.score(x); (got.Violation == 0) != kept {
			t.Errorf("--keep %s: found %+v", keep, got)
		}
	}
	for _, keep := range []string{"nothing <= 3", "ttft.p90", "ttft.p90 <= many", "outcomes.none.at.all >= 1"} {
		if _, err := newGoal(s, nil, []string{keep}, nil); err == nil || !strings.Contains(err.Error(), "--keep: ") {
			t.Errorf("--keep %s: found %v", keep, err)
		}
	}
	for _, list := range [][]string{{"ttft.p90", "ttft p90"}, {"ttft.p90", "e2e.p90", "goodput"}} {
		if _, err := newGoal(s, list, nil, nil); err == nil {
			t.Errorf("objectives %q are no error", list)
		}
	}
}
