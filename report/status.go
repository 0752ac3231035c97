package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// statusEvery is how often a terminal's status line is written, and statusOver the time that its rates cover.
const (
	statusEvery = 250 * machine.Millisecond
	statusOver  = 2 * machine.Second
)

// status is the last line of a terminal during a live run: its rate, the requests in flight, the time left. It is
// cleared before anything else is written.
type status struct {
	mu       sync.Mutex
	out      io.Writer
	columns  int
	requests int // 0 if unknown
	virtual  bool
	shown    bool
	over     bool // the summary has been printed, and nothing is written any more
	next     machine.Time
	past     []passed
}

// passed is the progress of the run at a time.
type passed struct {
	at             machine.Time
	sent, finished int
}

// clear clears the line.
func (s *status) clear() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shown {
		return nil
	}
	s.shown = false
	_, err := io.WriteString(s.out, "\r\x1b[K")
	return err
}

// show writes the line as of now, if it is due.
func (s *status) show(now machine.Time, t *Tally) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now < s.next || s.over {
		return nil
	}
	s.next = now + statusEvery
	sum := t.brief()
	if sum.sent == 0 {
		return nil
	}
	s.past = append(s.past, passed{now, sum.sent, sum.finished})
	for len(s.past) > 2 && s.past[1].at <= now-statusOver {
		s.past = s.past[1:]
	}
	line := s.line(now, sum)
	if s.columns > 1 && terminal.Columns(line) >= s.columns {
		line = string([]rune(line)[:s.columns-1])
	}
	s.shown = true
	_, err := io.WriteString(s.out, "\r\x1b[K"+line)
	return err
}

// end clears the line for good.
func (s *status) end() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	return s.clear()
}

// line returns the text of the line.
func (s *status) line(now machine.Time, sum brief) string {
	first := s.past[0]
	words := []string{fmt.Sprintf("%.1fs", now.Seconds())}
	over := (now - first.at).Seconds()
	if s.virtual { // now is wall time
		words[0] = terminal.Thousands(sum.finished) + " ended"
		if s.requests > 0 {
			words[0] = fmt.Sprintf("%s of %s ended", terminal.Thousands(sum.finished),
				terminal.Counted(s.requests, "request"))
		}
		words = append(words, terminal.Span(sum.last.Seconds())+" of virtual time")
	} else if over > 0 {
		words = append(words, fmt.Sprintf("%.1f sent/s", float64(sum.sent-first.sent)/over))
	}
	words = append(words, terminal.Thousands(sum.sent-sum.finished)+" in flight")
	if sum.ttft.Count > 0 {
		words = append(words, "ttft "+terminal.Span(sum.ttft.P50)+" (p99 "+terminal.Span(sum.ttft.P99)+")")
	}
	if sum.failed > 0 {
		words = append(words, terminal.Thousands(sum.failed)+" not completed")
	}
	if ended := sum.finished - first.finished; s.requests > 0 && ended > 0 && over > 0 {
		words = append(words, timeLeft(s.requests-sum.finished, ended, over))
	}
	return strings.Join(words, "  ")
}

// timeLeft estimates how long some requests will take, from how many ended in so many seconds. The text has whole
// seconds.
func timeLeft(requests, ended int, seconds float64) string {
	left := math.Ceil(float64(requests) * seconds / float64(ended))
	return "about " + (time.Duration(min(left, 1e9)) * time.Second).String() + " left"
}

// brief is the progress of a run.
type brief struct {
	sent, finished, failed int
	ttft                   SpanSummary
	last                   machine.Time // of the last event
}

// brief returns the progress of the run.
func (t *Tally) brief() brief {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := brief{sent: t.requests(), finished: t.finished, failed: t.finished - t.outcomes[record.Completed],
		last: t.last}
	for i, s := range t.index.spans {
		if s.Name == "ttft" && t.spans[i].hist != nil {
			b.ttft = *t.spans[i].summary(s.Name)
		}
	}
	return b
}
