package scenario

import (
	"fmt"
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
)

func faulty(t *testing.T, faults string) (*Scenario, lifecycle.Faults) {
	t.Helper()
	s, err := Parse("x.yaml", fmt.Appendf(nil, `apiVersion: windtunnel/v1alpha1
kind: Scenario
seed: 5
pools:
- name: a
  replicas: 2
  modelServer: {faults: %s}
workload: {requests: 10000}
`, faults))
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.faults(&s.Pools[0])
	if err != nil {
		t.Fatal(err)
	}
	return s, f
}

// Rates are kept, each rule draws for itself, and named requests are the
// workload's own.
func TestFaultsSelect(t *testing.T) {
	s, f := faulty(t, "[{fault: status=503, rate: 5%, servers: [1]}, {fault: status=429, rate: 0.05}, {fault: "+
		"status=500, requests: [1, 10000]}]")
	ids := s.Generator()
	seen := [2]map[int]int{{}, {}}
	for i := range 10000 {
		for server := range seen {
			seen[server][f.Of(ids.ID(i), server)[lifecycle.AtAnswer].N]++
		}
	}
	near := func(got, want int) bool { return math.Abs(float64(got-want)) < 100 } // over four deviations
	if seen[0][503] != 0 || !near(seen[0][429], 500) || !near(seen[1][503], 500) || !near(seen[1][429], 475) {
		t.Errorf("%v", seen)
	}
	if seen[0][500] != 2 {
		t.Errorf("%d named requests", seen[0][500])
	}
	if _, f := faulty(t, "[{fault: reset, servers: [1]}]"); f.Of("anything",
		1)[lifecycle.AtConnect].Do != lifecycle.Reset || f.Of("anything", 0) != (lifecycle.Fault{}) {
		t.Error("a fault without rate and requests is for all requests at its servers")
	}
}

func FuzzParseShare(f *testing.F) {
	for _, text := range []string{"5%", "0.05", "1", "100%", "0", "-1%", "NaN", "%", "1e-9%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseShare(text); err == nil && !(s > 0 && s <= 1) {
			t.Errorf("%q is %v", text, s)
		}
	})
}
