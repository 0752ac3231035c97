package report

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/record"
)

// computing takes a second for each step.
type computing struct{}

func (computing) StepTime(*engine.Step) engine.Fixed { return engine.ToFixed(machine.Second) }

func (computing) DecodeLine(int, int64) (engine.Line, bool) {
	return engine.Line{Base: engine.ToFixed(machine.Second), Until: engine.NoKnot}, true
}

// loaded returns the load of an engine for ten seconds that computed so many requests one after another, each in a step
// for the prompt and two more.
func loaded(t *testing.T, requests int) engine.Load {
	t.Helper()
	e, err := engine.New(engine.Config{Timer: computing{}, MaxNumSeqs: 1, NumGPUBlocks: 10, BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	var fx engine.Effects
	for i := range requests {
		e.Input(0, &engine.Submit{ID: engine.RequestID(i + 1), PromptTokens: 16, MaxTokens: 3}, &fx)
	}
	e.Advance(10*machine.Second, &fx)
	return e.Load(10 * machine.Second)
}

func TestSummaryOfLoad(t *testing.T) {
	list := []ServerLoad{
		{Pool: "p", Name: "a", Endpoint: "10.0.0.1:8000", Role: Decodes, Load: loaded(t, 1)},
		{Pool: "p", Name: "b", Endpoint: "10.0.0.2:8000", Role: Decodes, Load: loaded(t, 3)},
		{Pool: "p", Name: "c", Endpoint: "10.0.0.3:8000", Role: Prefills, Load: loaded(t, 0)},
		{Pool: "p", Name: "d", Endpoint: "10.0.0.4:8000", Role: Both}, // computes no steps
	}
	out := summarized(list)
	if len(out) != 2 || out[0].Role != Decodes || out[1].Role != Prefills {
		t.Fatalf("found %+v", out)
	}
	x := out[0]
	// b: 3 requests of 3 s: one waits 3 s and one 6 s.
	if x.Servers != 2 || x.Busy != (BusySummary{0.6, 0.3, 0.9}) || x.Balance != 1.5 ||
		x.Queue != (LevelSummary{0.45, 2}) || x.KV.Peak != 0.2 || len(x.Each) != 2 || x.Each[1].Busy != 0.9 {
		t.Errorf("found %+v", x)
	}
	tally := NewTally()
	tally.SetLoads(list)
	var text strings.Builder
	if err := tally.Summary().Write(&text, false, 80); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if len(line) > 81 {
			t.Errorf("longer than 80 columns: %s", line)
		}
	}
	if !strings.Contains(text.String(), "  decode         2   60.0%  30.0%  90.0%   60.0%   0.45     2 ") {
		t.Errorf("found\n%s", text.String())
	}
	// Several runs have an interval, one has none.
	runs := Runs{{Requests: []Ended{{Number: 1}}, Load: out, Steady: true},
		{Requests: []Ended{{Number: 1}}, Load: summarized(list[:1]), Steady: true}}
	m, _ := MeasureNamed("utilisation decode")
	if e, ok := runs.Under(record.SLO{}).Estimate(m); !ok || !e.Sure || e.Low == e.High {
		t.Errorf("found %+v, %v", e, ok)
	}
	if e, ok := runs[:1].Under(record.SLO{}).Estimate(m); !ok || e.Sure || e.Value != 0.6 {
		t.Errorf("found %+v, %v", e, ok)
	}
}
