package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

type capacityCmd struct {
	loadFlags
	Set          []string      `placeholder:"PATH=VALUE" sep:"none" help:"Change a field of the scenario first. May be repeated."`
	SLO          []string      `name:"slo" placeholder:"ttft.p99=200ms" help:"What must hold: a latency (ttft, tpot, e2e) at mean, p50, p90, p95 or p99 and the most that it may be, or the least share: completed=99.9%, or attainment=95% of requests that keep all bounds of the scenario's own slo. May be repeated."`
	Find         string        `enum:"rate,replicas,ratio" default:"rate" placeholder:"rate|replicas|ratio" help:"The highest rate; the fewest model servers (decode servers, where there are prefill servers) for the scenario's rate; or of as many servers as the scenario has the best ratio of prefill to decode servers."`
	Pool         string        `placeholder:"NAME" help:"Of several pools the one whose servers --find replicas and ratio count; the others stay as they are."`
	Duration     time.Duration `default:"30s" placeholder:"30s" help:"How long each run lasts at least, in virtual time. Runs that differ much from one another are made longer."`
	Precision    float64       `default:"5" placeholder:"PERCENT" help:"How near to each other the highest rate that keeps and the lowest that does not are."`
	Replications int           `short:"r" default:"12" placeholder:"R" help:"How many runs decide about a load, each with a seed of its own."`
	MaxReplicas  int           `name:"max-replicas" default:"256" placeholder:"N" help:"How many model servers --find replicas tries at most."`
	Output       string        `enum:"text,json" default:"text" placeholder:"text|json" help:"text for people, or json."`
}

func (c *capacityCmd) Help() string {
	return `Plays the scenario in virtual time at many loads. Short pilot runs find about where the answer is and how long runs have to be; fresh runs with other seeds then decide, the same ones at each load. A load keeps the objectives where the upper limit of each is within its bound and requests surely do not wait longer and longer; what is said to be kept is too much in at most 1 of 20 searches. A trace is played faster or slower for a rate. docs/decide.md says more.

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

// rule returns the objective in the form that a search judges. A share becomes the share of requests that miss it.
func (b *objective) rule(sampled bool) search.Objective {
	if b.measure.HigherIsBetter {
		return search.Objective{Bound: 1 - b.bound, Share: true, Sampled: sampled}
	}
	return search.Objective{Quantile: b.measure.Quantile(), Bound: b.bound}
}

// measured returns an estimate in the form that the answer prints.
func (b *objective) measured(e search.Estimate) report.Measured {
	low, high := e.Low, e.High
	if b.measure.HigherIsBetter {
		e.Value, low, high = 1-e.Value, 1-high, 1-low
	}
	x := report.Estimate{Interval: stats.Interval{Value: e.Value, Low: low, High: high}, Sure: true}
	switch {
	case math.IsNaN(e.Value):
		x = report.Estimate{Why: "no request completed"}
	case math.IsInf(high, 0):
		x.Sure, x.Why = false, "too short: runs differ too much"
	}
	return b.measure.Measured(x)
}

// values are what the requests of a run come to by the objective.
func (b *objective) values(list []report.Ended, slo report.SLO) (out []float64) {
	for i := range list {
		e := &list[i]
		switch v, ok := b.measure.Of(e); {
		case b.measure.Name == "completed":
			out = append(out, missed(e.Completed))
		case b.measure.HigherIsBetter && e.Judged:
			out = append(out, missed(e.Good))
		case b.measure.HigherIsBetter:
			out = append(out, missed(slo.Holds(e)))
		case ok:
			out = append(out, v)
		}
	}
	return out
}

func missed(kept bool) float64 {
	if kept {
		return 0
	}
	return 1
}

// observed returns what a search reads of a run: all its requests, in the order in which the client sent them.
func observed(list []report.Ended, objectives []objective, slo report.SLO) (x search.Run) {
	slices.SortFunc(list, func(a, b report.Ended) int {
		return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Number, b.Number))
	})
	for i := range objectives {
		x.Values = append(x.Values, objectives[i].values(list[int(search.WarmUp*float64(len(list))):], slo))
	}
	ttft, _ := report.MeasureNamed("ttft mean")
	e2e, _ := report.MeasureNamed("e2e mean")
	mean := func(m report.Measure, list []report.Ended) (mean float64) {
		n := 0.0
		for i := range list {
			if v, ok := m.Of(&list[i]); ok {
				n++
				mean += (v - mean) / n
			}
		}
		return mean
	}
	half, after := len(list)/2, search.Served*(mean(e2e, list)-mean(ttft, list))
	x.Early, x.Late = mean(ttft, list[:half])+after, mean(ttft, list[half:])+after
	return x
}

// parseObjectives reads those of --slo. That all but one in a thousand requests complete is one of
// them, unless something else is said: who refuses requests is soon fast.
func parseObjectives(list []string) (out []objective, err error) {
	bad := func(text string) error {
		return exit.With(exit.Usage,
			fmt.Errorf("--slo: found %q; expected a latency and its bound such as ttft.p99=200ms, of ttft, tpot or "+
				"e2e at mean, p50, p90, p95 or p99, or the least share, completed=99.9%% or attainment=95%%", text))
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
		return nil, exit.Hint(exit.Usage, errors.New("--slo is missing: what must hold decides how much is too much"),
			"Try: windtunnel capacity mine.yaml --slo ttft.p99=200ms")
	}
	if !completes {
		m, _ := report.MeasureNamed("completed")
		out = append(out, objective{"completed=99.9%", m, 0.999})
	}
	return out, nil
}

// load is one load that was played, and what came of it.
type load struct {
	Rate    float64 `json:"rate"`
	Speedup float64 `json:"speedup,omitempty"`
	Servers string  `json:"servers"`
	Verdict string  `json:"verdict"`
	Why     string  `json:"why,omitempty"`
	// Pilot says that these runs only say where to look, and for how long.
	Pilot    bool              `json:"pilot,omitempty"`
	Runs     int               `json:"runs"`
	Requests int               `json:"requestsEach"`
	Measures []report.Measured `json:"measures"`

	look    search.Look
	servers int // as the search counts them
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
	// Runs and Requests are how many were played, at all loads.
	Runs     int    `json:"runs"`
	Requests int    `json:"requests"`
	Loads    []load `json:"loads"`
}

// seeker plays loads and remembers them.
type seeker struct {
	pool       int // whose servers are counted
	c          *capacityCmd
	ctx        context.Context
	v          variant
	objectives []objective
	timed      float64 // how many requests per second a trace has, as it was recorded; 0 without one
	loads      []load
}

func (c *capacityCmd) Run(o *outside) error {
	objectives, err := parseObjectives(c.SLO)
	switch {
	case err != nil:
		return err
	case c.Replications < fewestRuns || c.Replications > maxReplications:
		return exit.With(exit.Usage,
			fmt.Errorf("--replications: found %d; expected a whole number, from %d to %d", c.Replications, fewestRuns,
				maxReplications))
	case !(c.Precision >= 0.1 && c.Precision <= 50):
		return exit.With(exit.Usage, fmt.Errorf("--precision: found %v; expected percent, from 0.1 to 50", c.Precision))
	case c.Duration < time.Second || c.Duration > 24*time.Hour:
		return exit.With(exit.Usage, fmt.Errorf("--duration: found %s; expected from 1s to 24h", c.Duration))
	case c.MaxReplicas < 1 || c.MaxReplicas > 4096:
		return exit.With(exit.Usage,
			fmt.Errorf("--max-replicas: found %d; expected a whole number, from 1 to 4096", c.MaxReplicas))
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
		return exit.With(exit.Usage,
			fmt.Errorf("--pool: the scenario has no pool %q; expected %s", c.Pool, strings.Join(poolNames(s), ", ")))
	case c.Find != "rate" && len(s.Pools) > 1:
		return exit.With(exit.Usage,
			fmt.Errorf("--find %s counts the servers of one pool; expected --pool with one of %s", c.Find,
				strings.Join(poolNames(s), ", ")))
	default:
		index = 0
	}
	p := &s.Pools[index]
	timed, speedup := s.Timed()
	switch {
	case !s.Workload.Judges() &&
		slices.ContainsFunc(objectives, func(b objective) bool { return b.measure.Name == "attainment" }):
		return exit.With(exit.Usage,
			fmt.Errorf("--slo: attainment is the share of requests that keep the scenario's own bounds, and %s has "+
				"none; expected workload.slo, or slo of a class", v.file))
	case slices.ContainsFunc(s.Pools, func(p scenario.Pool) bool { return len(p.Endpoints) > 0 }):
		return exit.With(exit.Usage,
			fmt.Errorf("%s names endpoints of somebody else's, which virtual time cannot play; expected simulated "+
				"model servers", v.file))
	case c.Find != "rate" && p.Scales():
		return exit.With(exit.Usage,
			fmt.Errorf("%s has autoscaling, which says how many servers there are; expected --find rate, or sweep "+
				"over pools[0].autoscaling.maxReplicas", v.file))
	case c.Find == "replicas" && s.Workload.Rate == 0 && speedup == 0:
		return exit.With(exit.Usage,
			errors.New("--find replicas needs a rate; expected --rate, or workload.rate in the scenario"))
	case c.Find == "ratio" && p.Disaggregation.PrefillReplicas == 0:
		return exit.With(exit.Usage,
			errors.New("--find ratio needs prefill servers; expected disaggregation.prefillReplicas of the pool in "+
				"the scenario"))
	}
	ctx, stop := playing(o)
	defer stop()
	k := &seeker{c: c, ctx: ctx, v: v, objectives: objectives, pool: index}
	out := capacity{Find: c.Find}
	for _, b := range objectives {
		out.Objectives = append(out.Objectives, b.text)
	}
	guess := s.Workload.Rate
	if speedup > 0 {
		k.timed, guess = timed/speedup, timed
	}
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
	for _, l := range k.loads {
		out.Runs, out.Requests = out.Runs+l.Runs, out.Requests+l.Runs*l.Requests
	}
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

// rule is how loads are judged and played, and with what servers: each count has a variant.
func (k *seeker) rule(of func(servers int) variant) (*search.Rule, error) {
	s, err := k.v.scenario(0)
	if err != nil {
		return nil, err
	}
	// A rate that so many requests do not last for is not played: a short run hides overload.
	r := &search.Rule{Runs: k.c.Replications, Precision: k.c.Precision / 100, MostRequests: mostRequests,
		Least: leastRate, Most: min(mostRate, mostRequests/k.c.Duration.Seconds())}
	least := s.Workload.Requests
	for i := range k.objectives {
		// A percentile of each run has to be one: some requests lie beyond it.
		b := &k.objectives[i]
		r.Objectives, least = append(r.Objectives, b.rule(k.timed == 0)), max(least, b.measure.Least())
	}
	r.Requests = func(rate float64) int { return max(least, int(math.Ceil(rate*k.c.Duration.Seconds()))) }
	if k.timed > 0 { // a trace has no more than these
		r.MostRequests = min(s.Workload.Requests, mostRequests)
	}
	var last load
	r.Play = func(l search.Load, seeds []int) (runs []search.Run, err error) {
		v := of(l.Servers)
		last, runs, err = k.play(&v, l, seeds)
		return runs, err
	}
	r.Looked = func(l search.Load, x search.Look) {
		last.judged(x, k.objectives)
		k.loads = append(k.loads, last)
	}
	return r, nil
}

func (k *seeker) rate(out *capacity, guess float64) error {
	r, err := k.rule(func(int) variant { return k.v })
	if err != nil {
		return err
	}
	var b search.Band
	rough, err := r.Rough(0, guess)
	if err == nil {
		b, err = r.Highest(0, rough)
	}
	out.Keeps, out.Misses = b.Keeps, b.Misses
	out.bound(k.edge(b))
	switch {
	case b.Keeps == 0 && b.Misses == 0 && rough.Rate > 0:
		out.Answer = "no rate can be decided: let runs be longer (--duration) or more (--replications)"
	case b.Keeps == 0:
		out.Answer = fmt.Sprintf("no rate down to %v requests/s keeps the objectives", k.lowest())
	case b.Misses == 0:
		out.Answer = fmt.Sprintf("%v requests/s are kept, and no higher rate that misses was found", out.Keeps)
	default:
		out.Answer = fmt.Sprintf("up to %v requests/s keep the objectives, and from %v on they are missed", out.Keeps,
			out.Misses)
		if out.Misses > out.Keeps*(1+2*k.c.Precision/100) {
			out.Answer += "; in between these runs cannot tell"
		}
	}
	if k.timed > 0 && b.Keeps > 0 {
		out.Answer += fmt.Sprintf("; %v are the trace %.4g times as fast as it was recorded", out.Keeps,
			out.Keeps/k.timed)
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

// edge is the load at which a search for a rate ended: the lowest that misses, or where none does, the highest that
// keeps. nil without either.
func (k *seeker) edge(b search.Band) *load {
	for i := range k.loads {
		if l := &k.loads[i]; l.Rate == cmp.Or(b.Misses, b.Keeps) {
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
	if l.look.Verdict == search.Misses {
		x.Binds = l.Why
	}
	if x.Uses, x.Full = constraint.Order(l.uses); len(x.Uses) > 0 {
		x.Constraint = x.Uses[0].String()
	}
}

func (k *seeker) replicas(out *capacity, p *scenario.Pool, rate float64) error {
	r, err := k.rule(func(n int) variant { return k.with(k.serversOf(n, p.Disaggregation.PrefillReplicas)...) })
	if err != nil {
		return err
	}
	found, sure, odd, err := r.Fewest(p.Replicas, k.c.MaxReplicas, rate)
	if err != nil {
		return err
	}
	out.Replicas, out.PrefillReplicas = found, p.Disaggregation.PrefillReplicas
	at := func(n int) *load { // the last that was looked at with so many
		for i := range slices.Backward(k.loads) {
			if k.loads[i].servers == n {
				return &k.loads[i]
			}
		}
		return nil
	}
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

// countedServers are a pool's, prefill servers first.
func countedServers(p *scenario.Pool) string {
	if n := p.Disaggregation.PrefillReplicas; n > 0 {
		return fmt.Sprintf("%d:%d", n, p.Replicas)
	}
	return strconv.Itoa(p.Replicas)
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
		list = append(list, scenario.Setting{Path: path + "disaggregation.prefillReplicas",
			Value: strconv.Itoa(prefill)})
	}
	return list
}

func (k *seeker) ratio(out *capacity, p *scenario.Pool, guess float64) error {
	servers := p.Servers()
	r, err := k.rule(func(prefill int) variant { return k.with(k.serversOf(servers-prefill, prefill)...) })
	if err != nil {
		return err
	}
	// Pilot runs choose the ratio, so that what decides about its rate has not been chosen for being lucky.
	roughly := map[int]search.Rough{}
	at, err := search.Best(p.Disaggregation.PrefillReplicas, servers-1, func(prefill int) (float64, error) {
		g, err := r.Rough(prefill, guess)
		roughly[prefill], guess = g, cmp.Or(g.Rate, guess)
		return g.Rate, err
	})
	if err != nil {
		return err
	}
	first := len(k.loads)
	b, err := r.Highest(at, roughly[at])
	if err != nil {
		return err
	}
	out.PrefillReplicas, out.Replicas, out.Keeps, out.Misses = at, servers-at, b.Keeps, b.Misses
	decided := seeker{loads: k.loads[first:]}
	out.bound(decided.edge(b))
	var words []string
	for _, near := range []int{at - 1, at + 1} {
		if g, ok := roughly[near]; ok {
			words = append(words, fmt.Sprintf("%d:%d about %.2g", near, servers-near, g.Rate))
		}
	}
	out.Answer = fmt.Sprintf("%d prefill and %d decode servers keep the objectives up to %v requests/s", at, servers-at,
		out.Keeps)
	if len(words) > 0 {
		out.Answer += " (" + strings.Join(words, ", ") + ")"
	}
	return nil
}

// play plays one load with these seeds.
func (k *seeker) play(v *variant, at search.Load, seeds []int) (l load, runs []search.Run, err error) {
	l = load{Rate: at.Rate, servers: at.Servers, Requests: at.Requests, Pilot: search.Pilot(seeds)}
	if k.timed > 0 {
		l.Speedup = search.Significant(at.Rate / k.timed)
	}
	runs, uses := make([]search.Run, len(seeds)), make([][]constraint.Use, len(seeds))
	var once sync.Once
	err = each(len(seeds), func(i int) error {
		s, err := v.scenario(seeds[i])
		if err != nil {
			return err
		}
		once.Do(func() { l.Servers = countedServers(&s.Pools[k.pool]) })
		// All that arrive are sent: a client that waits would hide that they wait.
		all := min(at.Requests, 1_000_000)
		if err := s.Override(scenario.Overrides{Rate: &at.Rate, Requests: &at.Requests,
			Concurrency: &all}); err != nil {
			return exit.With(exit.Usage, err)
		}
		var list []report.Ended
		x, err := playOnce(k.ctx, s, func(e *report.Ended) { list = append(list, *e) })
		if err == nil {
			runs[i] = observed(list, k.objectives, report.SLO(s.Workload.SLO))
			if k.timed > 0 { // whose own ups and downs say nothing about whether waits grow from empty
				runs[i].Early, runs[i].Late = 1, 1
				if !x.sample.Steady {
					runs[i].Late = 2 * search.MostGrowth
				}
			}
			uses[i] = slices.Concat(constraint.OfLoad(x.sample.Load, x.summary.Requests), x.uses)
		}
		return err
	})
	l.uses = constraint.Mean(uses...)
	return l, runs, err
}

// judged notes what a search says of the load.
func (l *load) judged(x search.Look, objectives []objective) {
	l.look, l.Runs = x, x.Runs
	words := map[search.Verdict]string{search.Keeps: "keeps", search.Misses: "misses", search.Undecided: "undecided"}
	l.Verdict = words[x.Verdict]
	for i := range objectives {
		l.Measures = append(l.Measures, objectives[i].measured(x.Estimates[i]))
	}
	var why []string
	for _, i := range x.Fails {
		switch {
		case i >= 0:
			why = append(why, objectives[i].text)
		case x.Verdict == search.Misses:
			why = append(why, "not steady: requests wait longer and longer")
		default:
			why = append(why, "requests may wait longer and longer")
		}
	}
	l.Why = strings.Join(why, ", ")
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
		switch {
		case l.Pilot && l.look.Verdict != search.Misses:
			verdict = "pilot"
		case l.Pilot:
			verdict = "pilot, misses: " + l.Why
		case l.Why != "":
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
	lines = append(lines, fmt.Sprintf("played   %s requests in %d runs", terminal.Thousands(x.Requests), x.Runs))
	for _, line := range lines {
		if _, err := io.WriteString(o.Stdout, terminal.Wrap(line, 9, o.Columns)+"\n"); err != nil {
			return err
		}
	}
	return nil
}
