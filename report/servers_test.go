package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Servers are paid for from their creation until they are gone, those that start and those that leave included, until
// the run ends. The cost is reported with its source, and per token of completed requests.
func TestServersCost(t *testing.T) {
	const h = 3600 * machine.Second
	play := func(perGPUHour float64) (Summary, *Tally) {
		tally := NewTally()
		tally.Servers([]Pool{{Name: "a", Groups: []Group{
			{DeploymentInfo: DeploymentInfo{Deployment: "a-big", Replicas: 1, Lives: true,
				Accelerator: "H100", GPUs: 2,
				PerGPUHour: perGPUHour, Source: "a list, 2026-05"}},
			{DeploymentInfo: DeploymentInfo{Deployment: "a-small", Replicas: 3, Accelerator: "L4", GPUs: 1,
				PerGPUHour: 0.5,
				Source:     "another"}},
		}}})
		tell := func(at machine.Time, step record.Step, details ...record.Detail) {
			tally.Record(record.Event{Time: at, Hop: record.Server, Step: step,
				Details: append(record.Details{record.D("deployment", "a-big")}, details...)})
		}
		tell(0, record.ServerStarted, record.D("name", "x"))
		tell(0, record.ServerReady, record.D("name", "x"))
		tell(2*h, record.Scaled, record.D("from", 1), record.D("to", 2))
		tell(2*h, record.ServerStarted, record.D("name", "y"))
		tell(3*h, record.ServerReady, record.D("name", "y"))
		tell(5*h, record.Scaled, record.D("from", 2), record.D("to", 1))
		tell(5*h, record.ServerLeaving, record.D("name", "x"))
		tell(6*h, record.ServerGone, record.D("name", "x"), record.D("cut", 3))
		for i, o := range []record.Outcome{record.Completed, record.Refused} {
			id := record.RequestID(1, i+1)
			tally.Record(record.Event{Request: id, Hop: record.Client, Step: record.RequestSent})
			tally.Record(record.Event{Time: 10 * h, Request: id, Hop: record.Client, Step: record.Finished,
				Details: record.Details{record.D("outcome", o), record.D("tokens", 2_000_000)}})
		}
		return tally.Summary(), tally
	}
	sum, _ := play(4)
	want := []ServersSummary{
		{Pool: "a", Deployment: "a-big", Mean: 1.2, Least: 1, Most: 2, Started: 2, Decisions: 2, Cut: 3,
			Accelerator: "H100", GPUs: 2,
			GPUHours: 28, // two of each: x for six hours, and y from the second on for eight
			Price:    &PriceSummary{4, "a list, 2026-05", 112},
			Replicas: []Replicas{{At: 0, Ready: 1}, {At: 7200, Starting: 1, Ready: 1}, {At: 10800, Ready: 2},
				{At: 18000, Ready: 1, Leaving: 1}, {At: 21600, Ready: 1}},
			Scalings: []Scaling{{7200, 1, 2}, {18000, 2, 1}}},
		{Pool: "a", Deployment: "a-small", Mean: 3, Least: 3, Most: 3, Started: 3, Accelerator: "L4", GPUs: 1,
			GPUHours: 30, Price: &PriceSummary{0.5, "another", 15}},
	}
	if d := cmp.Diff(want, sum.Servers); d != "" {
		t.Error(d)
	}
	if c := sum.Cost; c.GPUHours != 58 || *c.USD != 127 || *c.PerMillion != 63.5 {
		t.Errorf("%+v", c)
	}
	var b bytes.Buffer
	if err := sum.Write(&b, false, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a-big · 1.2 on average, 1 to 2 · 2 decisions · 3 requests cut at the end of the grace period · 28 GPU-hours " +
			"of H100 · 112 USD at 4 an hour (a list, 2026-05)",
		"a-small · 3 servers · 30 GPU-hours of L4 · 15 USD at 0.5 an hour (another)",
		"127 USD · 63.5 USD per 1M output tokens"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, b.String())
		}
	}
	// Where one group has no price nobody knows what all cost: GPU-hours alone.
	sum, tally := play(0)
	if c := sum.Cost; c.GPUHours != 58 || c.USD != nil || c.PerMillion != nil || sum.Servers[0].Price != nil {
		t.Errorf("without a price: %+v", c)
	}
	if m, _ := MeasureNamed("USD per 1M output tokens"); len(tally.Sample().Ledger.Rates) != 2 ||
		tally.Sample().Ledger.Priced || m.Name == "" {
		t.Errorf("%+v", tally.Sample().Ledger)
	}
}
