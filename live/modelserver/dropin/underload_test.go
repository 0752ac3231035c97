package dropin

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

func TestUnderLoad(t *testing.T) {
	timer, err := latency.New(
		latency.Config{Kind: latency.KindConstant,
			Constant: latency.Constant{InterTokenLatency: 10 * machine.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	u := newUnderLoad(timer, 3, 5)
	for running, want := range map[int]machine.Time{1: 10, 2: 15, 3: 20, 5: 30, 9: 30} {
		got := u.StepTime(&engine.Step{DecodeSeqs: running, DecodeContext: 100})
		line, ok := u.DecodeLine(running, 100)
		if got.Time() != want*machine.Millisecond || !ok || line.Base != got {
			t.Errorf("%d running: %v, as a line %v (%v), want %d ms", running, got.Time(), line.Base.Time(), ok, want)
		}
	}
}
