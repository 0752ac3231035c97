package parity

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// The runs about ceilings show which of several priorities pass at a given saturation. Their requests were not
// recorded one by one. The names of the answered requests show who asked: "p10-3" is the fourth request of objective
// p10.

// crowdBody is the body of each of these requests.
const crowdBody = `{"model": "m1", "messages": [{"role": "user", "content": "x"}]}`

// ceilings reports whether the run is one of these.
func (l *Line) ceilings() bool {
	return slices.ContainsFunc(l.Steps, func(s Step) bool { return s.Saturation != nil || s.AfterBand != nil })
}

// ceilingStep plays the steps that only such runs have.
func (pl *player) ceilingStep(s *Step) bool {
	switch {
	case s.AfterBand != nil:
		pl.crowd(s)
	case s.Saturation != nil && s.Answered != nil:
		pl.crew(s)
	case s.Saturation != nil:
		pl.drip(s)
	case s.Order != nil && pl.crewed:
		pl.crewLeaves(s)
	case s.Order != nil:
		pl.crowdLeaves(s)
	default:
		return false
	}
	return true
}

// member sends one request of an objective.
func (pl *player) member(name string) *exchange {
	objective, _, _ := strings.Cut(name, "-")
	body := crowdBody
	x := &exchange{id: name, step: &Step{}}
	pl.send(x, &Request{ID: name, Method: "POST", Path: "/v1/chat/completions", Body: &body,
		Headers: map[string]string{"content-type": "application/json", picker.HeadersObjective[0]: objective}})
	return x
}

// named returns the names in a ceiling run, the lowest priority first.
func (pl *player) named() (names []string) {
	for i := range pl.line.Steps {
		s := &pl.line.Steps[i]
		list := slices.Clone(s.Answered)
		for _, group := range groups(s.Order) {
			list = append(list, group...)
		}
		for _, name := range list {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return priorityOf(a) - priorityOf(b) })
	return names
}

// priorityOf returns the priority in a name: -5 for neg5-0.
func priorityOf(name string) int {
	objective, _, _ := strings.Cut(name, "-")
	n, _ := strconv.Atoi(strings.NewReplacer("neg", "-", "p", "").Replace(objective))
	return n
}

// crew plays one state of saturation: one request of each name, 15 ms apart.
func (pl *player) crew(s *Step) {
	pl.crewed, pl.from = true, len(pl.order)
	for _, name := range pl.named() {
		pl.member(name)
		pl.pass(11 * machine.Millisecond)
	}
	pl.pass(machine.Time(s.SleepS * float64(machine.Second)))
	got, want := slices.Clone(pl.order[pl.from:]), slices.Clone(s.Answered)
	// The phase of its oscillation was not recorded.
	if *s.Saturation > .6 && strings.Contains(pl.line.Config, "soft-reflective") {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		pl.fault(fmt.Sprint("saturation ", *s.Saturation), "dispatched", fmt.Sprint(want), fmt.Sprint(got))
	}
}

// crewLeaves plays the end of such a state: the pool is idle, and all requests leave. Answers a millisecond apart
// overtake each other, so only the names count.
func (pl *player) crewLeaves(s *Step) {
	pl.pass(300 * machine.Millisecond)
	got := slices.Clone(pl.order[pl.from:])
	slices.Sort(got)
	want := slices.Sorted(slices.Values(slices.Concat(groups(s.Order)...)))
	if !slices.Equal(got, want) {
		pl.fault("all leave", "order", fmt.Sprint(want), fmt.Sprint(got))
	}
	for _, name := range got {
		pl.finish(name, Response{Kind: "json", Usage: []int{3, 4}}, nil)
	}
}

// drip plays a state in which requests that have waited at full saturation leave at a lower one. It compares the pace
// of the lower band.
func (pl *player) drip(s *Step) {
	pages := maps.Clone(pl.pages)
	for name := range pl.pages {
		full := Metrics{Waiting: 0.0, Running: 1.0, KV: .8}
		pl.pages[name] = full.Page()
	}
	pl.pass(300 * machine.Millisecond)
	pl.from = len(pl.order)
	var recorded []float64
	bands := []string{"p0"}
	for _, row := range s.OrderMs {
		name, at := row[0].(string), row[1].(float64)
		if strings.HasPrefix(name, "p0-") {
			recorded = append(recorded, at)
		} else if !slices.Contains(bands, "p10") {
			bands = append(bands, "p10")
		}
	}
	unit := fmt.Sprint("saturation ", *s.Saturation)
	var low []*exchange
	for _, band := range bands {
		for i := range 6 {
			if x := pl.member(fmt.Sprintf("%s-%d", band, i)); band == "p0" {
				low = append(low, x)
			}
		}
	}
	if got := pl.order[pl.from:]; len(got) > 0 {
		pl.fault(unit, "at saturation 1", "[]", fmt.Sprint(got))
	}
	pl.pages = pages
	for n := 0; n < 200 && len(pl.order)-pl.from < 6*len(bands); n++ {
		pl.pass(50 * machine.Millisecond)
	}
	got := slices.Clone(pl.order[pl.from:])
	if len(got) != 6*len(bands) || len(recorded) < 2 {
		pl.fault(unit, "left", fmt.Sprint(6*len(bands)), fmt.Sprint(got))
		return
	}
	first, last := low[0].answered, low[0].answered
	for _, x := range low {
		first, last = min(first, x.answered), max(last, x.answered)
	}
	gap := (recorded[len(recorded)-1] - recorded[0]) / float64(len(recorded)-1)
	mine := float64(last-first) / 5 / float64(machine.Millisecond)
	// The real cycle takes 1.07 ms. Several cycles may follow at once after the process was delayed.
	if math.Abs(gap/1.07-mine) > .15*mine+.8 {
		pl.fault(unit, "milliseconds between dispatches", fmt.Sprint(gap), fmt.Sprint(mine))
	}
	for _, name := range got[:len(got)-6] {
		if !strings.HasPrefix(name, "p10-") {
			pl.fault(unit, "order", "p10 first", fmt.Sprint(got))
			break
		}
	}
	for _, name := range got {
		pl.finish(name, Response{Kind: "json", Usage: []int{3, 4}}, nil)
	}
}

// crowd plays one priority of the runs in which requests of each priority arrive until they wait: as many as the
// recording names, 20 ms apart.
func (pl *player) crowd(s *Step) {
	for _, name := range pl.crowdOf(*s.AfterBand) {
		pl.member(name)
		pl.pass(16 * machine.Millisecond)
	}
	pl.pass(500 * machine.Millisecond)
	got := map[string]int{}
	for _, name := range pl.order {
		objective, _, _ := strings.Cut(name, "-")
		got[objective]++
	}
	if !maps.Equal(got, s.Dispatched) {
		pl.fault(fmt.Sprint("after priority ", *s.AfterBand), "dispatched", fmt.Sprint(s.Dispatched), fmt.Sprint(got))
	}
}

// crowdOf returns the requests of one priority: twelve, or six if the run has no seventh.
func (pl *player) crowdOf(priority int) (names []string) {
	n, objective := 6, fmt.Sprint("p", priority)
	if priority < 0 {
		objective = fmt.Sprint("neg", -priority)
	}
	if slices.ContainsFunc(pl.named(), func(name string) bool { return strings.HasSuffix(name, "-11") }) {
		n = 12
	}
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", objective, i))
	}
	return names
}

// crowdLeaves finishes them one by one. The recorder also continued with evicted ones.
func (pl *player) crowdLeaves(s *Step) {
	var want [][]string
	for _, group := range groups(s.Order) {
		want = append(want, slices.DeleteFunc(group, func(name string) bool { return pl.gone[name] }))
	}
	if got, _, _ := pl.drain(); !sameOrder(want, got) {
		pl.fault("dispatch_order", "order", fmt.Sprint(want), fmt.Sprint(got))
	}
}
