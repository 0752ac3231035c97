package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// A request is good if it completes within its own SLO. All other requests are not.
func TestGoodput(t *testing.T) {
	tally := NewTally()
	request := func(number int, class, slo string, ttft, e2e machine.Time, tokens int, o record.Outcome) {
		id, at := record.RequestID(1, number), machine.Time(number)*machine.Second
		more := []record.Detail{}
		if class != "" {
			more = append(more, record.D("class", class))
		}
		if slo != "" {
			more = append(more, record.D("slo", slo))
		}
		tally.Record(record.Event{Time: at, Request: id, Hop: record.Client, Step: record.RequestSent, Details: more})
		if ttft > 0 {
			tally.Record(record.Event{Time: at + ttft, Request: id, Hop: record.Client,
				Step: record.FirstTokenReceived})
		}
		if o != "" {
			tally.Record(record.Event{Time: at + e2e, Request: id, Hop: record.Client, Step: record.Finished,
				Details: record.Details{record.D("outcome", o), record.D("tokens", tokens)}})
		}
	}
	const ms = machine.Millisecond
	chat := "ttft=100ms,tpot=10ms"
	request(1, "chat", chat, 100*ms, 200*ms, 11, record.Completed)       // good, just so
	request(2, "chat", chat, 101*ms, 150*ms, 11, record.Completed)       // late
	request(3, "chat", chat, 50*ms, 250*ms, 11, record.Completed)        // slow
	request(4, "chat", chat, 50*ms, 60*ms, 1, record.Completed)          // good: no second token
	request(5, "chat", chat, 50*ms, 60*ms, 5, record.Left)               // gone
	request(6, "batch", "e2e=1s", 900*ms, 1000*ms, 1, record.Completed)  // good
	request(7, "batch", "e2e=1s", 900*ms, 1001*ms, 99, record.Completed) // late
	request(8, "batch", "e2e=1s", 0, 0, 0, "")                           // never ends
	if d := cmp.Diff([]ClassSummary{
		{Name: "batch", Requests: 3, Completed: 2, Good: 1, Missed: map[string]int{"e2e": 1},
			Attainment: 0.333333, Goodput: 0.125},
		{Name: "chat", Requests: 5, Completed: 4, Good: 2, Missed: map[string]int{"tpot": 1, "ttft": 1},
			Attainment: 0.4, Goodput: 0.25},
		{Requests: 8, Completed: 6, Good: 3, Missed: map[string]int{"e2e": 1, "tpot": 1, "ttft": 1},
			Attainment: 0.375, Goodput: 0.375},
	}, tally.Summary().Classes); d != "" {
		t.Error(d)
	}
	tally = NewTally()
	if request(1, "", "", 1, 2, 3, record.Completed); tally.Summary().Classes != nil {
		t.Error("goodput where nobody asked for it")
	}
}

// Goodput and attainment with intervals use each request's own SLO, that of its class. --slo takes precedence.
func TestGoodputIsOfEachClass(t *testing.T) {
	tally := NewTally()
	for i := range 400 {
		id := record.RequestID(7, i+1)
		at := machine.Time(i) * 10 * machine.Millisecond
		class, slo := "fast", "e2e=5ms"
		if i%2 == 1 {
			class, slo = "slow", "e2e=1s"
		}
		tally.Record(record.Event{Time: at, Request: id, Hop: record.Client, Step: record.RequestSent,
			Details: record.SentDetails(class, slo)})
		tally.Record(record.Event{Time: at + 100*machine.Millisecond, Request: id, Hop: record.Client,
			Step:    record.Finished,
			Details: record.Details{record.D("outcome", "completed"), record.D("tokens", 3)}})
	}
	m, _ := MeasureNamed("attainment")
	// the warm-up is left out
	if e, ok := (Runs{tally.Sample()}).Under(record.SLO{}).Estimate(m); !ok || e.Value < 0.49 || e.Value > 0.51 {
		t.Errorf("found %+v, %v; the slow half is good by its own bounds", e, ok)
	}
	if e, ok := (Runs{tally.Sample()}).Under(record.SLO{E2E: time.Minute}).Estimate(m); !ok || e.Value != 1 {
		t.Errorf("found %+v, %v; all are within a minute", e, ok)
	}
	sum := tally.Summary()
	if all := sum.Classes[len(sum.Classes)-1]; all.Attainment != 0.5 {
		t.Errorf("the classes together have %+v", all)
	}
}
