package report

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// A terminal's last line shows the progress of the run, and is cleared before another line.
func TestStatusLine(t *testing.T) {
	var out strings.Builder
	tally := NewTally()
	s := &status{out: &out, columns: 100, requests: 40}
	view := NewView(&out, tally, Lines, 40, true)
	view.status = s
	at := machine.Time(0)
	play := func(n int, outcome record.Outcome) {
		id := record.RequestID(1, n)
		for _, e := range []record.Event{{Step: record.RequestSent}, {Step: record.FirstTokenReceived},
			{Step: record.LastTokenReceived},
			{Step: record.Finished, Details: record.Details{record.D("outcome", string(outcome))}}} {
			e.Time, e.Request, e.Hop = at, id, record.Client
			at += 25 * machine.Millisecond
			tally.Record(e)
			view.Record(e)
		}
	}
	for n := 1; n <= 20; n++ {
		play(n, map[bool]record.Outcome{true: record.Completed, false: record.TimedOut}[n%10 != 0])
		if err := s.show(at, tally); err != nil {
			t.Fatal(err)
		}
	}
	s.next = 0
	if err := s.show(at, tally); err != nil {
		t.Fatal(err)
	}
	last := out.String()[strings.LastIndex(out.String(), "\r\x1b[K")+4:]
	if want := "2.0s  10.0 sent/s  0 in flight  ttft 25.0ms (p99 25.0ms)  2 not completed  about 2s left"; last !=
		want {
		t.Errorf("the line is\n%q, expected\n%q", last, want)
	}
	play(21, record.Completed)
	if text := out.String(); strings.Contains(strings.ReplaceAll(text, "left\r\x1b[K", ""), "left\x1b") ||
		!strings.HasSuffix(text, "\n") {
		t.Errorf("a line was written behind the status line: %q", text)
	}
	if err := s.clear(); err != nil || s.shown {
		t.Error("it cannot be taken away")
	}
}
