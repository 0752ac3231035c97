package stack

import (
	"fmt"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// The faults that a scenario asks for meet the requests that it names and those
// that are drawn, and no others; virtual time plays the same.
func TestScenarioFaults(t *testing.T) {
	t.Parallel()
	const n = 60
	s := quick(func(s *scenario.Scenario) {
		s.Workload.Requests, s.Workload.Concurrency = n, 6
		s.Pools[0].ModelServer.Faults = []scenario.ServerFault{
			{Fault: "status=503", Requests: []int{1, 7}},
			{Fault: "status=429", Rate: 0.1},
			{Fault: "delay=5ms;status=500", Requests: []int{9}},
			{Fault: "delay=5ms", Servers: []int{1}},
		}
	})
	faults := &compiled(t, s).Pools[0].Faults
	want := map[string]record.Outcome{}
	for i := range n {
		id := s.Generator().ID(i)
		want[id] = record.Completed
		if f := faults.Of(id, 0); f[lifecycle.AtAnswer].N != 0 {
			want[id] = record.OutcomeOfStatus(f[lifecycle.AtAnswer].N)
		}
	}
	id := func(number int) string { return s.Generator().ID(number - 1) }
	if want[id(1)] != record.Unavailable || want[id(7)] != record.Unavailable || want[id(9)] != record.ServerError {
		t.Fatalf("selected: %v", want)
	}
	if drawn := count(want, record.Overloaded); drawn < 1 || drawn > 15 {
		t.Fatalf("%d of %d drawn at a rate of 10%%", drawn, n)
	}

	r := start(t, s, nil)
	began := time.Now()
	events := r.load()
	t.Logf("%d requests in %v", n, time.Since(began))
	compare(t, "live", events, want)
	r.idle()
	var played []record.Event
	if err := virtual.Run(s, record.Func(func(e record.Event) { played = append(played, e) }), nil); err != nil {
		t.Fatal(err)
	}
	compare(t, "virtual", played, want)
}

func count(outcomes map[string]record.Outcome, o record.Outcome) int {
	n := 0
	for _, have := range outcomes {
		if have == o {
			n++
		}
	}
	return n
}

// compare holds that every request has one outcome, the one that is wanted.
func compare(t *testing.T, where string, events []record.Event, want map[string]record.Outcome) {
	t.Helper()
	ended := map[string]int{}
	for _, e := range events {
		if e.Hop != record.Client || e.Step != record.Finished {
			continue
		}
		ended[e.Request]++
		if got := fmt.Sprint(e.Details.Get("outcome")); got != string(want[e.Request]) {
			t.Errorf("%s: %s ended as %s, want %s: %v", where, e.Request, got, want[e.Request], e.Details)
		}
	}
	for id := range want {
		if ended[id] != 1 {
			t.Errorf("%s: %s has %d outcomes", where, id, ended[id])
		}
	}
	if len(ended) != len(want) {
		t.Errorf("%s: %d requests ended, want %d", where, len(ended), len(want))
	}
}
