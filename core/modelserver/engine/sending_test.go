package engine

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"pgregory.net/rapid"
)

// While a blocking connector sends, no step begins; nothing is lost by it, and
// macro-steps see the same as single steps.
func TestSendingBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type message struct {
			at machine.Time
			m  Message
		}
		var list []message
		var spans [][2]machine.Time
		at := machine.Time(0)
		requests := rapid.IntRange(1, 12).Draw(t, "requests")
		for id := range requests {
			at += machine.Time(rapid.Int64Range(0, 30e6).Draw(t, "gap"))
			list = append(list, message{at,
				&Submit{ID: RequestID(id + 1), PromptTokens: rapid.IntRange(1, 200).Draw(t, "prompt"),
					MaxTokens: rapid.IntRange(1, 40).Draw(t, "out")}})
			if rapid.Bool().Draw(t, "sends") {
				span := [2]machine.Time{at + machine.Time(rapid.Int64Range(0, 5e6).Draw(t, "before"))}
				span[1] = span[0] + machine.Time(rapid.Int64Range(1, 50e6).Draw(t, "span"))
				list = append(list, message{span[0], KVSending{1}}, message{span[1], KVSending{-1}})
				spans = append(spans, span)
				at = span[1]
			}
		}
		play := func(single bool) []string {
			e, err := New(Config{Timer: bentTimer{base: FixedNanos(2e6), perPrefill: FixedNanos(1e4),
				perDecode: FixedNanos(1e3), slope: FixedNanos(40.3), knot: NoKnot},
				ReportSteps: true, SingleSteps: single, MaxNumBatchedTokens: 512})
			if err != nil {
				t.Fatal(err)
			}
			var x expansion
			var fx Effects
			finished := 0
			take := func() {
				for i := range fx.List {
					f := &fx.List[i]
					x.add(&fx, f)
					if f.Kind == Finished {
						finished++
					}
					for k := 0; f.Kind == Stepped && k < int(f.Count); k++ {
						for _, s := range spans {
							if began := f.Schedule.End(k); began >= s[0] && began < s[1] {
								t.Fatalf("a step began at %v, while sending from %v to %v", began, s[0], s[1])
							}
						}
					}
				}
				fx.Reset()
			}
			for i, m := range list {
				if i%2 == 0 { // a look changes nothing
					e.Input(m.at-min(m.at, 3e6), Look{}, &fx)
				}
				e.Input(m.at, m.m, &fx)
				take()
			}
			for at, ok := e.Next(); ok; at, ok = e.Next() {
				e.Advance(at, &fx)
				take()
			}
			if finished != requests || e.KVBlocksUsed() != 0 {
				t.Fatalf("%d of %d finished, %d blocks in use", finished, requests, e.KVBlocksUsed())
			}
			return x.sorted()
		}
		macro, single := play(false), play(true)
		if len(macro) != len(single) {
			t.Fatalf("%d rows in macro-steps, %d in single steps", len(macro), len(single))
		}
		for i := range macro {
			if macro[i] != single[i] {
				t.Fatalf("row %d: %s in macro-steps, %s in single steps", i, macro[i], single[i])
			}
		}
	})
}
