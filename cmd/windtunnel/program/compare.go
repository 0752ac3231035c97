package program

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/outcomes"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

type compareCmd struct {
	Files []string `arg:"" name:"scenario-or-recording" help:"Scenarios to play, or recordings (.ndjson, .ndjson.gz) or files of --outcomes; the first is what the others are compared with. One scenario alone is compared with itself under each --set."`
	changeFlags
	Set          []string `placeholder:"PATH=VALUE" sep:"none" help:"Also compare the scenario with itself with this field changed, such as 'pools[0].replicas=8'; several fields of one variant are separated by ;. May be repeated."`
	SLO          []string `name:"slo" placeholder:"ttft=200ms,tpot=30ms" help:"What makes an answer good: the most that its ttft, tpot and e2e may take. Goodput and attainment are told then."`
	Replications int      `short:"r" default:"1" placeholder:"R" help:"Play each with R seeds, and compare run by run: near saturation one run says too little."`
	FailIfWorse  bool     `name:"fail-if-worse" help:"Exit with code 1 where any measure is worse than the first one's, by more than chance."`
	Output       string   `enum:"text,json" default:"text" placeholder:"text|json" help:"text for people, or json."`
}

func (c *compareCmd) Help() string {
	return `All are played in virtual time from the same seed, so that each request is the same in all of them, arrives at the same time and meets the same chances: what differs is what the scenarios do (common random numbers). Every difference has an interval that holds the true one 95 times in 100, or it says why there is none. docs/decide.md tells how they come about.

Examples:
  windtunnel compare today.yaml tomorrow.yaml
  windtunnel compare mine.yaml --set 'pools[0].replicas=8' --set 'pools[0].replicas=8;workload.rate=40'
  windtunnel compare mine.yaml --set 'pools[0].flow=held' -n 20000 --slo ttft=200ms,tpot=30ms
  windtunnel compare mine.yaml other.yaml --replications 10        # near saturation
  windtunnel sim mine.yaml --outcomes today.outcomes               # 32 bytes for each request
  windtunnel compare today.outcomes tomorrow.yaml                  # and a run of then with a scenario
  windtunnel compare monday.ndjson.gz tuesday.ndjson.gz            # two recordings
  windtunnel compare main.yaml branch.yaml --fail-if-worse || echo "the change made it worse"`
}

// Bounds of what is played.
const maxReplications, maxVariants = 1000, 64

// compared is what compare says with --output json.
type compared struct {
	SLO          string   `json:"slo,omitempty"`
	Confidence   float64  `json:"confidence"`
	Replications int      `json:"replications"`
	Variants     []side   `json:"variants"`
	Comparisons  []versus `json:"comparisons"`
}

// side is one of those compared.
type side struct {
	Name     string  `json:"name"`
	Seed     uint64  `json:"seed"`
	Requests int     `json:"requests"`
	WarmUp   float64 `json:"warmUpSeconds"`
	Steady   bool    `json:"steady"`
}

// versus is the difference of one of them from the first.
type versus struct {
	Of       string        `json:"of"`
	With     string        `json:"with"`
	Paired   int           `json:"pairedRequests"`
	Measures []versusValue `json:"measures"`
	Verdict  string        `json:"verdict"`
	worse    int
}

// versusValue is one measure of both.
type versusValue struct {
	Measure    string      `json:"measure"`
	Unit       report.Unit `json:"unit"`
	A          float64     `json:"a"`
	B          float64     `json:"b"`
	Difference float64     `json:"difference"`
	// Low and High are where the true difference is; absent where Why says why.
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	Why     string   `json:"why,omitempty"`
	Verdict string   `json:"verdict"`
	measure report.Measure
}

func (c *compareCmd) Run(o *outside) error {
	slo, err := report.ParseSLO(c.SLO)
	switch {
	case err != nil:
		return exit.With(exit.Usage, fmt.Errorf("--slo: %w", err))
	case c.Replications < 1 || c.Replications > maxReplications:
		return exit.With(exit.Usage, fmt.Errorf("--replications: found %d; expected a whole number, from 1 to %d", c.Replications, maxReplications))
	case len(c.Files)+len(c.Set) < 2:
		return exit.Hint(exit.Usage, errors.New("there is only one to compare; expected two or more scenarios or recordings, or one and --set"), "Try: windtunnel compare --help")
	case len(c.Files)+len(c.Set) > maxVariants:
		return exit.With(exit.Usage, fmt.Errorf("found %d to compare; expected at most %d", len(c.Files)+len(c.Set), maxVariants))
	}
	names, plays, err := c.plays(o)
	if err != nil {
		return err
	}
	runs := make([]report.Runs, len(plays))
	sides := make([]side, len(plays))
	ctx, stop := playing(o)
	defer stop()
	for i := range runs {
		runs[i] = make(report.Runs, c.Replications)
		sides[i] = side{Name: names[i], Steady: true}
	}
	if err := each(len(plays)*c.Replications, func(n int) error {
		i, r := n/c.Replications, n%c.Replications
		x, err := plays[i](ctx, r)
		if err != nil {
			return err
		}
		runs[i][r] = x.sample
		if r == 0 {
			sides[i].Seed = x.seed
		}
		return nil
	}); err != nil {
		return err
	}
	out := compared{SLO: strings.Join(c.SLO, ","), Confidence: 0.95, Replications: c.Replications}
	for i := range sides {
		for _, x := range runs[i] {
			sides[i].Requests += len(x.Requests) * x.Each
			sides[i].WarmUp = max(sides[i].WarmUp, x.Cut.Seconds())
			sides[i].Steady = sides[i].Steady && x.Steady
		}
	}
	out.Variants = sides
	worse := 0
	for i := range runs[1:] {
		v := compareRuns(names[0], names[i+1], runs[0], runs[i+1], slo)
		worse += v.worse
		out.Comparisons = append(out.Comparisons, v)
	}
	if c.Output == "json" {
		err = writeJSON(o.Stdout, out)
	} else {
		err = out.write(o)
	}
	if err == nil && c.FailIfWorse && worse > 0 {
		return exit.With(exit.Failed, fmt.Errorf("%d measures are worse than those of %s", worse, names[0]))
	}
	return err
}

// plays are what to compare: how each comes to its result, for each replication.
func (c *compareCmd) plays(o *outside) (names []string, plays []player, err error) {
	for _, file := range c.Files {
		ended := outcomes.Is(file)
		if ended || isRecording(file) {
			if c.Replications > 1 || len(c.Set) > 0 {
				return nil, nil, exit.With(exit.Usage, fmt.Errorf("%s is a recording, of one run as it was; --replications and --set are for scenarios", file))
			}
			play := playerOf(file)
			if ended {
				play = func(context.Context, int) (*result, error) { return readOutcomes(file) }
			}
			names, plays = append(names, file), append(plays, play)
			continue
		}
		v, err := readVariant(o, file, &c.changeFlags)
		if err != nil {
			return nil, nil, err
		}
		variants := []variant{v}
		for _, text := range c.Set {
			settings, err := parseSettings(text)
			if err != nil {
				return nil, nil, err
			}
			w := v.with(settings...)
			if _, err := w.scenario(0); err != nil {
				return nil, nil, err
			}
			variants = append(variants, w)
		}
		for _, v := range variants {
			names, plays = append(names, v.Name), append(plays, v.play)
		}
	}
	return names, plays, nil
}

// readOutcomes is what a file of outcomes came to.
func readOutcomes(file string) (*result, error) {
	x := &result{}
	var err error
	x.sample, err = report.SampleOf(func(add func(report.Ended)) error {
		h, err := outcomes.ReadFile(file, func(r outcomes.Request) { add(report.Ended(r)) })
		x.seed = h.Seed
		return err
	})
	if err == nil && len(x.sample.Requests) == 0 {
		err = fmt.Errorf("%s has no request; expected a file that windtunnel run or sim wrote with --outcomes", file)
	}
	return x, exit.With(exit.Input, err)
}

// parseSettings reads path=value;path=value.
func parseSettings(text string) (out []scenario.Setting, err error) {
	for _, part := range strings.Split(text, ";") {
		s, err := scenario.ParseSetting(part)
		if err != nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("--set: %w", err))
		}
		out = append(out, s)
	}
	return out, nil
}

// compareRuns holds one scenario's runs against the first one's.
func compareRuns(nameA, nameB string, a, b report.Runs, slo report.SLO) versus {
	x := versus{Of: nameB, With: nameA}
	pairedA, pairedB := make(report.Runs, len(a)), make(report.Runs, len(b))
	for i := range a {
		pairedA[i], pairedB[i] = report.Paired(a[i], b[i])
		x.Paired += len(pairedA[i].Requests) * a[i].Each
	}
	underA, underB := pairedA.Under(slo), pairedB.Under(slo)
	var better, worse, same, open []string
	for _, m := range report.Measures() {
		d, ok := report.Compare(m, underA, underB)
		if !ok {
			continue
		}
		v := versusValue{Measure: m.Name, Unit: m.Unit, A: report.Digits(d.A.Value), B: report.Digits(d.B.Value), Difference: report.Digits(d.By.Value), Why: d.By.Why, measure: m}
		if d.By.Sure {
			low, high := report.Digits(d.By.Low), report.Digits(d.By.High)
			v.Low, v.High = &low, &high
		}
		switch {
		case !m.Judged():
			v.Verdict = ""
		case !d.By.Sure:
			v.Verdict = "cannot say"
			open = append(open, m.Name)
		case d.By.Low <= 0 && d.By.High >= 0:
			v.Verdict = "no difference seen"
			if d.By.Low == d.By.High {
				v.Verdict = "the same"
			}
			same = append(same, m.Name)
		case (d.By.Value > 0) == m.HigherIsBetter:
			v.Verdict = "better"
			better = append(better, fmt.Sprintf("%s (%s)", m.Name, relative(d.A.Value, d.By.Value)))
		default:
			v.Verdict = "worse"
			worse = append(worse, fmt.Sprintf("%s (%s)", m.Name, relative(d.A.Value, d.By.Value)))
		}
		x.Measures = append(x.Measures, v)
	}
	x.worse = len(worse)
	x.Verdict = x.words(better, worse, same, open)
	return x
}

// words is the verdict: what is better and what is worse, by how much, and what
// nobody can tell from these runs.
func (x *versus) words(better, worse, same, open []string) string {
	if x.Paired == 0 {
		return "they have no request in common: nothing can be said"
	}
	var parts []string
	add := func(what string, list []string) {
		if len(list) > 0 {
			parts = append(parts, what+strings.Join(list, ", "))
		}
	}
	switch {
	case len(better) > 0 && len(worse) == 0:
		parts = append(parts, x.Of+" is better")
	case len(worse) > 0 && len(better) == 0:
		parts = append(parts, x.Of+" is worse")
	case len(better) > 0:
		parts = append(parts, x.Of+" is better in some and worse in others")
	case len(same) > 0:
		parts = append(parts, "no difference was seen")
	}
	add("better: ", better)
	add("worse: ", worse)
	if len(better)+len(worse) > 0 {
		add("no difference seen: ", same)
	}
	add("these runs cannot say: ", open)
	return strings.Join(parts, "; ")
}

func relative(of, by float64) string {
	if of == 0 || math.Abs(by/of) > 100 {
		return "from " + fmt.Sprintf("%.3g", of)
	}
	return fmt.Sprintf("%+.1f%%", 100*by/of)
}

func (x *compared) write(o *outside) error {
	w := tabwriter.NewWriter(o.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, v := range x.Comparisons {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(o.Stdout, "A  %s\nB  %s\n", describe(x.side(v.With), x.Replications), describe(x.side(v.Of), x.Replications))
		fmt.Fprintf(w, "measure\tA\tB\tB - A\t95%% interval\t\t\n")
		for _, m := range v.Measures {
			interval := m.Why
			if m.Low != nil {
				interval = fmt.Sprintf("%s .. %s", m.measure.Signed(*m.Low), m.measure.Signed(*m.High))
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", m.Measure, m.measure.Text(m.A), m.measure.Text(m.B), m.measure.Signed(m.Difference), interval, m.Verdict)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(o.Stdout, terminal.Wrap("verdict  "+v.Verdict, 9, o.Columns)); err != nil {
			return err
		}
	}
	return nil
}

func (x *compared) side(name string) side {
	for _, s := range x.Variants {
		if s.Name == name {
			return s
		}
	}
	return side{}
}

func describe(s side, replications int) string {
	text := fmt.Sprintf("%s: seed %d, %d requests", s.Name, s.Seed, s.Requests)
	if replications > 1 {
		text += fmt.Sprintf(" of %d runs", replications)
	}
	if s.WarmUp > 0 {
		text += fmt.Sprintf(", after a warm-up of %.1f s", s.WarmUp)
	}
	if !s.Steady {
		text += "; NOT STEADY: its requests in flight never settle"
	}
	return text
}
