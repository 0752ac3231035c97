package search

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// swept returns a sweep of two fields, in which the hit rate and the first field are the same in all rows.
func swept(t *testing.T, measures ...string) *Swept {
	t.Helper()
	shown, err := measuresNamed(measures)
	if err != nil {
		t.Fatal(err)
	}
	x := &Swept{paths: []string{"pools[0].modelServer.maxNumSeqs", "workload.rate"}, shown: shown,
		chosen: measures != nil}
	for i := range 3 {
		p := &Point{Set: map[string]string{x.paths[0]: "64", x.paths[1]: fmt.Sprint(10 * (i + 1))}, Requests: 100,
			Failed: i, Steady: i < 2}
		for _, m := range shown {
			value := 0.0125 * float64(i+1)
			if m.Name == "hit rate" {
				value = 0.5
			}
			p.Measures = append(p.Measures, report.Measured{Measure: m.Name, Unit: m.Unit, Value: value})
		}
		x.points = append(x.points, p)
	}
	return x
}

// A table that fits has all columns. A narrower terminal loses the columns that are the same in all rows, then the
// beginnings of fields, then measures in the documented order, or from the last chosen one on. A line names them.
func TestSweepFits(t *testing.T) {
	chosen := []string{"e2e p50", "ttft p50", "ttft p99"}
	for _, c := range []struct {
		columns  int
		measures []string
		head     string
		about    []string
	}{
		{200, nil, "workload.rate requests/s output tokens/s ttft p50 ttft p99 tpot mean e2e p50 e2e p99 hit rate " +
			"64 10", nil},
		{140, nil, "workload.rate requests/s output tokens/s ttft p50 ttft p99 tpot mean e2e p50 e2e p99",
			[]string{"in all: pools[0].modelServer.maxNumSeqs 64, hit rate 50.0% ?"}},
		{80, nil, "rate ttft p99 tpot mean e2e p99", []string{
			"in all: pools[0].modelServer.maxNumSeqs 64, hit rate 50.0% ?",
			"left out: output tokens/s, e2e p50, ttft p50, requests/s (--measure chooses, --output csv has all)"}},
		{60, chosen, "rate e2e p50", []string{"in all: pools[0].modelServer.maxNumSeqs 64",
			"left out: ttft p99, ttft p50 (--measure chooses, --output csv has all)"}},
		{20, chosen, "rate e2e p50", nil},
	} {
		var b bytes.Buffer
		if err := swept(t, c.measures...).Write(&b, "text", c.columns); err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range append(c.about, c.head+" ") {
			if !strings.Contains(words, want) {
				t.Errorf("%d columns: no %q in\n%s", c.columns, want, b.String())
			}
		}
		for line := range strings.Lines(b.String()) {
			if n := terminal.Columns(strings.TrimSuffix(line, "\n")); c.columns > 0 && n > c.columns {
				t.Errorf("%d columns on a terminal of %d: %q", n, c.columns, line)
			}
		}
		if !strings.Contains(words, "2 of 100 did not complete, not steady") {
			t.Errorf("%d columns: no note about the last row:\n%s", c.columns, b.String())
		}
	}
}

// Fields keep as many parts of their paths as distinguish them.
func TestShortenedFields(t *testing.T) {
	fields := []column{{name: "pools[0].replicas"}, {name: "pools[1].replicas"}, {name: "workload.rate"},
		{name: "seed"}}
	shorten(fields)
	var got []string
	for _, c := range fields {
		got = append(got, c.name)
	}
	if want := "pools[0].replicas pools[1].replicas rate seed"; strings.Join(got, " ") != want {
		t.Errorf("found %v; expected %s", got, want)
	}
}
