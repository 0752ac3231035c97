package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Detail is how much of each request a View prints.
type Detail string

// The levels of detail.
const (
	Steps    Detail = "steps"    // every step of every request
	Lines    Detail = "lines"    // one line per request, when it ends
	Progress Detail = "progress" // counts, from time to time
	Quiet    Detail = "summary"  // nothing before the summary
)

// DetailFor returns the most detail that stays readable for so many requests.
func DetailFor(requests int) Detail {
	switch {
	case requests <= 10:
		return Steps
	case requests <= 200:
		return Lines
	}
	return Progress
}

// View prints events on a terminal as they happen. It is not safe for concurrent use.
type View struct {
	out       io.Writer
	paint     terminal.Paint
	detail    Detail
	requests  int // of the run; 0 if unknown
	width     int // columns of the terminal; 0 where out is none
	tally     *Tally
	seen      map[string]*viewed
	count     int
	shown     int          // Progress: the share of the requests at the last line, in tenths
	silence   machine.Time // Progress: the longest time without a line; 0 is no limit
	printedAt machine.Time // Progress: time of the last line
	last      passed       // Progress: progress at the last line
	blank     bool         // the last line was empty
	status    *status      // of a terminal; else nil
	err       error
}

// maxSilence is the longest time without a line of a run in wall time.
const maxSilence = machine.Time(10 * time.Second)

// maxSeen bounds the requests that a view distinguishes at once.
const maxSeen = 100_000

type viewed struct {
	n    int // for the colour
	sent machine.Time
	hops map[record.Hop]string // the endpoint last shown at each hop
}

// NewView returns a view of the tally's counts with this detail.
func NewView(out io.Writer, tally *Tally, detail Detail, requests int, color bool) *View {
	return &View{blank: true, out: out, paint: terminal.Paint(color), detail: detail, requests: requests, tally: tally,
		seen: map[string]*viewed{}}
}

// Record prints one event. The tally must have the event already.
func (v *View) Record(e record.Event) {
	if v.err != nil {
		return
	}
	switch e = shown(e); {
	case e.Step == record.IncidentBegan || e.Step == record.IncidentEnded:
		if v.detail != Quiet {
			v.incident(e)
		}
		return
	case e.Request == "":
		return // other events without a request are only in recordings
	}
	switch v.detail {
	case Steps:
		v.step(e)
	case Lines:
		v.request(e)
	case Progress:
		if e.Hop == record.Client && (e.Step == record.RequestSent || e.Step == record.Finished) {
			v.counts(e.Time)
		}
	}
	if v.detail != Steps && v.tally.sentByHand(e.Request) {
		v.step(e) // the user who sent it waits for it
	}
}

// Err returns the first error of writing. Nothing is written after it.
func (v *View) Err() error { return v.err }

func (v *View) print(format string, args ...any) {
	v.blank = format == "\n"
	if err := v.status.clear(); err != nil {
		v.err = err
		return
	}
	if _, err := fmt.Fprintf(v.out, format, args...); err != nil {
		v.err = err
	}
}

func (v *View) look(e record.Event) *viewed {
	id := idOf(e.Request)
	r := v.seen[id]
	if r == nil {
		if len(v.seen) >= maxSeen { // a run of days
			clear(v.seen)
		}
		v.count++
		r = &viewed{n: v.count, sent: e.Time, hops: map[record.Hop]string{}}
		if n, ok := record.RequestNumber(e.Request); ok {
			r.n = n
		}
		v.seen[id] = r
	}
	if e.Hop == record.Client && e.Step == record.RequestSent {
		r.sent = e.Time
	}
	return r
}

// step prints one line: request, time since it was sent, hop, step, details.
func (v *View) step(e record.Event) {
	known := v.seen[idOf(e.Request)] != nil
	r := v.look(e)
	var words []string
	if !known && e.Request != "" {
		words = append(words, "id="+terminal.Clip(e.Request))
	}
	if e.Attempt > 1 {
		words = append(words, "attempt="+strconv.Itoa(e.Attempt))
	}
	if e.Endpoint != "" && r.hops[e.Hop] != e.Endpoint {
		words = append(words, v.paint.Bold("→ "+e.Endpoint))
		if len(r.hops) < maxHops {
			r.hops[e.Hop] = e.Endpoint
		}
	}
	words = append(words, v.details(e)...)
	step := fmt.Sprintf("%-21s", e.Step)
	if bad(e) {
		step = v.paint.Red(step)
	}
	head := fmt.Sprintf("%s %s  %s  %s",
		v.paint.Request(r.n, fmt.Sprintf("%-4s", terminal.Printable(record.Label(e.Request)))),
		fmt.Sprintf("%+10.4fs", (e.Time-r.sent).Seconds()),
		v.paint.Hop(e.Hop, fmt.Sprintf("%-7s", e.Hop)), step)
	v.line(head, words)
	if e.Hop == record.Client && e.Step == record.Finished && v.idle() {
		v.print("\n")
	}
}

// details returns an event's details as words.
func (v *View) details(e record.Event) []string {
	var words []string
	for _, d := range e.Details {
		if d.Key == record.Explanation || d.Key == hops.Timeline {
			continue // for programs
		}
		if text := value(d); text != "" && d.Value != e.Endpoint {
			words = append(words, v.paint.Dim(d.Key+"=")+text)
		}
	}
	return words
}

// line prints a line, wrapped to the terminal.
func (v *View) line(head string, words []string) {
	v.print("%s\n", terminal.WrapWords(head, words, "  ", 12, v.width))
}

// incident prints something that happened to a part of the pool, with the time since the run began.
func (v *View) incident(e record.Event) {
	var words []string
	if e.Endpoint != "" {
		words = []string{v.paint.Bold("→ " + e.Endpoint)}
	}
	head := fmt.Sprintf("%s %10.4fs  %s  %s", v.paint.Red("!   "), e.Time.Seconds(),
		v.paint.Hop(e.Hop, fmt.Sprintf("%-7s", e.Hop)), v.paint.Red(fmt.Sprintf("%-21s", e.Step)))
	v.line(head, append(words, v.details(e)...))
}

// idle reports whether no request is in flight, so that an empty line does not separate a request's steps.
func (v *View) idle() bool {
	sent, finished := v.tally.Counts()
	return sent == finished
}

// request prints one line when a request ends.
func (v *View) request(e record.Event) {
	if e.Hop != record.Client { // other hops' last events may come after the end
		return
	}
	r := v.look(e)
	if e.Step != record.Finished {
		return
	}
	delete(v.seen, idOf(e.Request))
	spans, server := v.tally.request(e.Request)
	var words []string
	for _, name := range []string{"ttft", "hold", "prefill", "total"} {
		text := "-"
		if d, ok := spans[name]; ok {
			text = terminal.Span(d.Seconds())
		} else if name == "hold" {
			continue // most requests are not
		}
		words = append(words, fmt.Sprintf("%s %-7s", v.paint.Dim(name), text))
	}
	if server != "" {
		words = append(words, "→ "+name(server))
	}
	outcome := fmt.Sprintf("%-12s", name(string(OutcomeOf(e))))
	if bad(e) {
		outcome = v.paint.Red(outcome)
		if reason, ok := e.Details.Get("reason").(string); ok {
			words = append(words, terminal.Clip(reason))
		}
	}
	v.line(v.paint.Request(r.n, terminal.Clip(e.Request))+"  "+outcome, words)
}

// counts prints the line. Rates cover the time since the line before, and the time left is the run's own.
func (v *View) counts(now machine.Time) {
	if v.err != nil {
		return
	}
	sent, finished := v.tally.Counts()
	all := v.requests
	all = cmp.Or(all, 10_000) // a line per thousand
	tenths := (sent + finished) * 10 / all
	if tenths == v.shown && (v.silence == 0 || now-v.printedAt < v.silence) {
		return
	}
	sum, past, over := v.tally.brief(), v.last, (now - v.last.at).Seconds()
	v.shown, v.printedAt, v.last = tenths, now, passed{now, sent, finished}
	words := []string{"sent " + terminal.Thousands(sent), "in flight " + terminal.Thousands(sent-finished),
		"ended " + terminal.Thousands(finished)}
	if v.requests > 0 {
		words[2] += fmt.Sprintf(" (%d%%)", finished*100/all)
	}
	if ended := finished - past.finished; ended > 0 && over > 0 {
		rate, _ := MeasureNamed("requests/s")
		words = append(words, rate.Text(float64(ended)/over)+" requests/s")
	}
	if sum.ttft.Count > 0 {
		words = append(words, "ttft p50 "+terminal.Span(sum.ttft.P50))
	}
	if sum.failed > 0 {
		words = append(words, terminal.Thousands(sum.failed)+" not completed")
	}
	if left := v.requests - finished; left > 0 && finished > past.finished {
		words = append(words, timeLeft(left, finished-past.finished, over))
	}
	v.line(fmt.Sprintf("%9.1fs", now.Seconds()), words)
}

// bad reports whether an event is a failure.
func bad(e record.Event) bool {
	switch e.Step {
	case record.StreamFailed, record.Violation, record.Rejected, record.Aborted, record.ClientLeft, record.Answered:
		return true
	case record.Finished:
		return OutcomeOf(e) != record.Completed
	}
	return false
}

// value returns a detail's value for people: clipped, quoted where it has spaces, lists with commas.
func value(d record.Detail) string {
	switch x := d.Value.(type) {
	case nil:
		return ""
	case string:
		return terminal.Clip(x)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case []string:
		return terminal.ClipTo(4*terminal.Wide, strings.Join(x, ","))
	case []any:
		parts := make([]string, len(x))
		for i, y := range x {
			parts[i] = fmt.Sprint(y)
		}
		return terminal.ClipTo(4*terminal.Wide, strings.Join(parts, ","))
	case map[string]any:
		return terminal.ClipTo(4*terminal.Wide, pairs(x))
	case map[string]string:
		return terminal.ClipTo(4*terminal.Wide, pairs(x))
	}
	return terminal.Clip(fmt.Sprint(d.Value))
}

func pairs[V any](m map[string]V) string {
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, fmt.Sprintf("%s:%v", k, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
