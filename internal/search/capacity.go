package search

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
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
	store      *Store
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
	k := &seeker{c: c, objectives: objectives, store: c.Division.Store()}
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
	key, err := k.store.Of(&c.Variant, s, c.Objectives, c.Find, c.Pool, c.Duration, c.Precision, c.Replications,
		c.MaxReplicas)
	if err != nil {
		return nil, err
	}
	answer := filepath.Join(c.Results, "answer-"+key)
	if out, err := k.answered(answer+".json", key); out != nil || err != nil {
		return out, err
	}
	stop, err := k.store.Open()
	if err != nil {
		return nil, err
	}
	defer stop()
	out := &Capacity{Find: c.Find, objectives: objectives, Key: key,
		Objectives: terminal.Texts(len(objectives), func(i int) string { return objectives[i].text })}
	pool, guess := &s.Pools[k.pool], s.Workload.Rate
	if timed, speedup := s.Timed(); speedup > 0 {
		k.timed, guess = timed/speedup, timed
	}
	guess = cmp.Or(guess, float64(pool.Servers()))
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
	case (ctx.Err() != nil || errors.Is(err, ErrAbsent)) && len(k.loads) > 0:
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

// play plays one load with these seeds.
func (k *seeker) play(v *Variant, at Load, seeds []int) (l load, runs []Run, err error) {
	l = load{Rate: at.Rate, servers: at.Servers, Requests: at.Requests, Pilot: Pilot(seeds)}
	if k.timed > 0 {
		l.Speedup = Significant(at.Rate/k.timed, 4)
	}
	s, err := v.Scenario(0)
	if err != nil {
		return l, nil, err
	}
	key, err := k.store.Of(v, s, at.Rate, at.Requests, k.c.Objectives, k.c.Pool)
	if err != nil {
		return l, nil, err
	}
	results := make([]played, len(seeds))
	done := k.player.Counter(fmt.Sprintf("runs at %v requests/s", at.Rate), len(seeds))
	err = k.store.Each(k.ctx, len(seeds), func(i int) (ended bool, err error) {
		ended, err = k.store.Run(fmt.Sprintf("%s-%d", key, seeds[i]), &results[i], func() error {
			p, err := k.once(v, at, seeds[i])
			results[i] = p
			return err
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
	for i := range results {
		p := &results[i]
		runs, uses = append(runs, p.Run), append(uses, p.Uses)
	}
	l.Servers, l.uses, l.steps = results[0].Servers, constraint.Mean(uses...), results[0].Steps
	return l, runs, nil
}

// once plays one run of a load.
func (k *seeker) once(v *Variant, at Load, seed int) (p played, err error) {
	s, err := v.Scenario(seed)
	if err != nil {
		return p, err
	}
	// Send all requests that arrive. A client that waits would hide their waiting.
	all := min(at.Requests, 1_000_000)
	if err := s.Override(scenario.Overrides{Rate: &at.Rate, Requests: &at.Requests, Concurrency: &all}); err != nil {
		return p, exit.With(exit.Usage, err)
	}
	var list []report.Ended
	x, err := k.player.Play(k.ctx, s, func(e *report.Ended) { list = append(list, *e) })
	if err != nil {
		return p, err
	}
	p = played{Run: observed(list, k.objectives, s.Workload.SLO), Servers: countedServers(&s.Pools[k.pool]),
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
