package search

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/report/table"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

// Find is the goal of a search.
type Find string

// The goals.
const (
	FindRate     Find = "rate"     // the highest rate
	FindReplicas Find = "replicas" // the fewest model servers for the scenario's rate
	FindRatio    Find = "ratio"    // the best ratio of prefill to decode servers, with the scenario's total
)

// CapacityOptions say what is searched, and how exactly.
type CapacityOptions struct {
	Variant Variant
	// Objectives must hold, such as ttft.p99=200ms.
	Objectives []string
	Find       Find
	// Pool is the name of the pool whose servers are counted. It may be empty if there is one pool.
	Pool string
	// Duration is the least length of each run, in virtual time.
	Duration time.Duration
	// Precision is the distance to reach between the highest rate that keeps and the lowest that misses, in percent.
	Precision                 float64
	Replications, MaxReplicas int
	Division
}

func (c *CapacityOptions) check() error {
	switch {
	case !(c.Precision >= 0.1 && c.Precision <= 50):
		return exit.Errorf(exit.Usage, "--precision: found %v; expected percent, from 0.1 to 50", c.Precision)
	case c.Duration < time.Second || c.Duration > 24*time.Hour:
		return exit.Errorf(exit.Usage, "--duration: found %s; expected from 1s to 24h", c.Duration)
	case c.MaxReplicas < 1 || c.MaxReplicas > 4096:
		return exit.Errorf(exit.Usage, "--max-replicas: found %d; expected a whole number, from 1 to 4096",
			c.MaxReplicas)
	}
	return cmp.Or(CheckReplications(fewestRuns, c.Replications), c.Division.check())
}

// load is a load that was played, with its result.
type load struct {
	Rate    float64 `json:"rate"`
	Speedup float64 `json:"speedup,omitempty"`
	Servers string  `json:"servers"`
	Verdict string  `json:"verdict"`
	Why     string  `json:"why,omitempty"`
	// Pilot says that the runs are pilot runs, which only estimate.
	Pilot    bool              `json:"pilot,omitempty"`
	Runs     int               `json:"runs"`
	Requests int               `json:"requestsEach"`
	Measures []report.Measured `json:"measures"`

	look    Look
	servers int // as the search counts them
	steps   report.StepError
	uses    []constraint.Use
}

// Capacity is the result of a search.
type Capacity struct {
	Find       Find     `json:"find"`
	Objectives []string `json:"objectives"`
	// Keeps is the rate up to which the objectives are kept, and Misses the rate from which on they are missed; 0 if
	// none was found.
	Keeps  float64 `json:"keeps,omitempty"`
	Misses float64 `json:"misses,omitempty"`
	// Replicas and PrefillReplicas are the servers that were found.
	Replicas        int `json:"replicas,omitempty"`
	PrefillReplicas int `json:"prefillReplicas,omitempty"`
	// Binds is the objective that is missed first, and Constraint the resource that holds the run back then: the first
	// of Uses, which has the use of every resource. Full says that all of it is used.
	Binds      string           `json:"binds,omitempty"`
	Constraint string           `json:"constraint,omitempty"`
	Full       bool             `json:"full,omitempty"`
	Uses       []constraint.Use `json:"uses,omitempty"`
	Answer     string           `json:"answer"`
	// StepTimes is the expected error of the step times, in words, with the answers to which it could lead.
	StepTimes string `json:"stepTimes,omitempty"`
	// Runs and Requests count what was played, at all loads.
	Runs     int    `json:"runs"`
	Requests int    `json:"requests"`
	Loads    []load `json:"loads"`
	// Key is a hash of everything that the answer depends on.
	Key string `json:"key"`

	objectives []required
}

// seeker plays loads and keeps them.
type seeker struct {
	c          *CapacityOptions
	ctx        context.Context
	player     *Player
	pool       int // index of the pool whose servers are counted
	objectives []required
	timed      float64 // requests per second of a trace as it was recorded; 0 without a trace
	loads      []load
	store      *store
}

// Check returns the files that the search reads, or an error for a mistake.
func (c *CapacityOptions) Check() (inputs []string, err error) {
	_, s, err := c.seeker()
	if err != nil {
		return nil, err
	}
	return append(s.Files(), c.Variant.File), nil
}

func (c *CapacityOptions) seeker() (*seeker, *scenario.Scenario, error) {
	objectives, err := parseObjectives(c.Objectives)
	if err := cmp.Or(err, c.check()); err != nil {
		return nil, nil, err
	}
	s, err := c.Variant.Scenario(0)
	if err != nil {
		return nil, nil, err
	}
	k := &seeker{c: c, objectives: objectives, store: c.Division.store()}
	if k.pool, err = c.counted(s); err == nil {
		err = c.fits(s, k.pool, objectives)
	}
	return k, s, err
}

// Capacity searches for the goal of Find. After an interruption it returns the result so far, and an error.
func (p *Player) Capacity(ctx context.Context, c CapacityOptions) (*Capacity, error) {
	k, s, err := c.seeker()
	if err != nil {
		return nil, err
	}
	k.ctx, k.player = ctx, p
	objectives := k.objectives
	key, err := k.store.of(&c.Variant, s, c.Objectives, c.Find, c.Pool, c.Duration, c.Precision, c.Replications,
		c.MaxReplicas)
	if err != nil {
		return nil, err
	}
	answer := filepath.Join(c.Results, "answer-"+key)
	if out, err := k.answered(answer+".json", key); out != nil || err != nil {
		return out, err
	}
	stop, err := k.store.begin()
	if err != nil {
		return nil, err
	}
	defer stop()
	out := &Capacity{Find: c.Find, objectives: objectives, Key: key}
	for _, b := range objectives {
		out.Objectives = append(out.Objectives, b.text)
	}
	pool, guess := &s.Pools[k.pool], s.Workload.Rate
	if timed, speedup := s.Timed(); speedup > 0 {
		k.timed, guess = timed/speedup, timed
	}
	if guess == 0 {
		guess = float64(pool.Servers())
	}
	switch c.Find {
	case FindReplicas:
		err = k.replicas(out, pool, guess)
	case FindRatio:
		err = k.ratio(out, pool, guess)
	default:
		err = k.rate(out, guess)
	}
	for _, l := range k.loads {
		out.Runs, out.Requests = out.Runs+l.Runs, out.Requests+l.Runs*l.Requests
		if l.steps.Text != "" {
			out.doubt(&l.steps)
		}
	}
	switch out.Loads = k.loads; {
	case (ctx.Err() != nil || errors.Is(err, errAbsent)) && len(k.loads) > 0:
		out.Answer = k.soFar()
		return out, err
	case err != nil:
		return nil, err
	case c.Results == "" || c.Collect:
		return out, nil
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err == nil {
		err = rows(answer+".parquet", loadColumns, out.rows)
	}
	if err == nil { // the last file, since other processes stop when they see it
		err = exit.With(exit.Input, files.Replace(answer+".json", append(text, '\n')))
	}
	return out, err
}

// answered returns the answer in the results, nil without one.
func (k *seeker) answered(path, key string) (*Capacity, error) {
	if info, err := os.Stat(k.c.Results); err == nil && k.c.Collect && !info.IsDir() {
		path = k.c.Results
	}
	text, err := files.Read(path, maxResults)
	if k.c.Results == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	x := &Capacity{objectives: k.objectives}
	if err == nil {
		err = json.Unmarshal(text, x)
	}
	if err == nil && x.Key != key {
		err = fmt.Errorf("found the answer of another search, or of another version of windtunnel; expected the "+
			"answer for %s with these flags, by version %s", k.c.Variant.File, version.Text())
	}
	for i := range x.Loads {
		l := &x.Loads[i]
		l.look.Verdict = verdicts[l.Verdict]
		if len(l.Measures) != len(k.objectives) {
			err = cmp.Or(err, errors.New("found a load without its measures"))
		}
	}
	if err != nil {
		return nil, exit.Errorf(exit.Input, "--results %s: %w", path, err)
	}
	return x, nil
}

// verdicts are the verdicts by their words.
var verdicts = map[string]Verdict{"keeps": Keeps, "misses": Misses, "undecided": Undecided}

// loadColumns are the columns of rows.
var loadColumns = slices.Concat([]table.Column{{Name: "rate", Kind: table.Decimal, Digits: table.Exact},
	{Name: "servers"}, {Name: "verdict"}, {Name: "misses"}, {Name: "pilot"}, {Name: "runs", Kind: table.Whole},
	{Name: "requests_each", Kind: table.Whole}}, measureColumns)

// rows writes a row for each measure of each load.
func (x *Capacity) rows(to table.Writer) {
	for i := range x.Loads {
		l := &x.Loads[i]
		of := []table.Value{table.Number(l.Rate), table.Of(l.Servers), table.Of(l.Verdict), table.Of(l.Why),
			table.Of(strconv.FormatBool(l.Pilot)), table.Number(float64(l.Runs)), table.Number(float64(l.Requests))}
		for k := range l.Measures {
			to.Write(slices.Concat(of, measureCells(&l.Measures[k])))
		}
	}
}

// soFar returns what the loads that were played before an interruption have shown.
func (k *seeker) soFar() string {
	text := "none: interrupted after "
	if k.c.Collect {
		text = "none: the results end after "
	}
	text += terminal.Counted(len(k.loads), "load")
	for _, v := range []Verdict{Keeps, Misses} {
		var best *load
		for i := range k.loads {
			l := &k.loads[i]
			more := best != nil && (l.Rate > best.Rate || l.Rate == best.Rate && l.servers < best.servers)
			if l.look.Verdict == v && (best == nil || more == (v == Keeps)) {
				best = l
			}
		}
		if best != nil {
			text += fmt.Sprintf("; so far %s %s the objectives", best.at(),
				map[Verdict]string{Keeps: "keep", Misses: "miss"}[v])
		}
	}
	return text
}

// doubt sets StepTimes. It takes rates and servers as proportional to the step times.
func (x *Capacity) doubt(e *report.StepError) {
	x.StepTimes = e.Text
	more := 1 + e.Most()
	switch {
	case x.Replicas > 0 && x.Find == FindReplicas:
		least, most := math.Ceil(float64(x.Replicas)/more), math.Ceil(float64(x.Replicas)*more)
		x.StepTimes += fmt.Sprintf("; times that far off make it about %.0f to %.0f replicas", max(1, least), most)
	case x.Keeps > 0:
		x.StepTimes += fmt.Sprintf("; times that far off make it about %v to %v requests/s", Significant(x.Keeps/more),
			Significant(x.Keeps*more))
	}
}

// Found returns an error if nothing that was tried keeps the objectives.
func (x *Capacity) Found() error {
	if x.Keeps == 0 && x.Replicas == 0 {
		return exit.Errorf(exit.Failed, "nothing that was tried keeps the objectives")
	}
	return nil
}

// counted returns the index of the pool whose servers are counted.
func (c *CapacityOptions) counted(s *scenario.Scenario) (int, error) {
	var names []string
	for i := range s.Pools {
		if s.Pools[i].Name == c.Pool {
			return i, nil
		}
		names = append(names, s.Pools[i].Name)
	}
	switch {
	case c.Pool != "":
		return 0, exit.Errorf(exit.Usage, "--pool: the scenario has no pool %q; expected %s", c.Pool,
			strings.Join(names, ", "))
	case c.Find != FindRate && len(names) > 1:
		return 0, exit.Errorf(exit.Usage, "--find %s counts the servers of one pool; expected --pool with one of %s",
			c.Find, strings.Join(names, ", "))
	}
	return 0, nil
}

// fits returns an error if the scenario lacks something that the search needs.
func (c *CapacityOptions) fits(s *scenario.Scenario, pool int, objectives []required) error {
	p, file := &s.Pools[pool], c.Variant.File
	_, speedup := s.Timed()
	switch {
	case !s.Workload.Judges() &&
		slices.ContainsFunc(objectives, func(b required) bool { return b.measure.Name == "attainment" }):
		return exit.Errorf(exit.Usage, "--objective: attainment is the share of requests that keep the scenario's "+
			"own bounds, and %s has none; expected workload.slo, or slo of a class", file)
	case slices.ContainsFunc(s.Pools, func(p scenario.Pool) bool { return len(p.Endpoints) > 0 }):
		return exit.Errorf(exit.Usage, "%s names external endpoints, which virtual time cannot play; "+
			"expected simulated model servers", file)
	case c.Find != FindRate && p.Scales():
		return exit.Errorf(exit.Usage, "%s has autoscaling, which chooses the number of servers; expected --find "+
			"rate, or sweep over pools[0].autoscaling.maxReplicas", file)
	case c.Find == FindReplicas && s.Workload.Rate == 0 && speedup == 0:
		return exit.Errorf(exit.Usage, "--find replicas needs a rate; expected --rate, or workload.rate in the "+
			"scenario")
	case c.Find == FindRatio && p.Disaggregation.PrefillReplicas == 0:
		return exit.Errorf(exit.Usage, "--find ratio needs prefill servers; expected disaggregation.prefillReplicas "+
			"of the pool in the scenario")
	}
	return nil
}

// Bounds of the search.
const (
	leastRate, mostRate = 1e-3, 1e6
	fewestRuns          = 3
	mostRequests        = 2_000_000
)

// rule returns the rule for playing and judging loads. of returns the variant with a number of servers.
func (k *seeker) rule(of func(servers int) Variant) (*Rule, error) {
	s, err := k.c.Variant.Scenario(0)
	if err != nil {
		return nil, err
	}
	// A rate at which mostRequests last less than the duration is not played, because a short run hides overload.
	r := &Rule{Runs: k.c.Replications, Precision: k.c.Precision / 100, MostRequests: mostRequests,
		Least: leastRate, Most: min(mostRate, mostRequests/k.c.Duration.Seconds())}
	least := s.Workload.Requests
	for i := range k.objectives {
		// A run needs requests beyond each percentile.
		b := &k.objectives[i]
		r.Objectives, least = append(r.Objectives, b.rule(k.timed == 0)), max(least, b.measure.Least())
	}
	r.Requests = func(rate float64) int { return max(least, int(math.Ceil(rate*k.c.Duration.Seconds()))) }
	if k.timed > 0 { // the number of a trace's requests is fixed
		r.MostRequests = min(s.Workload.Requests, mostRequests)
	}
	var last load
	r.Play = func(l Load, seeds []int) (runs []Run, err error) {
		v := of(l.Servers)
		last, runs, err = k.play(&v, l, seeds)
		return runs, err
	}
	r.Looked = func(l Load, x Look) {
		last.judged(x, k.objectives)
		k.loads = append(k.loads, last)
		k.player.row(last.at() + ": " + last.words())
	}
	return r, nil
}

func (k *seeker) rate(out *Capacity, guess float64) error {
	r, err := k.rule(func(int) Variant { return k.c.Variant })
	if err != nil {
		return err
	}
	var b Band
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
			out.Answer += "; in between these runs cannot decide"
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

// edge returns the load at which a search for a rate ended: the lowest that misses, or, if none does, the highest that
// keeps. It returns nil without either.
func (k *seeker) edge(b Band) *load {
	for i := range k.loads {
		if l := &k.loads[i]; l.Rate == cmp.Or(b.Misses, b.Keeps) {
			return l
		}
	}
	return nil
}

// bound sets the constraint from the load at the edge, and the objective that it misses.
func (x *Capacity) bound(l *load) {
	if l == nil {
		return
	}
	if l.look.Verdict == Misses {
		x.Binds = l.Why
	}
	if x.Uses, x.Full = constraint.Order(l.uses); len(x.Uses) > 0 {
		x.Constraint = x.Uses[0].String()
	}
}

func (k *seeker) replicas(out *Capacity, p *scenario.Pool, rate float64) error {
	r, err := k.rule(func(n int) Variant { return k.with(k.serversOf(n, p.Disaggregation.PrefillReplicas)...) })
	if err != nil {
		return err
	}
	found, sure, odd, err := r.Fewest(p.Replicas, k.c.MaxReplicas, rate)
	if err != nil {
		return err
	}
	out.Replicas, out.PrefillReplicas = found, p.Disaggregation.PrefillReplicas
	at := func(n int) *load { // the last look at this number
		for i := range slices.Backward(k.loads) {
			if k.loads[i].servers == n {
				return &k.loads[i]
			}
		}
		return nil
	}
	switch {
	case found == 0:
		out.Answer = fmt.Sprintf("the objectives are missed at %v requests/s with %s", rate,
			terminal.Counted(k.c.MaxReplicas, "replica"))
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

// with returns the variant with more settings, under its own name.
func (k *seeker) with(settings ...scenario.Setting) Variant {
	v := k.c.Variant.With(settings...)
	v.Name, v.Overrides.Replicas = k.c.Variant.Name, nil // otherwise it would override the settings
	return v
}

// countedServers returns a pool's servers, prefill servers first.
func countedServers(p *scenario.Pool) string {
	if n := p.Disaggregation.PrefillReplicas; n > 0 {
		return fmt.Sprintf("%d:%d", n, p.Replicas)
	}
	return strconv.Itoa(p.Replicas)
}

// serversOf returns settings for the number of servers of the searched pool.
func (k *seeker) serversOf(replicas, prefill int) []scenario.Setting {
	path := fmt.Sprintf("pools[%d].", k.pool)
	list := []scenario.Setting{{Path: path + "replicas", Value: strconv.Itoa(replicas)}}
	if prefill > 0 {
		list = append(list, scenario.Setting{Path: path + "disaggregation.prefillReplicas",
			Value: strconv.Itoa(prefill)})
	}
	return list
}

func (k *seeker) ratio(out *Capacity, p *scenario.Pool, guess float64) error {
	servers := p.Servers()
	r, err := k.rule(func(prefill int) Variant { return k.with(k.serversOf(servers-prefill, prefill)...) })
	if err != nil {
		return err
	}
	// Pilot runs choose the ratio, so the runs that decide about its rate were not chosen for their luck.
	roughly := map[int]Rough{}
	at, err := Best(p.Disaggregation.PrefillReplicas, servers-1, func(prefill int) (float64, error) {
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
func (k *seeker) play(v *Variant, at Load, seeds []int) (l load, runs []Run, err error) {
	l = load{Rate: at.Rate, servers: at.Servers, Requests: at.Requests, Pilot: Pilot(seeds)}
	if k.timed > 0 {
		l.Speedup = Significant(at.Rate / k.timed)
	}
	s, err := v.Scenario(0)
	if err != nil {
		return l, nil, err
	}
	key, err := k.store.of(v, s, at.Rate, at.Requests, k.c.Objectives, k.c.Pool)
	if err != nil {
		return l, nil, err
	}
	results := make([]*played, len(seeds))
	done := k.player.Counter(fmt.Sprintf("runs at %v requests/s", at.Rate), len(seeds))
	err = k.store.each(k.ctx, len(seeds), func(i int) (ended bool, err error) {
		results[i], ended, err = k.store.run(fmt.Sprintf("%s-%d", key, seeds[i]), func() (*played, error) {
			return k.once(v, at, seeds[i])
		})
		if ended {
			done()
		}
		return ended, err
	})
	if err != nil {
		return l, nil, err
	}
	var uses [][]constraint.Use
	for _, p := range results {
		runs, uses = append(runs, p.Run), append(uses, p.Uses)
	}
	l.Servers, l.uses, l.steps = results[0].Servers, constraint.Mean(uses...), results[0].Steps
	return l, runs, nil
}

// once plays one run of a load.
func (k *seeker) once(v *Variant, at Load, seed int) (*played, error) {
	s, err := v.Scenario(seed)
	if err != nil {
		return nil, err
	}
	// Send all requests that arrive. A client that waits would hide their waiting.
	all := min(at.Requests, 1_000_000)
	if err := s.Override(scenario.Overrides{Rate: &at.Rate, Requests: &at.Requests, Concurrency: &all}); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	var list []report.Ended
	x, err := k.player.Play(k.ctx, s, func(e *report.Ended) { list = append(list, *e) })
	if err != nil {
		return nil, err
	}
	p := &played{Run: observed(list, k.objectives, s.Workload.SLO), Servers: countedServers(&s.Pools[k.pool]),
		Steps: report.StepErrorOf(x.Sample.Load),
		Uses:  slices.Concat(constraint.OfLoad(x.Sample.Load, x.Summary.Requests), x.Uses)}
	if p.Unsettled = !x.Sample.Steady; k.timed > 0 && x.Sample.Steady {
		// a trace's own variation hides whether waits grow
		p.Early, p.Late = 1, 1
	}
	return p, nil
}

// judged sets the search's judgement of the load.
func (l *load) judged(x Look, objectives []required) {
	l.look, l.Runs = x, x.Runs
	for word, v := range verdicts {
		if v == x.Verdict {
			l.Verdict = word
		}
	}
	for i := range objectives {
		l.Measures = append(l.Measures, objectives[i].measured(x.Estimates[i]))
	}
	var why []string
	for _, i := range x.Fails {
		switch {
		case i >= 0:
			why = append(why, objectives[i].text)
		case x.Verdict == Misses:
			why = append(why, "not steady: requests wait longer and longer")
		default:
			why = append(why, "requests may wait longer and longer")
		}
	}
	l.Why = strings.Join(why, ", ")
}

// Write prints the result for people, on lines of so many columns; 0 columns never break.
func (x *Capacity) Write(to io.Writer, columns int) error {
	for _, line := range x.verdict() {
		if _, err := io.WriteString(to, terminal.Wrap(line, 9, columns)+"\n"); err != nil {
			return err
		}
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nrequests/s\tservers\truns\t")
	for _, b := range x.objectives {
		fmt.Fprintf(w, "%s\t", b.measure.Name)
	}
	fmt.Fprintln(w, "  verdict")
	loads := slices.Clone(x.Loads)
	slices.SortStableFunc(loads, func(a, b load) int {
		if a.Servers != b.Servers {
			return 0
		}
		return int(math.Copysign(1, a.Rate-b.Rate))
	})
	for _, l := range loads {
		fmt.Fprintf(w, "%v\t%s\t%d x %d\t", l.Rate, l.Servers, l.Runs, l.Requests)
		for i := range x.objectives {
			fmt.Fprintf(w, "%s\t", l.Measures[i].Interval())
		}
		fmt.Fprintf(w, "  %s\n", l.words())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := io.WriteString(to, terminal.Wrap(strings.TrimSuffix(line, "\n"), 4, columns)+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// at returns the load in words.
func (l *load) at() string {
	noun := "servers"
	if l.Servers == "1" {
		noun = "server"
	}
	return fmt.Sprintf("%v requests/s with %s %s", l.Rate, l.Servers, noun)
}

// words returns the verdict and its reason.
func (l *load) words() string {
	switch {
	case l.Pilot && l.look.Verdict != Misses:
		return "pilot"
	case l.Pilot:
		return "pilot, misses: " + l.Why
	case l.Why != "":
		return l.Verdict + ": " + l.Why
	}
	return l.Verdict
}

// verdict returns the answer, and what holds the run back if something does, as lines.
func (x *Capacity) verdict() []string {
	answer := "answer   " + x.Answer
	if x.Binds != "" {
		answer += "; the first to be missed is " + x.Binds
	}
	lines := []string{answer}
	if x.Full {
		held := "held by  " + x.Constraint
		var others []string
		for _, u := range x.Uses[1:] {
			others = append(others, u.String())
		}
		if len(others) > 0 {
			held += " (" + strings.Join(others, ", ") + ")"
		}
		lines = append(lines, held)
	}
	if x.StepTimes != "" {
		lines = append(lines, "steps    "+x.StepTimes)
	}
	return append(lines, "played   "+terminal.Counted(x.Requests, "request")+" in "+terminal.Counted(x.Runs, "run"))
}
