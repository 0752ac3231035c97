package program

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/latency/dist"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

type validateCmd struct {
	loadFlags
	Set       []string `placeholder:"PATH=VALUE" sep:"none" help:"Change a field of the scenario first. May be repeated."`
	EnvoyPath string   `name:"envoy-path" placeholder:"FILE" fromenv:"ENVOY_PATH" help:"The Envoy to use. Left out: one on PATH, or in the cache, or installed into it."`
	Tolerance float64  `default:"5" placeholder:"PERCENT" help:"How far virtual time may be off a latency before that is pointed out."`
	Hops      bool     `help:"Measure first, in a live run with another seed, how long it takes from part to part on this machine, and have virtual time take as long."`
	Fail      bool     `name:"fail" help:"Exit with code 1 where outcomes differ or a latency at p50 or p90 is off by more than the tolerance."`
	Output    string   `enum:"text,json" default:"text" placeholder:"text|json" help:"text for people, or json."`
}

func (c *validateCmd) Help() string {
	return `Plays the scenario in wall time, through a real Envoy, and in virtual time, and says how far virtual time is off: latencies by percentile and request by request, outcomes and endpoints by request, and which requests differ. The machine has to be idle: what else it does makes the live run slower.

Examples:
  windtunnel validate examples/plain.yaml
  windtunnel validate mine.yaml -n 500 --output json
  windtunnel validate mine.yaml --hops                 # with hops as they are on this machine
  windtunnel validate mine.yaml --tolerance 10 --fail`
}

// validated is what validate says with --output json.
type validated struct {
	Requests int `json:"requests"`
	// Hops are those that another run measured, with another seed; nil where none did.
	Hops      *hops.Times `json:"hops,omitempty"`
	Tolerance float64     `json:"tolerancePercent"`
	Spans     []offBy     `json:"spans"`
	// OneTime are spans that only one of the times has, each with which.
	OneTime  []string  `json:"onlyInOneTime,omitempty"`
	Outcomes []offFrom `json:"outcomes,omitempty"`
	// PerRequest is how far each request's own times are apart, of those that completed in both.
	PerRequest []apart `json:"perRequest,omitempty"`
	// Otherwise is how many requests ended otherwise, or in one of the times alone; Ends are the first of them.
	Otherwise int    `json:"otherwise"`
	Ends      []ends `json:"ends,omitempty"`
	// Moved is how many requests went to another server; Servers are the first of them.
	Moved   int    `json:"moved"`
	Servers []ends `json:"servers,omitempty"`
	Answer  string `json:"answer"`
}

// mostNamed is how many requests are named that differ.
const mostNamed = 10

// ends is what one request came to, or where it went, in both times; empty where it did not.
type ends struct {
	Request string `json:"request"`
	Live    string `json:"live"`
	Virtual string `json:"virtual"`
}

// apart is how far requests' own times are apart, in seconds, whichever is longer.
type apart struct {
	Span     string  `json:"span"`
	Requests int     `json:"requests"`
	P50      float64 `json:"p50"`
	P90      float64 `json:"p90"`
	Most     float64 `json:"most"`
	// Request is the one that is furthest apart, and Live and Virtual its times.
	Request string  `json:"request"`
	Live    float64 `json:"live"`
	Virtual float64 `json:"virtual"`
}

// requests are those of a run, by number.
type requests map[int32]*oneRequest

// oneRequest is what a run tells of a request.
type oneRequest struct {
	id, server string
	outcome    flow.Outcome
	ended      report.Ended
}

func (r requests) of(number int32) *oneRequest {
	if r[number] == nil {
		r[number] = &oneRequest{}
	}
	return r[number]
}

// watch is a recorder that fills them, and the tally.
func (r requests) watch(t *report.Tally) flow.Recorder {
	t.Each(func(e *report.Ended) { r.of(e.Number).ended = *e })
	return flow.Tee(t, flow.Func(func(e flow.Event) {
		picked := e.Hop == flow.EPP && e.Step == flow.EndpointPicked
		number, ok := flow.RequestNumber(e.Request)
		if !ok || !picked && e.Step != flow.Finished {
			return
		}
		x := r.of(int32(number))
		if x.id = e.Request; picked {
			x.server, _ = e.Details.Get("name").(string)
		} else {
			x.outcome = report.OutcomeOf(e)
		}
	}))
}

// perToken are the times per token of those that completed.
func (r requests) perToken() (seconds []float64) {
	for _, x := range r {
		if v, ok := x.ended.TPOT(); ok && x.ended.Completed {
			seconds = append(seconds, v)
		}
	}
	return seconds
}

// offBy is one percentile of a span in both times, in seconds.
type offBy struct {
	Span     string  `json:"span"`
	Quantile string  `json:"quantile"`
	Live     float64 `json:"live"`
	Virtual  float64 `json:"virtual"`
	// Off is by how many percent virtual time is longer.
	Off  float64 `json:"offPercent"`
	Over bool    `json:"over"`
}

// offFrom is an outcome that requests have more often in one of the times.
type offFrom struct {
	Outcome flow.Outcome `json:"outcome"`
	Live    int          `json:"live"`
	Virtual int          `json:"virtual"`
}

func (c *validateCmd) Run(o *outside) error {
	switch {
	case c.File == "-":
		return exit.With(exit.Usage, errors.New("a scenario on standard input can be read once, and is played twice; expected a file"))
	case !(c.Tolerance > 0 && c.Tolerance <= 1000):
		return exit.With(exit.Usage, fmt.Errorf("--tolerance: found %v; expected percent, above 0 and at most 1000", c.Tolerance))
	}
	v, err := readVariant(o, c.File, &c.changeFlags)
	if err != nil {
		return err
	}
	if err := v.set(c.Set); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "windtunnel-validate-")
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "live.ndjson")
	var took *hops.Times
	if c.Hops {
		if took, err = c.measured(o, v, filepath.Join(dir, "hops.ndjson")); err != nil {
			return err
		}
	}
	if err := c.live(o, path, c.loadFlags); err != nil {
		return err
	}
	both := [2]requests{{}, {}}
	var sums [2]report.Summary
	tally := report.NewTally()
	to := both[0].watch(tally)
	if _, err := recording.ReadFile[report.Summary](path, func(e flow.Event) error { to.Record(e); return nil }); err != nil {
		return inputError(err)
	}
	sums[0] = tally.Summary()
	ctx, stop := playing(o)
	defer stop()
	s, err := v.scenario(0)
	if err != nil {
		return err
	}
	if took != nil {
		if err := hopsFrom(s, took); err != nil {
			return err
		}
	}
	tally = report.NewTally()
	if err := playTo(ctx, s, both[1].watch(tally), tally, nil); err != nil {
		return err
	}
	sums[1] = tally.Summary()
	for i := range sums {
		sums[i].Spans = append(sums[i].Spans, tokenTimes(both[i].perToken())...)
	}
	out := compareTimes(sums[0], sums[1], c.Tolerance)
	out.Hops = took
	out.eachRequest(both[0], both[1])
	out.answer()
	if c.Output == "json" {
		err = writeJSON(o.Stdout, out)
	} else {
		err = out.write(o)
	}
	if err == nil && c.Fail && (out.Otherwise > 0 || len(out.over())+len(out.Outcomes)+len(out.OneTime) > 0) {
		return exit.Told(exit.Failed, errors.New("virtual time is off"))
	}
	return err
}

// live plays the scenario in wall time, into a recording.
func (c *validateCmd) live(o *outside, path string, flags loadFlags) error {
	live := runCmd{loadFlags: flags, Set: c.Set, outputFlags: outputFlags{shownIn: shownIn{Output: "text"}, View: "progress", Record: path}, EnvoyPath: c.EnvoyPath, Wait: time.Minute}
	fmt.Fprintln(o.Stderr, "playing in wall time, which takes as long as the scenario does")
	quiet := *o
	quiet.Stdout, quiet.Screen, quiet.Terminal = io.Discard, nil, false
	if err := live.Run(&quiet); err != nil && exit.Of(err) != exit.Failed { // what it came to is what is looked at
		return err
	}
	return nil
}

// measured are the hops of a live run with another seed.
func (c *validateCmd) measured(o *outside, v variant, path string) (*hops.Times, error) {
	s, err := v.scenario(1)
	if err != nil {
		return nil, err
	}
	flags := c.loadFlags
	flags.Seed = &s.Seed
	if err := c.live(o, path, flags); err != nil {
		return nil, err
	}
	told, err := recording.ReadFile[report.Summary](path, func(flow.Event) error { return nil })
	switch {
	case err != nil:
		return nil, inputError(err)
	case told == nil || told.HopTimes == nil:
		return nil, exit.With(exit.Environment, errors.New("the first live run measured no hops; expected requests that complete"))
	}
	return told.HopTimes, nil
}

// hopsFrom gives a scenario the hops that were measured; of what was not measured its own stay.
func hopsFrom(s *scenario.Scenario, measured *hops.Times) error {
	for _, f := range []struct {
		text string
		to   *dist.Dist
	}{{measured.Network, &s.Hops.Network}, {measured.Envoy, &s.Hops.Envoy}, {measured.ExtProc, &s.Hops.ExtProc}, {measured.Sidecar, &s.Hops.Sidecar}, {measured.Scrape, &s.Hops.Scrape}} {
		if f.text == "" {
			continue
		}
		d, err := dist.Parse(f.text)
		if err != nil {
			return fmt.Errorf("hops that were measured: %w", err)
		}
		*f.to = d
	}
	return nil
}

// perToken is the span for the mean time between two tokens of a request, at its client.
const perToken = "tpot"

// tokenTimes are how long requests took for each token after the first.
func tokenTimes(seconds []float64) []report.SpanSummary {
	if len(seconds) == 0 {
		return nil
	}
	slices.Sort(seconds)
	at := func(p float64) float64 { return stats.Quantile(seconds, p) }
	return []report.SpanSummary{{Name: perToken, Count: len(seconds), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: seconds[len(seconds)-1]}}
}

// compareTimes holds a summary of virtual time against one of wall time.
func compareTimes(live, virtual report.Summary, tolerance float64) *validated {
	out := &validated{Requests: live.Requests, Tolerance: tolerance}
	for _, sp := range live.Spans {
		other, ok := virtual.Span(sp.Name)
		if !ok {
			out.OneTime = append(out.OneTime, sp.Name+" live")
			continue
		}
		for _, q := range []string{"p50", "p90", "p99"} {
			x := offBy{Span: sp.Name, Quantile: q, Live: sp.Quantile(q), Virtual: other.Quantile(q)}
			if x.Live > 0 {
				x.Off = math.Round(1e4*(x.Virtual-x.Live)/x.Live) / 100
			}
			// What is shorter than a timer's and a scheduler's own time is no fault of a model of it;
			// a time per token is a mean over many.
			least := 0.001
			if sp.Name == perToken {
				least = 0.0001
			}
			x.Over = math.Abs(x.Off) > tolerance && math.Abs(x.Virtual-x.Live) > least
			out.Spans = append(out.Spans, x)
		}
	}
	for _, sp := range virtual.Spans {
		if _, ok := live.Span(sp.Name); !ok {
			out.OneTime = append(out.OneTime, sp.Name+" in virtual time")
		}
	}
	for _, k := range flow.Outcomes() {
		if a, b := live.Outcomes[k], virtual.Outcomes[k]; a != b {
			out.Outcomes = append(out.Outcomes, offFrom{k, a, b})
		}
	}
	return out
}

// eachRequest holds each request of one time against the same one of the other.
func (x *validated) eachRequest(live, virtual requests) {
	numbers := maps.Clone(live)
	maps.Copy(numbers, virtual)
	spans := []struct {
		name string
		of   func(e *report.Ended) (seconds float64, ok bool)
	}{
		{"total", func(e *report.Ended) (float64, bool) { return float64(e.E2E) / 1e6, true }},
		{"ttft", func(e *report.Ended) (float64, bool) { return float64(e.TTFT) / 1e6, e.TTFT > 0 }},
		{perToken, (*report.Ended).TPOT},
	}
	list, off := make([]apart, len(spans)), make([][]float64, len(spans))
	add := func(to *[]ends, id, a, b string) {
		if len(*to) < mostNamed {
			*to = append(*to, ends{id, a, b})
		}
	}
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		a, b := live.of(n), virtual.of(n)
		id := cmp.Or(a.id, b.id)
		if a.outcome != b.outcome {
			x.Otherwise++
			add(&x.Ends, id, string(a.outcome), string(b.outcome))
		}
		if a.server != b.server {
			x.Moved++
			add(&x.Servers, id, a.server, b.server)
		}
		if !a.ended.Completed || !b.ended.Completed {
			continue
		}
		for i := range spans {
			v, told := spans[i].of(&a.ended)
			w, told2 := spans[i].of(&b.ended)
			if !told || !told2 {
				continue
			}
			d := report.Digits(math.Abs(w - v))
			if off[i] = append(off[i], d); d >= list[i].Most {
				list[i] = apart{Most: d, Request: id, Live: report.Digits(v), Virtual: report.Digits(w)}
			}
		}
	}
	for i, l := range list {
		if l.Requests = len(off[i]); l.Requests > 0 {
			slices.Sort(off[i])
			l.Span, l.P50, l.P90 = spans[i].name, stats.Quantile(off[i], 0.5), stats.Quantile(off[i], 0.9)
			x.PerRequest = append(x.PerRequest, l)
		}
	}
}

// over are the latencies at p50 and p90 that are off by more than the tolerance.
func (x *validated) over() (list []string) {
	for _, s := range x.Spans {
		if s.Over && s.Quantile != "p99" {
			list = append(list, fmt.Sprintf("%s %s (%+.1f%%)", s.Span, s.Quantile, s.Off))
		}
	}
	return list
}

func (x *validated) answer() {
	var parts []string
	if list := x.over(); len(list) > 0 {
		parts = append(parts, fmt.Sprintf("virtual time is off by more than %v%% and 1 ms (of %s 0.1 ms) in %s", x.Tolerance, perToken, strings.Join(list, ", ")))
	} else {
		parts = append(parts, fmt.Sprintf("virtual time is within %v%% or 1 ms (of %s 0.1 ms) of every latency at p50 and p90", x.Tolerance, perToken))
	}
	for _, k := range x.Outcomes {
		parts = append(parts, fmt.Sprintf("%d ended %s live and %d in virtual time", k.Live, k.Outcome, k.Virtual))
	}
	for _, s := range x.OneTime {
		parts = append(parts, "there is a span "+s+" and none in the other")
	}
	if x.Otherwise > 0 {
		e := x.Ends[0]
		parts = append(parts, fmt.Sprintf("%d of %d requests ended otherwise, the first %s: %s live, %s in virtual time", x.Otherwise, x.Requests, e.Request, cmp.Or(e.Live, "not at all"), cmp.Or(e.Virtual, "not at all")))
	}
	if x.Moved > 0 {
		e := x.Servers[0]
		parts = append(parts, fmt.Sprintf("%d of %d requests went to another server, the first %s: %s live, %s in virtual time", x.Moved, x.Requests, e.Request, cmp.Or(e.Live, "to none"), cmp.Or(e.Virtual, "to none")))
	}
	x.Answer = strings.Join(parts, "; ")
}

func (x *validated) write(o *outside) error {
	if x.Hops != nil {
		if err := x.Hops.Write(o.Stdout); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(o.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "span\t\tlive\tvirtual\toff\t\t\n")
	m := report.Measure{Unit: report.Seconds}
	for _, s := range x.Spans {
		note := ""
		if s.Over {
			note = "differs"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%+.1f%%\t%s\t\n", s.Span, s.Quantile, m.Text(s.Live), m.Text(s.Virtual), s.Off, note)
	}
	if len(x.PerRequest) > 0 {
		fmt.Fprint(w, "\nrequest by request\trequests\tp50 apart\tp90 apart\tat most\tof\t\n")
	}
	for _, s := range x.PerRequest {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s: %s live, %s virtual\t\n", s.Span, s.Requests, m.Text(s.P50), m.Text(s.P90), m.Text(s.Most), s.Request, m.Text(s.Live), m.Text(s.Virtual))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(o.Stdout, terminal.Wrap("answer   "+x.Answer, 9, o.Columns)+"\n")
	return err
}
