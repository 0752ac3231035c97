package report

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
)

// Any number of the summary is found by its path, and an impossible path is an error before a run.
func TestFigures(t *testing.T) {
	low := 0.25
	s := &Summary{Requests: 7, Outcomes: map[record.Outcome]int{record.Completed: 5},
		Refusals: map[string]int{"epp: queue full": 2},
		Classes:  []ClassSummary{{Name: "chat", Attainment: 0.5}, {Attainment: 0.75}},
		Measures: []Measured{{Measure: "ttft p99", Value: 1}, {Measure: "goodput", Value: 3, Low: &low}},
		Hops:     map[record.Hop]map[record.Step]int{record.EPP: {record.EndpointPicked: 4}}}
	for _, c := range []struct {
		path  string
		value float64
		found bool
		err   string
	}{
		{"requests", 7, true, ""},
		{"outcomes/completed", 5, true, ""},
		{"outcomes/broken", 0, true, ""},
		{"refusals/epp: queue full", 2, true, ""},
		{"classes/chat/attainment", 0.5, true, ""},
		{"classes//attainment", 0.75, true, ""},
		{"classes/batch/attainment", 0, false, ""},
		{"measures/goodput/low", 0.25, true, ""},
		{"measures/ttft p99/low", 0, false, ""},
		{"hops/epp/endpoint_picked", 4, true, ""},
		{"transfers/fetched", 0, false, "no transfers.fetched; there are "},
		{"cost/usd", 0, false, ""},
		{"classes", 0, false, "classes of the summary is not a number"},
		{"requests/more", 0, false, "requests of the summary is one number or text"},
		{"nothing", 0, false, "the summary has no nothing; there are scenario, seed"},
	} {
		v, found, err := s.Figure(strings.Split(c.path, "/"))
		if v != c.value || found != c.found || (err == nil) != (c.err == "") || err != nil &&
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v, %v", c.path, v, found, err)
		}
	}
}
