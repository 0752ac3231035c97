package report

import (
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

// Detail says how much of each request a View shows.
type Detail string

// The levels of detail.
const (
	Steps    Detail = "steps"    // every step of every request
	Lines    Detail = "requests" // one line per request, when it ends
	Progress Detail = "progress" // counts, now and then
)

// DetailFor is the most detail that stays readable for so many requests.
func DetailFor(requests int) Detail {
	switch {
	case requests <= 10:
		return Steps
	case requests <= 200:
		return Lines
	}
	return Progress
}

// View shows events on a terminal as they happen. It is not safe for
// concurrent use.
type View struct {
	out      io.Writer
	paint    terminal.Paint
	detail   Detail
	requests int // how many there will be; 0 where nobody knows
	width    int // columns of the terminal; 0 where out is none
	tally    *Tally
	seen     map[string]*viewed
	count    int
	shown    int          // Progress: the share of the requests at the last line, in tenths
	silence  machine.Time // Progress: how long nothing may be printed while requests go on; 0 is any time
	spoke    machine.Time // Progress: when a line was printed last
	told     passed       // Progress: how far the run was then
	blank    bool         // nothing was printed since an empty line
	status   *status      // of a terminal; nil where there is none
	err      error
}

// maxSilence is how long a run in wall time may go on without a line.
const maxSilence = machine.Time(10 * time.Second)

// maxSeen is how many requests a view tells apart at once.
const maxSeen = 100_000

type viewed struct {
	n    int // for the colour
	sent machine.Time
	hops map[record.Hop]string // the endpoint last shown at each hop
}

// NewView shows what the tally counts, in the wanted detail.
func NewView(out io.Writer, tally *Tally, detail Detail, requests int, color bool) *View {
	return &View{blank: true, out: out, paint: terminal.Paint(color), detail: detail, requests: requests, tally: tally,
		seen: map[string]*viewed{}}
}

// Record shows one event. The tally must have it already.
func (v *View) Record(e record.Event) {
	if v.err != nil {
		return
	}
	switch e = shown(e); {
	case e.Step == record.IncidentBegan || e.Step == record.IncidentEnded:
		v.incident(e)
		return
	case e.Request == "":
		return // what else is no request's is in recordings only
	}
	switch v.detail {
	case Steps:
		v.step(e)
	case Lines:
		v.request(e)
	case Progress:
		v.progress(e)
	}
	if v.detail != Steps && v.tally.sentByHand(e.Request) {
		v.step(e) // somebody waits for it
	}
}

// Err is the first failure to write, after which nothing more was written.
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
		if len(v.seen) >= maxSeen { // somebody keeps us up for days
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

// details are an event's as words.
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

// line prints a line, on as many of the terminal's as it takes.
func (v *View) line(head string, words []string) {
	v.print("%s\n", terminal.WrapWords(head, words, "  ", 12, v.width))
}

// incident prints what happened to a part of the pool, between the requests'
// lines, at its time since the run began.
func (v *View) incident(e record.Event) {
	var words []string
	if e.Endpoint != "" {
		words = []string{v.paint.Bold("→ " + e.Endpoint)}
	}
	head := fmt.Sprintf("%s %10.4fs  %s  %s", v.paint.Red("!   "), e.Time.Seconds(),
		v.paint.Hop(e.Hop, fmt.Sprintf("%-7s", e.Hop)), v.paint.Red(fmt.Sprintf("%-21s", e.Step)))
	v.line(head, append(words, v.details(e)...))
}

// idle reports whether no request is in flight, so that an empty line does not
// cut somebody's steps apart.
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

// progress prints counts whenever another tenth of the requests has been sent
// or has ended, and when nothing was printed for long.
func (v *View) progress(e record.Event) {
	if e.Hop == record.Client && (e.Step == record.RequestSent || e.Step == record.Finished) {
		v.counts(e.Time)
	}
}

// counts are those lines, at a time: rates are of the time since the line before, and what is
// left is of the run's own time.
func (v *View) counts(now machine.Time) {
	if v.err != nil {
		return
	}
	sent, finished := v.tally.Counts()
	all := v.requests
	if all == 0 {
		all = 10_000 // a line per thousand
	}
	tenths := (sent + finished) * 10 / all
	if tenths == v.shown && (v.silence == 0 || now-v.spoke < v.silence) {
		return
	}
	sum, past, over := v.tally.brief(), v.told, (now - v.told.at).Seconds()
	v.shown, v.spoke, v.told = tenths, now, passed{now, sent, finished}
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

// bad reports whether an event tells of something gone wrong.
func bad(e record.Event) bool {
	switch e.Step {
	case record.StreamFailed, record.Violation, record.Rejected, record.Aborted, record.ClientLeft, record.Answered:
		return true
	case record.Finished:
		return OutcomeOf(e) != record.Completed
	}
	return false
}

// value prints a detail's value for people: clipped, quoted where it has
// spaces, lists with commas.
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
