package report

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// The stretches of a run of any length have all requests that were sent and that ended, and those under way at the end
// of each stretch.
func TestSeries(t *testing.T) {
	for _, length := range []machine.Time{machine.Second, 100 * machine.Second, 1000 * 3600 * machine.Second} {
		s := NewSeries()
		const requests = 5000
		for n := range requests {
			at := length / requests * machine.Time(n)
			s.sent(at)
			s.ended(&Ended{TTFT: machine.Millisecond, E2E: 11 * machine.Millisecond, Tokens: 11, Prompt: 10, Cached: 5,
				Completed: n%5 > 0}, map[bool]record.Outcome{true: record.Completed, false: record.TimedOut}[n%5 > 0],
				at)
			s.Level(at, Level{InFlight: n})
		}
		s.KV(length/2, 0.25, 0.5)
		list, width := s.Windows()
		if len(list) > maxStretches {
			t.Errorf("%s: %d stretches", length, len(list))
		}
		sent, completed, late, prompt := 0, 0, 0, 0
		for i, w := range list {
			sent, completed, late, prompt = sent+w.Sent, completed+w.Outcomes[record.Completed],
				late+w.Outcomes[record.TimedOut], prompt+w.Prompt
			if len(w.TTFT) > 0 && (w.TTFT[0] != 0.001 || w.TPOT[2] != 0.001 || w.E2E[1] != 0.011) {
				t.Fatalf("%s: %+v", length, w)
			}
			if i > 0 && w.InFlight < list[i-1].InFlight {
				t.Errorf("%s: %d in flight after %d", length, w.InFlight, list[i-1].InFlight)
			}
		}
		if sent != requests || completed != requests*4/5 || late != requests/5 || prompt != requests*10 ||
			width*float64(len(list)) < length.Seconds()*0.9 {
			t.Errorf("%s: %d sent, %d completed, %d late, %d prompt tokens in %d stretches of %g s", length, sent,
				completed, late, prompt, len(list), width)
		}
		if last := list[len(list)-1]; len(last.KV) != 2 || last.KV[1] != 0.5 || list[0].KV != nil && len(list) > 2 {
			t.Errorf("%s: KV %v at the end, %v at the beginning", length, last.KV, list[0].KV)
		}
	}
	var none *Series
	none.sent(1)
	none.Level(1, Level{})
}
