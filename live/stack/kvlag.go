package stack

import (
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/report"
)

// The lag of an index is the time from the moment at which an engine makes an event to the one at which look-ups see
// it. A message has the time at which it was sent, but not how long its events had waited, so publishers remember
// that.

// madeLog has the times at which the events of a publisher's latest messages were made.
type madeLog struct {
	mu       sync.Mutex
	messages [madeMessages]madeMessage
}

// madeMessages is how many messages of a publisher are remembered.
const madeMessages = 4096

type madeMessage struct {
	seq    uint64
	events []madeEvents
}

// madeEvents counts the events of about one time, in Unix seconds.
type madeEvents struct {
	at float64
	n  int
}

// together is how far apart the times of events may be that count as one.
const together = 50e-6 // seconds

func (m *madeLog) note(seq uint64, events []kv.Event) {
	var runs []madeEvents
	for i := range events {
		at := events[i].At
		switch n := len(runs); {
		case at == 0: // a heartbeat
		case n > 0 && at-runs[n-1].at < together:
			runs[n-1].n++
		default:
			runs = append(runs, madeEvents{at, 1})
		}
	}
	m.mu.Lock()
	m.messages[seq%madeMessages] = madeMessage{seq, runs}
	m.mu.Unlock()
}

// of returns the times of a message's events; nil for a message that is too old.
func (m *madeLog) of(seq uint64) []madeEvents {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := &m.messages[seq%madeMessages]; x.seq == seq {
		return x.events
	}
	return nil
}

// indexed returns the function to call for every message that an index has taken, an index that begins to listen now
// and belongs to a picker if there are several. Events that were made earlier are history and have no lag.
func (x *announcers) indexed(picker string) func(index string, r kvevents.Report) {
	began := unixSeconds(time.Now())
	return func(index string, r kvevents.Report) {
		index = report.IndexName(index, picker)
		if r.Err != nil || r.Lost != "" || len(r.Events) == 0 {
			return
		}
		now := unixSeconds(time.Now())
		x.mu.Lock()
		defer x.mu.Unlock()
		a := x.pods[r.From.Pod]
		if a == nil {
			return
		}
		m := x.lag[index]
		if m == nil {
			m = &report.Lag{}
			x.lag[index] = m
		}
		for _, e := range a.made.of(r.Seq) {
			if e.at >= began {
				m.Note(max(0, time.Duration((now-e.at)*1e9)), e.n)
			}
		}
	}
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
