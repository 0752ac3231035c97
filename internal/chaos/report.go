package chaos

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
)

// Report is the result of many seeds of one scenario.
type Report struct {
	Scenario string `json:"scenario"`
	// First is the first seed, and Seeds how many were played.
	First uint64 `json:"firstSeed"`
	Seeds int    `json:"seeds"`
	// Requests were sent in all runs, and Completed of them completed.
	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	// Faults were drawn, by kind in the order of their names.
	Faults   int        `json:"faults"`
	Recovery []Recovery `json:"recovery"`
	Failures []Failure  `json:"failures"`
}

// Recovery is how long it takes after the end of incidents of one kind until a request completes that was sent
// afterwards.
type Recovery struct {
	Kind string `json:"kind"`
	// Faults ended while requests were still sent. Never counts those after which no request completed.
	Faults int `json:"faults"`
	Never  int `json:"never"`
	// Median and Longest are in seconds.
	Median  float64 `json:"medianSeconds"`
	Longest float64 `json:"longestSeconds"`
}

// Failure is a seed that broke an invariant.
type Failure struct {
	Seed   uint64 `json:"seed"`
	Broken string `json:"broken"`
	Drawn  int    `json:"drawnFaults"`
	// Settings are the fields of the scenario with the faults that are enough, for --set of sim and run. A seed whose
	// invariant an earlier one broke in the same way is not shrunk, and has all its faults.
	Settings []string `json:"set"`
	Shrunk   bool     `json:"shrunk"`

	Faults []Fault `json:"-"`
}

// result is the result of one seed.
type result struct {
	played              bool
	faults              []Fault
	broken              string
	requests, completed int
	recovered           []recovered
}

type recovered struct {
	kind  string
	after float64 // seconds
	ok    bool
}

// Run plays seeds on all cores, and shrinks the first failure of each kind. The report is the same on every machine.
// After an interruption, it has the seeds that were played, and an error comes with it.
func (b *Base) Run(ctx context.Context, first uint64, seeds int, progress func(what string, done, of int)) (*Report,
	error) {
	results := make([]result, seeds)
	p := search.Player{Progress: progress}
	done := p.Counter("seeds", seeds)
	err := search.Each(seeds, func(i int) error {
		defer done()
		x := &results[i]
		faults, o, err := b.Drawn(ctx, first+uint64(i))
		if err != nil || ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
		*x = resultOf(faults, o.watch, o.Broken)
		return nil
	})
	r := b.report(first, results)
	b.shrink(ctx, r, &p)
	if ctx.Err() != nil {
		return r, exit.Reported(exit.Interrupted, ctx.Err())
	}
	return r, err
}

// Single returns the report of one seed that was played in another way. Nothing is shrunk.
func (b *Base) Single(seed uint64, faults []Fault, w *Watch, broken string) *Report {
	r := b.report(seed, []result{resultOf(faults, w, broken)})
	b.settings(r)
	return r
}

func resultOf(faults []Fault, w *Watch, broken string) result {
	x := result{played: true, faults: faults, broken: broken}
	x.requests, x.completed = w.counts()
	for j := range faults {
		if f := &faults[j]; f.Incident != nil {
			if after, ok, sent := w.recovered(f); sent {
				x.recovered = append(x.recovered, recovered{f.Kind(), after.Seconds(), ok})
			}
		}
	}
	return x
}

// report adds up the results of seeds.
func (b *Base) report(first uint64, results []result) *Report {
	r := &Report{Scenario: b.variant.Name, First: first, Failures: []Failure{}, Recovery: []Recovery{}}
	of := map[string][]recovered{}
	for i := range results {
		x := &results[i]
		if !x.played {
			continue
		}
		r.Seeds++
		r.Requests, r.Completed, r.Faults = r.Requests+x.requests, r.Completed+x.completed, r.Faults+len(x.faults)
		for _, t := range x.recovered {
			of[t.kind] = append(of[t.kind], t)
		}
		if x.broken != "" {
			r.Failures = append(r.Failures, Failure{Seed: first + uint64(i), Broken: x.broken, Drawn: len(x.faults),
				Faults: x.faults})
		}
	}
	r.recoveries(of)
	return r
}

func (r *Report) recoveries(of map[string][]recovered) {
	for kind, list := range of {
		x := Recovery{Kind: kind, Faults: len(list)}
		var times []float64
		for _, t := range list {
			if t.ok {
				times = append(times, t.after)
			}
		}
		slices.Sort(times)
		if n := len(times); n > 0 {
			x.Median, x.Longest = times[n/2], times[n-1]
		}
		x.Never = len(list) - len(times)
		r.Recovery = append(r.Recovery, x)
	}
	machine.SortFunc(r.Recovery, func(a, b Recovery) int { return strings.Compare(a.Kind, b.Kind) })
}

// shrink shrinks the first failure of each class, on all cores.
func (b *Base) shrink(ctx context.Context, r *Report, p *search.Player) {
	seen := map[string]bool{}
	var kept []*Failure
	for i := range r.Failures {
		if f := &r.Failures[i]; !seen[class(f.Broken)] {
			seen[class(f.Broken)] = true
			kept = append(kept, f)
		}
	}
	done := p.Counter("failures to shrink", len(kept))
	_ = search.Each(len(kept), func(i int) error { // it returns no error
		defer done()
		if f := kept[i]; ctx.Err() == nil {
			f.Faults, f.Shrunk = b.Shrink(ctx, f.Faults, f.Broken), true
		}
		return nil
	})
	b.settings(r)
}

// settings writes down the faults of failures.
func (b *Base) settings(r *Report) {
	for i := range r.Failures {
		f := &r.Failures[i]
		for _, s := range b.With(f.Faults).Settings[len(b.variant.Settings):] {
			f.Settings = append(f.Settings, s.String())
		}
	}
}

// mostListed bounds the failures that Write prints, and mostEqual those of one class.
const mostListed = 20

// Write prints the report for people.
func (r *Report) Write(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "chaos       %s: %d seeds from %d, %d faults\n", r.Scenario, r.Seeds, r.First, r.Faults)
	fmt.Fprintf(&b, "requests    %d, %d of them completed\n", r.Requests, r.Completed)
	if len(r.Recovery) > 0 {
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "recovery after\tincidents\tmedian\tlongest\tnever\t\n")
		for _, x := range r.Recovery {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t\n", x.Kind, x.Faults, seconds(x.Median), seconds(x.Longest), x.Never)
		}
		_ = t.Flush() // a strings.Builder takes all
	}
	if len(r.Failures) == 0 {
		b.WriteString("invariants  all held\n")
	}
	for i, f := range r.Failures {
		if i == mostListed {
			fmt.Fprintf(&b, "and %d more seeds\n", len(r.Failures)-i)
			break
		}
		fmt.Fprintf(&b, "seed %d      %s\n", f.Seed, f.Broken)
		if f.Shrunk || len(r.Failures) == 1 {
			fmt.Fprintf(&b, "            with %d of %d faults:\n", len(f.Faults), f.Drawn)
			for _, s := range f.Settings {
				fmt.Fprintf(&b, "            --set '%s'\n", s)
			}
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}
