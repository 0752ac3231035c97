package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
)

// counted counts gaps by their length in nanoseconds.
type counted map[machine.Time]int

func (c counted) Gaps(s *Schedule, from, steps, requests int) {
	for i := from; i < from+steps; i++ {
		d := s.End(i+1) - s.End(i)
		if c[d] += requests; c[d] == 0 {
			delete(c, d)
		}
	}
}

// The reported gaps are the times between single tokens, with preemptions, pauses, aborts, blocking transfers and
// requests that miss a step.
func TestGapsAreThoseBetweenTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		reported, watching := counted{}, counted{}
		s.cfg.Gaps = reported
		sending := rapid.Bool().Draw(t, "sending")
		for i := range s.messages {
			if m, ok := s.messages[i].m.(*Submit); ok {
				m.Interest = EveryToken
			}
			if sending && i%3 == 0 {
				at := s.messages[i].at
				s.messages = append(s.messages, timed{at, KVSending{1}}, timed{at + 700, KVSending{-1}})
			}
		}
		_, rows := s.play(t, rapid.Bool().Draw(t, "single"), func(*Engine) {})
		last := map[string]machine.Time{}
		for _, row := range rows {
			var at machine.Time
			var id string
			text := row[strings.IndexByte(row, ' ')+1:]
			if strings.HasPrefix(text, "token ") {
				id = text[strings.LastIndexByte(text, ' ')+1:]
			} else if _, after, ok := strings.Cut(text, FirstToken.String()+" "); ok {
				id = after
			} else {
				continue
			}
			if _, err := fmt.Sscan(row, &at); err != nil {
				t.Fatal(err)
			}
			if from, second := last[id]; second {
				watching[at-from]++
			}
			last[id] = at
		}
		if d := gocmp.Diff(watching, reported); d != "" {
			t.Fatalf("%+v\ngaps between tokens (-) and those that were told (+):\n%s\n%s", s.cfg, d,
				strings.Join(rows, "\n"))
		}
	})
}

// Each request by itself: a pause lengthens the gap after it.
func TestGapsOfIndependentRequests(t *testing.T) {
	reported := counted{}
	e, err := New(Config{Batching: BatchingIndependent, Prefill: Span{10, 10}, TokenTime: Span{4, 4}, Gaps: reported})
	if err != nil {
		t.Fatal(err)
	}
	var fx Effects
	e.Input(0, &Submit{ID: 1, PromptTokens: 3, MaxTokens: 4}, &fx)                       // tokens at 10, 14, 18, 22
	e.Input(0, &Submit{ID: 2, PromptTokens: 3, MaxTokens: 3, HoldAfterFirst: true}, &fx) // 10, then 25+4, 33
	e.Input(25, Resume{2}, &fx)
	e.Advance(100, &fx)
	if want := (counted{4: 3 + 1, 19: 1}); !maps.Equal(want, reported) {
		t.Errorf("found %v, expected %v", reported, want)
	}
}

// loads compares the load of servers, whatever timer they have.
var loads = gocmp.Options{gocmp.AllowUnexported(Level{}), cmpopts.IgnoreFields(Load{}, "Timer")}

// An engine's load equals the load that a continuous observer measures, however the engine is driven.
func TestLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		slow := s.cfg.Timer.(bentTimer)
		slow.base *= 1000
		s.cfg.Timer = slow
		for i := range s.messages {
			s.messages[i].at *= 1000
		}
		var at machine.Time
		running, waiting, peak := [2]int{}, [2]int{}, 0
		// Each level until the next look, summed up.
		one, _ := s.play(t, true, func(e *Engine) {
			st := e.Stats()
			d := int(e.Now() - at)
			if d > 1 {
				peak = max(peak, waiting[1])
			}
			running[0], waiting[0] = running[0]+running[1]*d, waiting[0]+waiting[1]*d
			running[1], waiting[1], at = st.Running, st.Waiting, e.Now()
		})
		many, _ := s.play(t, false, func(*Engine) {})
		seen, _ := s.play(t, false, func(e *Engine) { e.Stats() })
		if d := gocmp.Diff(one.Load(at), many.Load(at), loads); d != "" {
			t.Fatalf("single steps (-) and macro-steps (+) differ:\n%s", d)
		}
		if d := gocmp.Diff(one.Load(at), seen.Load(at), loads); d != "" {
			t.Fatalf("who is looked at (+) differs:\n%s", d)
		}
		l := many.Load(at)
		for _, x := range []struct {
			what string
			got  Level
			want int
		}{{"running", l.Running, running[0]}, {"waiting", l.Waiting, waiting[0]}} {
			// Looked at, it begins each step a nanosecond late.
			late := float64(len(s.messages)) * float64(one.stats.Steps+one.stats.Accepted+1)
			if got := x.got.Mean(at) * float64(at); at > 0 && math.Abs(got-float64(x.want)) > late+1e-6*float64(at) {
				t.Fatalf("%s: %v times nanoseconds, expected %v", x.what, got, x.want)
			}
		}
		if l.Waiting.Peak < peak || l.Blocks.Peak > l.Total || l.Blocks.Mean(at) > float64(l.Blocks.Peak) ||
			l.Busy > at {
			t.Fatalf("%+v; seen were %d waiting", l, peak)
		}
	})
}

// loadedOnce is an engine, 100 ns on, that had one request.
func loadedOnce(t *testing.T) (*Engine, *Effects) {
	t.Helper()
	e, err := New(Config{Timer: bentTimer{base: ToFixed(10), knot: NoKnot}, BlockSize: 4, NumGPUBlocks: 10})
	if err != nil {
		t.Fatal(err)
	}
	fx := new(Effects)
	e.Input(0, &Submit{ID: 1, PromptTokens: 16, MaxTokens: 5}, fx)
	e.Advance(100, fx)
	return e, fx
}

// The blocks of the KV cache in use, by hand: a prompt of four blocks and four steps
// that fill a fifth.
func TestLoadOfBlocks(t *testing.T) {
	e, fx := loadedOnce(t)
	l := e.Load(100)
	// 10 ns of prefill with 4 blocks, 40 ns of decoding in which 4 or 5 became 5, then none.
	if mean := l.Blocks.Mean(100); l.Blocks.Peak != 5 || mean < 2.2 || mean > 2.4 || l.Total != 10 || l.Busy != 50 {
		t.Errorf("%v blocks on average, %+v", mean, l)
	}
	if kinds := slices.IndexFunc(fx.List, func(f Effect) bool { return f.Kind == Finished }); kinds < 0 {
		t.Error("the request did not end")
	}
}

// A deadline that goes off later, and finds nothing to do, is no time of the load's.
func TestLoadEndsBeforeIdleTimers(t *testing.T) {
	e, fx := loadedOnce(t)
	e.Advance(480_000, fx)
	if l := e.Load(100); l.For != 100 || l.Busy != 50 {
		t.Errorf("busy for %d of %d ns, expected 50 of 100", l.Busy, l.For)
	}
}
