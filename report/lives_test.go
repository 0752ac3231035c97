package report

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"github.com/windtunnel/windtunnel/report/gaps"
)

// A tally of lives equals a tally of their events, in any order of their ends.
func TestLivesCountAsTheirEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, events := NewTally(), NewTally()
		for _, x := range []*Tally{whole, events} {
			x.series = NewSeries()
			x.series.slo = record.SLO{TTFT: 5}
		}
		n := rapid.IntRange(1, 20).Draw(t, "requests")
		for i := range n {
			number := n - i
			l := record.Life{Request: record.RequestID(1, number), Number: number,
				Endpoint: rapid.SampledFrom([]string{"a:1", "b:2"}).Draw(t, "endpoint"),
				Class:    rapid.SampledFrom([]string{"", "chat"}).Draw(t, "class"),
				SLO:      rapid.SampledFrom([]string{"", "ttft=5ns", "e2e=20us"}).Draw(t, "SLO"),
				Prompt:   rapid.IntRange(1, 9).Draw(t, "prompt"), Cached: rapid.IntRange(0, 9).Draw(t, "cached"),
				Tokens: rapid.IntRange(1, 5).Draw(t, "tokens")}
			at := machine.Time(rapid.IntRange(0, 100).Draw(t, "sent"))
			for _, to := range []*machine.Time{&l.Sent, &l.Picked, &l.Reached, &l.Started, &l.First, &l.FirstSeen,
				&l.FirstGot, &l.Last, &l.LastSeen, &l.LastGot} {
				*to = at
				at = at.Add(machine.Time(rapid.IntRange(0, 3).Draw(t, "takes")) * machine.Microsecond)
			}
			whole.Sending(l.Sent, 1)
			if rapid.IntRange(0, 5).Draw(t, "unfinished") == 0 { // its first events come
				whole.Sending(l.Sent, -1)
				l.First, l.FirstSeen, l.FirstGot, l.Last, l.LastSeen, l.LastGot = machine.Never, machine.Never,
					machine.Never, machine.Never, machine.Never, machine.Never
				for e := range l.Events {
					whole.Record(e)
				}
			} else {
				whole.Lived(&l)
			}
			for e := range l.Events {
				events.Record(e)
			}
		}
		sent, finished := whole.Counts()
		if s, f := events.Counts(); s != sent || f != finished {
			t.Fatalf("expected %d and %d, got %d and %d", s, f, sent, finished)
		}
		if d := cmp.Diff(events.Summary(), whole.Summary()); d != "" {
			t.Fatal(d)
		}
		windows, width := events.series.Windows()
		others, same := whole.series.Windows()
		if d := cmp.Diff(windows, others); d != "" || width != same {
			t.Fatal(d, width, same)
		}
		if d := cmp.Diff(events.series.misses(), whole.series.misses()); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(events.Sample(), whole.Sample(), cmp.AllowUnexported(gaps.Gaps{}, Sample{}),
			cmpopts.IgnoreTypes(sync.Mutex{})); d != "" {
			t.Fatal(d)
		}
	})
}

// Virtual time is several times faster if a run's reader takes lives: all do that print no step and no line of a
// request.
func TestSummariesTakeLives(t *testing.T) {
	for detail, takes := range map[Detail]bool{Quiet: true, Progress: true, Lines: false, Steps: false} {
		var out strings.Builder
		s, err := Start(Options{Out: &out, Detail: detail, Requests: 1})
		if err != nil {
			t.Fatal(err)
		}
		lives := record.LivesOf(s)
		if (lives != nil) != takes {
			t.Errorf("%s: takes lives: %v, expected %v", detail, lives != nil, takes)
		}
		if lives != nil {
			lives.Sending(0, 1)
			lives.Sending(0, -1)
			lives.Lived(&record.Life{Request: "r1", Number: 1})
		}
		if printed := out.Len() > 0; printed != (detail == Progress) {
			t.Errorf("%s: printed %q", detail, out.String())
		}
	}
}
