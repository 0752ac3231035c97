package workload

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

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
