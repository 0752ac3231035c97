package workload

import (
	"fmt"
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// The shares of a schedule together are the schedule: each conversation begins once, at its time, with its requests.
func TestSharesOfASchedule(t *testing.T) {
	all := func(share, shares int) (out []string) {
		c := &Config{Seed: 7, Requests: 100, Turns: func(d *machine.Draw) int64 { return 1 + int64(3*d.Float64()) },
			Schedule: Schedule{Rate: 20, Share: share, Shares: shares}}
		l := NewLoop(c, 1000)
		for {
			at, more := l.Arrival()
			if !more {
				return out
			}
			v, begins := l.Arrived(nil)
			if !begins {
				t.Fatal("a conversation waits")
			}
			out = append(out, fmt.Sprintf("%012d: conversation %d with requests %d to %d", at, v.Index, v.First,
				v.First+v.Turns))
		}
	}
	whole := all(0, 0)
	for _, n := range []int{1, 2, 3, len(whole) + 1} {
		var union []string
		for i := range n {
			part := all(i, n)
			if want := (len(whole) - i + n - 1) / n; len(part) != want {
				t.Errorf("share %d of %d has %d conversations; expected %d", i, n, len(part), want)
			}
			union = append(union, part...)
		}
		slices.Sort(union)
		if !slices.Equal(union, whole) {
			t.Errorf("%d shares:\n%q\nexpected\n%q", n, union, whole)
		}
	}
}

// A conversation begins whenever one ends, until there are enough or the time is up; in an open loop one that finds
// the limit reached begins when another has ended.
func TestLoop(t *testing.T) {
	closed := NewLoop(&Config{Requests: 3}, 2)
	for range closed.First() {
		closed.Arrived(nil)
	}
	if _, arrives := closed.Ended(0); !arrives || closed.InFlight() != 1 {
		t.Fatal(arrives, closed.InFlight())
	}
	closed.Arrived(nil)
	if _, arrives := closed.Ended(0); arrives || closed.Over() {
		t.Fatal("a fourth one, or the end before the third one's")
	}
	if closed.Ended(0); !closed.Over() {
		t.Fatal(closed.InFlight())
	}

	timed := NewLoop(&Config{Requests: 3, Schedule: Schedule{Until: machine.Second}}, 1)
	timed.Arrived(nil)
	if _, arrives := timed.Ended(machine.Second); arrives || !timed.Over() {
		t.Fatal("one begins when the time is up")
	}

	open := NewLoop(&Config{Requests: 2, Schedule: Schedule{Rate: 1}}, 1)
	_, more := open.Arrival()
	_, first := open.Arrived(nil)
	second, begins := open.Arrived(nil)
	if !more || !first || begins || open.Waiting() != 1 {
		t.Fatal(more, first, begins, open.Waiting())
	}
	if v, arrives := open.Ended(0); v != second || arrives {
		t.Fatal("the one that waited does not begin")
	}
	if _, more := open.Arrival(); more {
		t.Fatal("a third one arrives")
	}
}
