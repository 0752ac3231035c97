package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

type capacityCmd struct {
	loadFlags
	Set          []string      `placeholder:"PATH=VALUE" sep:"none" help:"Change a field of the scenario first. May be repeated."`
	SLO          []string      `name:"slo" placeholder:"ttft.p99=200ms" help:"What must hold: a latency (ttft, tpot, e2e) at mean, p50, p90, p95 or p99 and the most that it may be, or the least share: completed=99.9%, or attainment=95% of requests that keep all bounds of the scenario's own slo. May be repeated."`
	Find         string        `enum:"rate,replicas,ratio" default:"rate" placeholder:"rate|replicas|ratio" help:"The highest rate; the fewest model servers (decode servers, where there are prefill servers) for the scenario's rate; or of as many servers as the scenario has the best ratio of prefill to decode servers."`
	Pool         string        `placeholder:"NAME" help:"Of several pools the one whose servers --find replicas and ratio count; the others stay as they are."`
	Duration     time.Duration `default:"30s" placeholder:"30s" help:"How long each run lasts at least, in virtual time: a short one hides overload."`
	Precision    float64       `default:"5" placeholder:"PERCENT" help:"How precise a rate is found."`
	Replications int           `short:"r" default:"12" placeholder:"R" help:"With how many seeds a load is played at most, where fewer cannot tell whether the objective is kept."`
	MaxReplicas  int           `name:"max-replicas" default:"256" placeholder:"N" help:"How many model servers --find replicas tries at most."`
	Output       string        `enum:"text,json" default:"text" placeholder:"text|json" help:"text for people, or json."`
}

func (c *capacityCmd) Help() string {
	return `Plays the scenario in virtual time at many loads. A load keeps the objective where every interval is on the good side of its bound, and misses it where one is on the bad side, or where the requests in flight only grow; what lies between is played with more seeds, and stays undecided where those do not tell either. docs/decide.md tells more.

Examples:
  windtunnel capacity mine.yaml --slo ttft.p99=200ms --slo tpot.p90=30ms
  windtunnel capacity mine.yaml --slo ttft.p95=1s --find replicas --rate 40
  windtunnel capacity examples/pd.yaml --slo ttft.p90=300ms --slo tpot.mean=20ms --find ratio`
}

// objective is one thing that must hold.
type objective struct {
	text    string
	measure report.Measure
	bound   float64
}

// kept is what an estimate says of it.
func (b *objective) kept(e report.Estimate) search.Verdict {
	low, high := e.Low, e.High
	if b.measure.HigherIsBetter {
		low, high = -high, -low
	}
	bound := b.bound
	if b.measure.HigherIsBetter {
		bound = -bound
	}
	switch {
	case !e.Sure:
		return search.Undecided
	case high <= bound:
		return search.Keeps
	case low > bound:
		return search.Misses
	}
	return search.Undecided
}

// parseObjectives reads those of --slo. That all but one in a thousand requests complete is one of
// them, unless something else is said: who refuses requests is soon fast.
func parseObjectives(list []string) (out []objective, err error) {
	bad := func(text string) error {
		return exit.With(exit.Usage, fmt.Errorf("--slo: found %q; expected a latency and its bound such as ttft.p99=200ms, of ttft, tpot or e2e at mean, p50, p90, p95 or p99, or the least share, completed=99.9%% or attainment=95%%", text))
	}
	completes := false
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		m, ok := report.MeasureNamed(strings.Replace(name, ".", " ", 1))
		b := objective{text: text, measure: m}
		switch {
		case !ok:
			return nil, bad(text)
		case m.Name == "completed" || m.Name == "attainment":
			number, percent := strings.CutSuffix(value, "%")
			share, err := strconv.ParseFloat(number, 64)
			if b.bound = share / 100; err != nil || !percent || !(share > 0 && share <= 100) {
				return nil, bad(text)
			}
			completes = completes || m.Name == "completed"
		case m.Unit == report.Seconds:
			d, err := time.ParseDuration(value)
			if b.bound = d.Seconds(); err != nil || d <= 0 {
				return nil, bad(text)
			}
		default:
			return nil, bad(text)
		}
		out = append(out, b)
	}
	if len(out) == 0 {
		return nil, exit.Hint(exit.Usage, errors.New("--slo is missing: what must hold decides how much is too much"), "Try: windtunnel capacity mine.yaml --slo ttft.p99=200ms")
	}
	if !completes {
		m, _ := report.MeasureNamed("completed")
		out = append(out, objective{"completed=99.9%", m, 0.999})
	}
	return out, nil
}

// load is one load that was played, and what came of it.
type load struct {
	Rate     float64           `json:"rate"`
	Servers  string            `json:"servers"`
	Verdict  string            `json:"verdict"`
	Why      string            `json:"why,omitempty"`
	Runs     int               `json:"runs"`
	Requests int               `json:"requestsEach"`
	Measures []report.Measured `json:"measures"`

	verdict search.Verdict
	uses    []constraint.Use
}

// capacity is what the command says.
type capacity struct {
	Find       string   `json:"find"`
	Objectives []string `json:"objectives"`
	// Keeps and Misses are the rate up to which the objectives are kept and that from which
	// on they are missed; 0 where none was found.
	Keeps  float64 `json:"keeps,omitempty"`
	Misses float64 `json:"misses,omitempty"`
	// Replicas and PrefillReplicas are the servers that were found.
	Replicas        int `json:"replicas,omitempty"`
	PrefillReplicas int `json:"prefillReplicas,omitempty"`
	// Binds is the objective that is missed first, and Constraint what holds the run back then:
	// the first of Uses, which says of everything how much of it was in use. Full says that there
	// is nothing left of it.
	Binds      string           `json:"binds,omitempty"`
	Constraint string           `json:"constraint,omitempty"`
	Full       bool             `json:"full,omitempty"`
	Uses       []constraint.Use `json:"uses,omitempty"`
	Answer     string           `json:"answer"`
	Loads      []load           `json:"loads"`
}

// seeker plays loads and remembers them.
type seeker struct {
	pool       int // whose servers are counted
	c          *capacityCmd
	ctx        context.Context
	v          variant
	objectives []objective
	loads      []load
}

func (c *capacityCmd) Run(o *outside) error {
	objectives, err := parseObjectives(c.SLO)
	switch {
	case err != nil:
		return err
	case c.Replications < fewestRuns || c.Replications > maxReplications:
		return exit.With(exit.Usage, fmt.Errorf("--replications: found %d; expected a whole number, from %d to %d", c.Replications, fewestRuns, maxReplications))
	case !(c.Precision >= 0.1 && c.Precision <= 50):
		return exit.With(exit.Usage, fmt.Errorf("--precision: found %v; expected percent, from 0.1 to 50", c.Precision))
	case c.Duration < time.Second || c.Duration > 24*time.Hour:
		return exit.With(exit.Usage, fmt.Errorf("--duration: found %s; expected from 1s to 24h", c.Duration))
	case c.MaxReplicas < 1 || c.MaxReplicas > 4096:
		return exit.With(exit.Usage, fmt.Errorf("--max-replicas: found %d; expected a whole number, from 1 to 4096", c.MaxReplicas))
	}
	v, err := readVariant(o, c.File, &c.changeFlags)
	if err != nil {
		return err
	}
	if err := v.set(c.Set); err != nil {
		return err
	}
	s, err := v.scenario(0)
	if err != nil {
		return err
	}
	index := slices.IndexFunc(s.Pools, func(p scenario.Pool) bool { return p.Name == c.Pool })
	switch {
	case index >= 0:
	case c.Pool != "":
		return exit.With(exit.Usage, fmt.Errorf("--pool: the scenario has no pool %q; expected %s", c.Pool, strings.Join(poolNames(s), ", ")))
	case c.Find != "rate" && len(s.Pools) > 1:
		return exit.With(exit.Usage, fmt.Errorf("--find %s counts the servers of one pool; expected --pool with one of %s", c.Find, strings.Join(poolNames(s), ", ")))
	default:
		index = 0
	}
	p := &s.Pools[index]
	switch {
	case !s.Workload.Judges() && slices.ContainsFunc(objectives, func(b objective) bool { return b.measure.Name == "attainment" }):
		return exit.With(exit.Usage, fmt.Errorf("--slo: attainment is the share of requests that keep the scenario's own bounds, and %s has none; expected workload.slo, or slo of a class", v.file))
	case slices.ContainsFunc(s.Pools, func(p scenario.Pool) bool { return len(p.Endpoints) > 0 }):
		return exit.With(exit.Usage, fmt.Errorf("%s names endpoints of somebody else's, which virtual time cannot play; expected simulated model servers", v.file))
	case c.Find != "rate" && p.Scales():
		return exit.With(exit.Usage, fmt.Errorf("%s has autoscaling, which says how many servers there are; expected --find rate, or sweep over pools[0].autoscaling.maxReplicas", v.file))
	case c.Find == "replicas" && s.Workload.Rate == 0:
		return exit.With(exit.Usage, errors.New("--find replicas needs a rate; expected --rate, or workload.rate in the scenario"))
	case c.Find == "ratio" && p.Disaggregation.PrefillReplicas == 0:
		return exit.With(exit.Usage, errors.New("--find ratio needs prefill servers; expected disaggregation.prefillReplicas of the pool in the scenario"))
	}
	ctx, stop := playing(o)
	defer stop()
	k := &seeker{c: c, ctx: ctx, v: v, objectives: objectives, pool: index}
	out := capacity{Find: c.Find}
	for _, b := range objectives {
		out.Objectives = append(out.Objectives, b.text)
	}
	guess := s.Workload.Rate
	if guess == 0 {
		guess = float64(p.Servers())
	}
	switch c.Find {
	case "rate":
		err = k.rate(&out, guess)
	case "replicas":
		err = k.replicas(&out, p, guess)
	case "ratio":
		err = k.ratio(&out, p, guess)
	}
	interrupted := err
	if out.Loads = k.loads; ctx.Err() != nil && len(k.loads) > 0 {
		out.Answer = fmt.Sprintf("none: interrupted after %d loads", len(k.loads))
	} else if err != nil {
		return err
	}
	if c.Output == "json" {
		err = writeJSON(o.Stdout, out)
	} else {
		err = out.write(o, objectives)
	}
	if err == nil {
		err = interrupted
	}
	if err == nil && out.Keeps == 0 && out.Replicas == 0 {
		return exit.With(exit.Failed, errors.New("nothing that was tried keeps the objectives"))
	}
	return err
}

// Bounds of the search.
const (
	leastRate, mostRate = 1e-3, 1e6
	fewestRuns          = 3
	mostRequests        = 2_000_000
)

// highest finds the highest rate for some servers.
func (k *seeker) highest(v *variant, guess float64) (search.Band, error) {
	// A rate that so many requests do not last for is not played: a short run hides overload.
	most := min(mostRate, mostRequests/k.c.Duration.Seconds())
	return search.Highest(guess, k.c.Precision/100, leastRate, most, func(rate float64) (search.Verdict, error) {
		rate = significant(rate)
		l, err := k.play(v, rate)
		return l.verdict, err
	})
}

// significant leaves a rate four digits, so that it can be typed again.
func significant(v float64) float64 {
	f, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return f
}

func (k *seeker) rate(out *capacity, guess float64) error {
	b, err := k.highest(&k.v, guess)
	out.Keeps, out.Misses = significant(b.Keeps), significant(b.Misses)
	out.bound(k.edge(b, ""))
	switch {
	case b.Keeps == 0 && b.Misses == 0:
		out.Answer = "no rate can be decided: let runs be longer (--duration) or more (--replications)"
	case b.Keeps == 0:
		out.Answer = fmt.Sprintf("no rate down to %v requests/s keeps the objectives", k.lowest())
	case b.Misses == 0:
		out.Answer = fmt.Sprintf("%v requests/s are kept, and no higher rate that misses was found", out.Keeps)
	default:
		out.Answer = fmt.Sprintf("up to %v requests/s keep the objectives, and from %v on they are missed", out.Keeps, out.Misses)
		if out.Misses > out.Keeps*(1+2*k.c.Precision/100) {
			out.Answer += "; in between these runs cannot tell"
		}
	}
	return err
}

func (k *seeker) lowest() float64 {
	low := math.Inf(1)
	for _, l := range k.loads {
		low = min(low, l.Rate)
	}
	return low
}

// edge is the load at which a search for a rate with these servers, any where "", ended: the
// lowest that misses, or where none does, the highest that keeps. nil without either.
func (k *seeker) edge(b search.Band, servers string) *load {
	rate := significant(b.Misses)
	if rate == 0 {
		rate = significant(b.Keeps)
	}
	for i := range k.loads {
		if l := &k.loads[i]; l.Rate == rate && (servers == "" || l.Servers == servers) {
			return l
		}
	}
	return nil
}

// bound tells what holds back the load at the edge, and which objective it misses.
func (x *capacity) bound(l *load) {
	if l == nil {
		return
	}
	if l.verdict == search.Misses {
		x.Binds = l.Why
	}
	if x.Uses, x.Full = constraint.Order(l.uses); len(x.Uses) > 0 {
		x.Constraint = x.Uses[0].String()
	}
}

func (k *seeker) replicas(out *capacity, p *scenario.Pool, rate float64) error {
	least := map[int]load{}
	found, sure, odd, err := search.Fewest(p.Replicas, k.c.MaxReplicas, func(n int) (search.Verdict, error) {
		v := k.with(k.serversOf(n, p.Disaggregation.PrefillReplicas)...)
		l, err := k.play(&v, rate)
		least[n] = l
		return l.verdict, err
	})
	if err != nil {
		return err
	}
	out.Replicas, out.PrefillReplicas = found, p.Disaggregation.PrefillReplicas
	at := func(n int) *load { l := least[n]; return &l }
	switch {
	case found == 0:
		out.Answer = fmt.Sprintf("%d replicas do not keep the objectives at %v requests/s", k.c.MaxReplicas, rate)
		out.bound(at(k.c.MaxReplicas))
		return nil
	case found == 1:
		out.bound(at(1))
		out.Answer = fmt.Sprintf("1 replica keeps the objectives at %v requests/s", rate)
	default:
		below := "miss them"
		if !sure {
			below = "are undecided"
		}
		out.Answer = fmt.Sprintf("%d replicas keep the objectives at %v requests/s; %d %s", found, rate, found-1, below)
		out.bound(at(found - 1))
	}
	if odd {
		out.Answer += fmt.Sprintf("; take care: %d do not keep them, though they are more", found+1)
	}
	return nil
}

// with is the variant with more settings, under its own name.
func (k *seeker) with(settings ...scenario.Setting) variant {
	v := k.v
	v.settings = slices.Concat(v.settings, settings)
	if k.v.flags.Replicas != nil { // else it would have the last word
		flags := *k.v.flags
		flags.Replicas = nil
		v.flags = &flags
	}
	return v
}

// poolNames are those of a scenario's pools.
func poolNames(s *scenario.Scenario) (names []string) {
	for i := range s.Pools {
		names = append(names, s.Pools[i].Name)
	}
	return names
}

// serversOf sets how many servers the pool has that is looked at.
func (k *seeker) serversOf(replicas, prefill int) []scenario.Setting {
	path := fmt.Sprintf("pools[%d].", k.pool)
	list := []scenario.Setting{{Path: path + "replicas", Value: strconv.Itoa(replicas)}}
	if prefill > 0 {
		list = append(list, scenario.Setting{Path: path + "disaggregation.prefillReplicas", Value: strconv.Itoa(prefill)})
	}
	return list
}

func (k *seeker) ratio(out *capacity, p *scenario.Pool, guess float64) error {
	servers := p.Servers()
	bands := map[int]search.Band{}
	at, err := search.Best(p.Disaggregation.PrefillReplicas, servers-1, func(prefill int) (float64, error) {
		v := k.with(k.serversOf(servers-prefill, prefill)...)
		b, err := k.highest(&v, guess)
		bands[prefill] = b
		if b.Keeps > 0 {
			guess = b.Keeps
		}
		return b.Keeps, err
	})
	if err != nil {
		return err
	}
	b := bands[at]
	out.PrefillReplicas, out.Replicas, out.Keeps, out.Misses = at, servers-at, significant(b.Keeps), significant(b.Misses)
	out.bound(k.edge(b, fmt.Sprintf("%d:%d", at, servers-at)))
	var words []string
	for _, near := range []int{at - 1, at + 1} {
		if n, ok := bands[near]; ok {
			words = append(words, fmt.Sprintf("%d:%d up to %v", near, servers-near, significant(n.Keeps)))
		}
	}
	out.Answer = fmt.Sprintf("%d prefill and %d decode servers keep the objectives up to %v requests/s", at, servers-at, out.Keeps)
	if len(words) > 0 {
		out.Answer += " (" + strings.Join(words, ", ") + ")"
	}
	return nil
}

// play plays one load with as many seeds as it takes, until it is decided.
func (k *seeker) play(v *variant, rate float64) (load, error) {
	s, err := v.scenario(0)
	if err != nil {
		return load{}, err
	}
	p := &s.Pools[k.pool]
	l := load{Rate: rate, Servers: strconv.Itoa(p.Replicas)}
	if n := p.Disaggregation.PrefillReplicas; n > 0 {
		l.Servers = fmt.Sprintf("%d:%d", n, p.Replicas)
	}
	// A percentile of each run has to be one: some requests lie beyond it.
	l.Requests = max(s.Workload.Requests, int(math.Ceil(rate*k.c.Duration.Seconds())))
	for _, b := range k.objectives {
		l.Requests = max(l.Requests, b.measure.Least())
	}
	l.Requests = min(l.Requests, mostRequests)
	var runs report.Runs
	var uses [][]constraint.Use
	for most := fewestRuns; ; most = min(2*most, k.c.Replications) {
		first := len(runs)
		runs = append(runs, make(report.Runs, most-first)...)
		uses = append(uses, make([][]constraint.Use, most-first)...)
		if err := each(most-first, func(i int) error {
			s, err := v.scenario(first + i)
			if err != nil {
				return err
			}
			// All that arrive are sent: a client that waits would hide that they wait.
			all := min(l.Requests, 1_000_000)
			if err := s.Override(scenario.Overrides{Rate: &rate, Requests: &l.Requests, Concurrency: &all}); err != nil {
				return exit.With(exit.Usage, err)
			}
			x, err := playOnce(k.ctx, s)
			if err == nil {
				runs[first+i] = x.sample
				uses[first+i] = slices.Concat(constraint.OfLoad(x.sample.Load, x.summary.Requests), x.uses)
			}
			return err
		}); err != nil {
			return l, err
		}
		if l.judge(runs, k.objectives); l.verdict != search.Undecided || most == k.c.Replications {
			break
		}
	}
	l.uses = constraint.Mean(uses...)
	k.loads = append(k.loads, l)
	return l, nil
}

// judge says what runs come to.
func (l *load) judge(runs report.Runs, objectives []objective) {
	l.Runs, l.verdict, l.Why, l.Measures = len(runs), search.Keeps, "", nil
	steady := 0
	for _, x := range runs {
		if x.Steady {
			steady++
		}
	}
	var why []string
	under := runs.Under(report.SLO{})
	worst := search.Keeps
	for _, b := range objectives {
		e, ok := under.Estimate(b.measure)
		if !ok {
			e.Why, e.Sure = "no request completed", false
		}
		l.Measures = append(l.Measures, b.measure.Measured(e))
		said := b.kept(e)
		if said != search.Keeps {
			if said < worst {
				why = nil
			}
			if said <= min(worst, search.Undecided) {
				why = append(why, b.text)
			}
		}
		worst = min(worst, said)
	}
	switch {
	case 2*steady <= len(runs):
		worst, why = search.Misses, []string{fmt.Sprintf("not steady: the requests in flight only grow (in %d of %d runs)", len(runs)-steady, len(runs))}
	case steady < len(runs) && worst == search.Keeps:
		worst, why = search.Undecided, []string{fmt.Sprintf("the requests in flight only grow in %d of %d runs", len(runs)-steady, len(runs))}
	}
	l.verdict, l.Verdict, l.Why = worst, map[search.Verdict]string{search.Keeps: "keeps", search.Misses: "misses", search.Undecided: "undecided"}[worst], strings.Join(why, ", ")
}

func (x *capacity) write(o *outside, objectives []objective) error {
	w := tabwriter.NewWriter(o.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "requests/s\tservers\truns\t")
	for _, b := range objectives {
		fmt.Fprintf(w, "%s\t", b.measure.Name)
	}
	fmt.Fprintln(w, "verdict\t")
	loads := slices.Clone(x.Loads)
	slices.SortStableFunc(loads, func(a, b load) int {
		if a.Servers != b.Servers {
			return 0
		}
		return int(math.Copysign(1, a.Rate-b.Rate))
	})
	for _, l := range loads {
		fmt.Fprintf(w, "%v\t%s\t%d x %d\t", l.Rate, l.Servers, l.Runs, l.Requests)
		for i := range objectives {
			fmt.Fprintf(w, "%s\t", l.Measures[i].Interval())
		}
		verdict := l.Verdict
		if l.Why != "" {
			verdict += ": " + l.Why
		}
		fmt.Fprintf(w, "%s\t\n", verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	answer := "answer   " + x.Answer
	if x.Binds != "" {
		answer += "; what binds is " + x.Binds
	}
	lines := []string{answer}
	if x.Constraint != "" {
		held := "held by  " + x.Constraint
		if !x.Full {
			held = "held by  nothing that is full; the most used is " + x.Constraint
		}
		var others []string
		for _, u := range x.Uses[1:] {
			others = append(others, u.String())
		}
		if len(others) > 0 {
			held += " (" + strings.Join(others, ", ") + ")"
		}
		lines = append(lines, held)
	}
	for _, line := range lines {
		if _, err := io.WriteString(o.Stdout, terminal.Wrap(line, 9, o.Columns)+"\n"); err != nil {
			return err
		}
	}
	return nil
}
