package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// ClassSummary is what became of the requests of one class of traffic, or of all.
type ClassSummary struct {
	// Name is the class's; that of all together is empty.
	Name string `json:"name,omitempty"`
	// Requests were sent and Good of them completed within all bounds that are set.
	// Others, refused and left ones too, are not good.
	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	Good      int `json:"good"`
	// Attainment is Good of Requests. Goodput is per second from the run's first request to the last one sent, of
	// those that end until then, or until the run's end if most are sent at once.
	Attainment float64 `json:"attainment"`
	Goodput    float64 `json:"goodput"`
}

// classCount counts the requests of a class; drained of the good ones ended after the last request was sent,
// which was the epoch-th of the run.
type classCount struct {
	ClassSummary
	drained, epoch int
}

// maxClasses bounds how many classes are counted for themselves.
const maxClasses = 64

// goodput counts good requests by their class.
type goodput struct {
	slos    map[string]SLO // as requests tell of theirs
	classes map[string]*classCount
	epoch   int // how many requests were sent
}

// sending counts a request that is sent: what ended before did not drain.
func (g *goodput) sending() { g.epoch++ }

// of is the count of a class.
func (g *goodput) of(class string) *classCount {
	if g.classes == nil {
		g.classes = map[string]*classCount{}
	}
	c := g.classes[class]
	if c == nil {
		if len(g.classes) >= maxClasses || len(class) > longestName {
			class = otherName
		}
		if c = g.classes[class]; c == nil {
			c = &classCount{ClassSummary: ClassSummary{Name: strings.Clone(class)}}
			g.classes[c.Name] = c
		}
	}
	return c
}

// sent counts a request that is sent, by its class and by what it tells that a good
// answer keeps to.
func (g *goodput) sent(class, text string) (name string, slo SLO) {
	c := g.of(class)
	c.Requests++
	o, known := g.slos[text]
	if !known && text != "" && len(text) <= longestName && len(g.slos) < maxClasses {
		if g.slos == nil {
			g.slos = map[string]SLO{}
		}
		o, _ = ParseSLO(strings.Split(text, ",")) // of somebody's recording: what is no bound bounds nothing
		g.slos[strings.Clone(text)] = o
	}
	return c.Name, o
}

// ended counts a request that has its outcome.
func (g *goodput) ended(class string, slo SLO, e *Ended) {
	c := g.of(class)
	if e.Completed {
		c.Completed++
	}
	if slo.Holds(e) {
		c.Good++
		if c.epoch != g.epoch {
			c.epoch, c.drained = g.epoch, 0
		}
		c.drained++
	}
}

// summary is what every class came to, and last all of them; nothing where there are neither classes nor bounds.
// The last request was sent at sent, and last is when the run ended.
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
		if name != "" {
			add(c.ClassSummary, c.drained)
		}
	}
	add(all, allDrained)
	return out
}

// write is a line for each class and one for all.
func (c *ClassSummary) write(l *lines) {
	l.add("goodput", fmt.Sprintf("%s: %s of %s good (%.1f%%), %.4g a second", cmp.Or(c.Name, "all"),
		terminal.Thousands(c.Good), counted(c.Requests, "request"), 100*c.Attainment, c.Goodput))
}

// classOf is the class of traffic that a request's first event tells.
func classOf(e *record.Event) string {
	class, _ := e.Details.Get("class").(string)
	return class
}

// sloOf is what it tells that a good answer keeps to.
func sloOf(e *record.Event) string {
	text, _ := e.Details.Get("slo").(string)
	return text
}

// ParseSLO reads what a good request keeps to, each a bound such as ttft=200ms.
func ParseSLO(list []string) (slo SLO, err error) {
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		d, err := time.ParseDuration(value)
		to := map[string]*time.Duration{"ttft": &slo.TTFT, "tpot": &slo.TPOT, "e2e": &slo.E2E}[name]
		if to == nil || err != nil || d <= 0 {
			return slo, fmt.Errorf("found %q; expected ttft, tpot or e2e with a duration above 0, such as "+
				"ttft=200ms,tpot=30ms", text)
		}
		*to = d
	}
	return slo, nil
}
