package search

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
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
