package modelserver

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
)

// A request that is not streamed adds to the histogram of inter-token latency
// exactly what one adds that is, also where a long prompt comes in between.
func TestIntervalsAreTheSameUnstreamed(t *testing.T) {
	t.Parallel()
	var got [2]histogram
	for streamed := range got {
		synctest.Test(t, func(t *testing.T) {
			eng, err := engine.New(engine.Config{ReportSteps: true, NumGPUBlocks: 1000, Timer: latency.PerToken{Step: engine.ToFixed(15 * machine.Millisecond), PrefillToken: engine.ToFixed(machine.Millisecond)}})
			if err != nil {
				t.Fatal(err)
			}
			l := newLoop(eng, 8192, drive.Since(time.Now()))
			l.taken = func(engine.RequestID) bool { return false }
			tell := func(id uint64, prompt, tokens int) {
				q := &seq{box: newBox(1), everyToken: streamed == 1, submit: engine.Submit{ID: engine.RequestID(id), PromptTokens: prompt, MaxTokens: tokens}}
				if q.everyToken {
					q.submit.Interest = engine.EveryToken
				}
				l.submit([]*seq{q})
			}
			time.Sleep(time.Second) // a time of zero means never
			tell(1, 10, 20)
			time.Sleep(100 * time.Millisecond)
			tell(2, 300, 8) // computes its prompt beside the first
			time.Sleep(time.Minute)
			l.ask(func(machine.Time) { got[streamed] = l.stats.itl })
		})
	}
	if got[0].n != 19+7 || !slices.Equal(got[0].counts, got[1].counts) || got[0].sum-got[1].sum > 1e-9 || got[1].sum-got[0].sum > 1e-9 {
		t.Errorf("unstreamed %d intervals %v, %v s; streamed %d %v, %v s", got[0].n, got[0].counts, got[0].sum, got[1].n, got[1].counts, got[1].sum)
	}
	used := 0
	for _, n := range got[0].counts {
		if n > 0 {
			used++
		}
	}
	if used < 2 {
		t.Errorf("all in one bucket: %v", got[0].counts)
	}
	if len(got[0].counts) != itlBuckets {
		t.Errorf("%d buckets, room for %d", len(got[0].counts), itlBuckets)
	}
}
