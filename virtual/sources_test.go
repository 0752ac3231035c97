package virtual

import (
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// A report's estimate for another source agrees with the run that is played with that source, if requests do not wait
// for each other.
func TestOtherSourcesMoveTheRun(t *testing.T) {
	t.Parallel()
	play := func(source string) report.Summary {
		s := parse(t, "flow: plain, replicas: 1, modelServer: {batching: continuous, prefixCaching: false, "+
			"outputTokens: 100, source: "+source+"}",
			"requests: 200, rate: 0.5, api: completions, prompt: {tokens: 1000}")
		s.Hops = scenario.Hops{}
		tally := report.NewTally()
		if _, err := Play(s, tally, Options{Served: tally.SetLoads}); err != nil {
			t.Fatal(err)
		}
		return tally.Summary()
	}
	measured := play("measured")
	if len(measured.Load) != 1 || len(measured.Load[0].StepTimes) != 1 {
		t.Fatalf("the load is %+v", measured.Load)
	}
	said := measured.Load[0].StepTimes[0]
	other := play("inference-sim")
	for _, c := range []struct {
		span     string
		expected float64
	}{{"ttft", said.TTFT.High}, {"decode", said.TPOT.Low}} {
		p50 := func(s report.Summary) float64 {
			for _, x := range s.Spans {
				if x.Name == c.span {
					return x.P50
				}
			}
			t.Fatalf("there is no span %s", c.span)
			return 0
		}
		if moved := p50(other)/p50(measured) - 1; math.Abs(moved-c.expected) > 0.02 || math.Abs(moved) < 0.1 {
			t.Errorf("%s moved by %.3f, the report says %.3f: %+v", c.span, moved, c.expected, said)
		}
	}
}
