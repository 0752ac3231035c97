package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// ClassSummary reports on the requests of one class of traffic, or of all classes.
type ClassSummary struct {
	// Name is empty for all classes together.
	Name string `json:"name,omitempty"`
	// Requests were sent, and Good of them completed within all bounds that are set. Refused and abandoned requests are
	// not good.
	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	Good      int `json:"good"`
	// Missed counts the completed requests that missed each bound: ttft, tpot or e2e. A request may miss several.
	Missed map[string]int `json:"missed,omitempty"`
	// Attainment is Good / Requests. Goodput is per second, from the run's first request to the last one sent. It
	// counts requests that end by then, or by the end of the run if most were sent at once.
	Attainment float64 `json:"attainment"`
	Goodput    float64 `json:"goodput"`
}

// classCount counts the requests of a class. drained of the good ones ended after the last request was sent, the
// epoch-th of the run.
type classCount struct {
	ClassSummary
	drained, epoch int
}

// maxClasses bounds how many classes are counted separately.
const maxClasses = 64

// goodput counts good requests by their class.
type goodput struct {
	slos    map[string]record.SLO // by the text that requests carry
	classes map[string]*classCount
	epoch   int // requests sent so far
}

// sending counts a request that is sent. The requests that ended before it did not drain.
func (g *goodput) sending() { g.epoch++ }

// of returns the count of a class.
func (g *goodput) of(class string) *classCount {
	if g.classes == nil {
		g.classes = map[string]*classCount{}
	}
	return bounded(g.classes, class, maxClasses, func(name string) *classCount {
		return &classCount{ClassSummary: ClassSummary{Name: name}}
	})
}

// sent counts a request with its class and the text of its SLO, and returns the name that the class is counted under.
func (g *goodput) sent(class, text string) (name string, slo record.SLO) {
	c := g.of(class)
	c.Requests++
	o, known := g.slos[text]
	if !known && text != "" && len(text) <= longestName && len(g.slos) < maxClasses {
		if g.slos == nil {
			g.slos = map[string]record.SLO{}
		}
		// A recording may hold anything. An unreadable bound bounds nothing.
		o, _ = record.ParseSLO(strings.Split(text, ","))
		g.slos[strings.Clone(text)] = o
	}
	return c.Name, o
}

// ended counts a request that has its outcome.
func (g *goodput) ended(class string, slo record.SLO, e *Ended) {
	c := g.of(class)
	if e.Completed {
		c.Completed++
		e.addMissed(&c.Missed, slo)
	}
	if e.Keeps(slo) {
		c.Good++
		if c.epoch != g.epoch {
			c.epoch, c.drained = g.epoch, 0
		}
		c.drained++
	}
}

// summary returns a summary of every class, and last of all classes. It returns nothing where there are neither classes
// nor SLOs. The last request was sent at sent, and the run ended at last.
func (g *goodput) summary(sent, last machine.Time) []ClassSummary {
	if len(g.slos) == 0 && len(g.classes) <= 1 && g.classes[""] != nil || len(g.classes) == 0 {
		return nil
	}
	over, atOnce := sent.Seconds(), sent < last/2 // most were sent at once
	if atOnce {
		over = last.Seconds()
	}
	var out []ClassSummary
	all := ClassSummary{}
	add := func(c ClassSummary, drained int) {
		c.Attainment = round(float64(c.Good) / float64(max(1, c.Requests)))
		if over > 0 {
			c.Goodput = round(float64(c.Good-drained) / over)
		}
		out = append(out, c)
	}
	allDrained := 0
	for _, name := range slices.Sorted(maps.Keys(g.classes)) {
		c := *g.classes[name]
		if c.epoch != g.epoch || atOnce {
			c.drained = 0
		}
		all.Requests, all.Completed, all.Good, allDrained = all.Requests+c.Requests, all.Completed+c.Completed,
			all.Good+c.Good, allDrained+c.drained
		for bound, n := range c.Missed {
			if all.Missed == nil {
				all.Missed = map[string]int{}
			}
			all.Missed[bound] += n
		}
		c.Missed = maps.Clone(c.Missed)
		if name != "" {
			add(c.ClassSummary, c.drained)
		}
	}
	add(all, allDrained)
	return out
}

// write adds a line for the class.
func (c *ClassSummary) write(l *lines) {
	text := fmt.Sprintf("%s: %s of %s good (%.1f%%), %.4g a second", cmp.Or(c.Name, "all"),
		terminal.Thousands(c.Good), terminal.Counted(c.Requests, "request"), 100*c.Attainment, c.Goodput)
	l.list("goodput", append([]string{text}, missedWords(c.Missed)...))
}

// detail returns a detail of an event that is text, or "".
func detail(e *record.Event, key string) string {
	text, _ := e.Details.Get(key).(string)
	return text
}
