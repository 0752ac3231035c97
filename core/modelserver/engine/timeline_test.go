package engine

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
)

// A request with EndOnly has the effects of one with Milestones, with the same
// times, whenever its engine is looked at; Next does not name its first token.
func TestEndOnlyIsMilestonesLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
		cfg := Config{Batching: BatchingIndependent, Prefill: Span{1, 50}, TokenTime: Span{0, 20}}
		var effects [2][]Effect
		type input struct {
			at machine.Time
			m  Message
		}
		var inputs []input
		at := machine.Time(0)
		for i := range n("requests", 1, 12) {
			at += machine.Time(n("gap", 0, 60))
			inputs = append(inputs, input{at,
				&Submit{ID: RequestID(i + 1), PromptTokens: 3, MaxTokens: n("tokens", 1, 6),
					HoldAfterFirst: n("held", 0, 4) == 0}})
			if n("abort", 0, 3) == 0 {
				inputs = append(inputs, input{at + machine.Time(n("later", 0, 100)), Abort{ID: RequestID(i + 1)}})
			}
		}
		slices.SortStableFunc(inputs, func(a, b input) int { return cmp.Compare(a.at, b.at) })
		var woken [2]int
		for k, interest := range []Interest{Milestones, EndOnly} {
			e, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var fx Effects
			drain := func() {
				effects[k] = append(effects[k], fx.List...)
				fx.Reset()
			}
			wakeUntil := func(limit machine.Time) {
				for {
					at, ok := e.Next()
					if !ok || at > limit {
						return
					}
					woken[k]++
					e.Advance(at, &fx)
					drain()
				}
			}
			for _, in := range inputs {
				wakeUntil(in.at)
				if s, ok := in.m.(*Submit); ok {
					c := *s
					c.Interest = interest
					in.m = &c
				}
				e.Input(in.at, in.m, &fx)
				drain()
			}
			wakeUntil(machine.Never)
			slices.SortStableFunc(effects[k], func(a, b Effect) int {
				return cmp.Or(cmp.Compare(a.Request, b.Request), cmp.Compare(a.At, b.At), cmp.Compare(a.Kind, b.Kind))
			})
		}
		if d := gocmp.Diff(effects[0], effects[1], gocmp.AllowUnexported(Effect{})); d != "" {
			t.Fatal(d)
		}
		if woken[1] > woken[0] {
			t.Fatalf("%d wake-ups, more than the %d of Milestones", woken[1], woken[0])
		}
	})
}
