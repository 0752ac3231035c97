package kvfeed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

// The scripts under testdata/feed: messages as they come, one per line, and
// what the feed then says.
func TestFeedScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/feed", func(t *testing.T, path string) {
		var f *feedDriver
		now := machine.Time(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			if d.Cmd == "new" {
				var gaps string
				hold, probe := 0, -1
				d.ScanArgs(t, "gaps", &gaps)
				d.MaybeScanArgs(t, "hold", &hold)
				d.MaybeScanArgs(t, "probe-ms", &probe)
				now = 0
				f = newFeed(Config{Gaps: map[string]Gaps{"drop": GapsDrop, "replay": GapsReplay,
					"ignore": GapsIgnore}[gaps],
					HoldMessages: hold,
					Probe:        machine.Time(probe) * machine.Millisecond})
				return ""
			}
			for line := range strings.Lines(d.Input) {
				var seq uint64
				var text string
				w := strings.Fields(line)
				if len(w) > 1 {
					fmt.Sscan(w[1], &seq)
				}
				if len(w) > 2 {
					text = w[2]
				}
				switch w[0] {
				case "connected":
					f.tell(now, Message{Kind: Connected})
				case "message":
					f.live(now, seq, []byte(text))
				case "replayed":
					f.replayed(now, seq, []byte(text))
				case "replay-end":
					f.replayEnded(now, true)
				case "replay-fail":
					f.replayEnded(now, false)
				case "wait-ms":
					now += machine.Time(seq) * machine.Millisecond
				default:
					t.Fatalf("unknown line %q", line)
				}
				for _, e := range f.advance(now) {
					switch e.Kind {
					case Deliver:
						fmt.Fprintf(&out, "deliver %d %s\n", e.Seq, e.Payload)
					case AskReplay:
						fmt.Fprintf(&out, "ask for a replay from %d\n", e.Seq)
					case Lost:
						fmt.Fprintf(&out, "lost: %s\n", e.Reason)
					}
				}
			}
			if at, ok := f.Next(); ok {
				fmt.Fprintf(&out, "next at %v\n", at)
			}
			return out.String()
		})
	})
}

// A publisher's messages are lost, doubled and delayed on their way. What
// comes out is in order and never twice; with a replay that still has all,
// nothing is lost; without, every hole is preceded by word of the loss.
func TestFeedOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gaps := rapid.SampledFrom([]Gaps{GapsDrop, GapsReplay}).Draw(t, "gaps")
		f := newFeed(Config{Gaps: gaps,
			Probe:        rapid.SampledFrom([]machine.Time{-1, 300 * machine.Millisecond}).Draw(t, "probe"),
			HoldMessages: rapid.SampledFrom([]int{1, 3, 0}).Draw(t, "hold")})
		whole := gaps == GapsReplay
		published := uint64(0)
		payload := func(seq uint64) []byte { return fmt.Appendf(nil, "message %d", seq) }
		var got []uint64
		losses := 0
		lost := true // the first message may have any number
		now := machine.Time(0)
		var drain func()
		drain = func() {
			var ask []uint64
			for _, e := range f.advance(now) {
				switch e.Kind {
				case Deliver:
					if n := len(got); n > 0 && e.Seq <= got[n-1] && !lost {
						t.Fatalf("%d after %d", e.Seq, got[n-1])
					}
					if n := len(got); n > 0 && e.Seq != got[n-1]+1 && !lost {
						t.Fatalf("a hole from %d to %d without a word", got[n-1], e.Seq)
					}
					if string(e.Payload) != string(payload(e.Seq)) {
						t.Fatalf("%d delivered as %q", e.Seq, e.Payload)
					}
					got = append(got, e.Seq)
					lost = false
				case Lost:
					lost = true
					losses++
				case AskReplay:
					ask = append(ask, e.Seq)
				}
			}
			for _, from := range ask {
				for ; from < published; from++ {
					f.replayed(now, from, payload(from))
				}
				f.replayEnded(now, true)
				drain()
			}
		}
		var late []uint64
		f.tell(now, Message{Kind: Connected})
		drain()
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now += machine.Time(rapid.IntRange(0, 60).Draw(t, "ms")) * machine.Millisecond
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0: // lost on its way
				published++
			case 1: // overtaken by the next ones
				late = append(late, published)
				published++
			case 2:
				for _, seq := range late {
					// A message whose gap was given up looks like a restart of the publisher; without loss there must
					// be none.
					if !whole || !f.started || seq >= f.next {
						f.live(now, seq, payload(seq))
					}
				}
				late = nil
			case 3:
				f.tell(now, Message{Kind: Connected})
			default:
				f.live(now, published, payload(published))
				if rapid.Bool().Draw(t, "twice") {
					published++
					drain()
					f.live(now, published-1, payload(published-1))
				} else {
					published++
				}
			}
			drain()
		}
		if f.cfg.Probe < 0 {
			f.tell(now, Message{Kind: Connected})
			drain()
		}
		now += 10 * machine.Second
		drain()
		if whole && (uint64(len(got)) != published || losses > 0) {
			t.Fatalf("%d of %d messages, %d losses", len(got), published, losses)
		}
		if _, ok := f.Next(); ok && f.cfg.Probe < 0 {
			t.Fatal("the feed still waits for something")
		}
	})
}

// Whatever is lost, and however often replays fail and the publisher restarts: once replays work again, the messages
// delivered since the last loss are all that the publisher has published, in order.
func TestFeedRecovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFeed(Config{Gaps: GapsReplay, Probe: 300 * machine.Millisecond,
			HoldMessages: rapid.SampledFrom([]int{1, 3, 0}).Draw(t, "hold")})
		life, published := 0, uint64(0)
		payload := func(seq uint64) []byte { return fmt.Appendf(nil, "life %d, message %d", life, seq) }
		var got []string // since the last loss
		broken := true   // replays may be
		now := machine.Time(0)
		take := func() (ask uint64, asked bool) {
			for _, e := range f.advance(now) {
				switch e.Kind {
				case Deliver:
					got = append(got, string(e.Payload))
				case Lost:
					got = nil
				case AskReplay:
					ask, asked = e.Seq, true
				}
			}
			return ask, asked
		}
		drain := func() {
			ask, asked := take()
			for asked {
				end := published
				if broken { // up to here it works
					end = min(published, ask+uint64(rapid.IntRange(0, 4).Draw(t, "replayed")))
				}
				whole := !broken || end == published && rapid.Bool().Draw(t, "whole")
				asked = false
				for seq := ask; seq < end && !asked; seq++ {
					f.replayed(now, seq, payload(seq))
					ask, asked = take() // another one takes this one's place
				}
				if !asked {
					f.replayEnded(now, whole)
					ask, asked = take()
				}
			}
		}
		f.tell(now, Message{Kind: Connected})
		drain()
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now += machine.Time(rapid.IntRange(0, 900).Draw(t, "ms")) * machine.Millisecond
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0: // lost on its way
				published++
			case 1:
				life, published = life+1, 0
				f.tell(now, Message{Kind: Connected})
			case 2:
				f.tell(now, Message{Kind: Connected})
			default:
				f.live(now, published, payload(published))
				published++
			}
			drain()
		}
		broken = false
		f.tell(now, Message{Kind: Connected})
		drain()
		for range 20 {
			now += 30 * machine.Second
			drain()
		}
		if uint64(len(got)) != published {
			t.Fatalf("%d of %d messages are known: %q", len(got), published, got)
		}
		for i, text := range got {
			if text != string(payload(uint64(i))) {
				t.Fatalf("message %d of life %d is %q", i, life, text)
			}
		}
	})
}

// The ring of what was delivered begins small, and knows at every moment what
// one of full length would know.
func TestFeedRemembers(t *testing.T) {
	payload := []byte("x")
	rapid.Check(t, func(t *rapid.T) {
		f := New(Config{})
		f.fx = new(Effects)
		var whole [window]uint64
		next := uint64(0)
		for range rapid.IntRange(1, 8).Draw(t, "runs") {
			switch rapid.IntRange(0, 3).Draw(t, "then") {
			case 1:
				next += rapid.Uint64Range(1, 3000).Draw(t, "skipped")
			case 2:
				next = 0
			}
			for range rapid.IntRange(1, 1500).Draw(t, "delivered") {
				f.deliver(next, payload)
				whole[next%window] = checksum(next, payload)
				next++
			}
			f.fx.Reset()
			for back := uint64(1); back <= min(next, window+10); back++ {
				seq := next - back
				if want := back <= window && whole[seq%window] == checksum(seq, payload); f.same(seq, payload) != want {
					t.Fatalf("%d before %d: known %v, want %v, in a ring of %d", seq, next, !want, want, len(f.recent))
				}
			}
		}
	})
	f := New(Config{})
	f.Input(0, Message{Kind: Live, Seq: 7, Payload: payload}, new(Effects))
	if len(f.recent) > 8 {
		t.Errorf("one message takes a ring of %d", len(f.recent))
	}
}
