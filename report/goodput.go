package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
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
	// Attainment is Good of Requests, and Goodput is Good per second from the first
	// request of the run to the last one that was sent, or to the run's end where most
	// were sent at once.
	Attainment float64 `json:"attainment"`
	Goodput    float64 `json:"goodput"`
}

// maxClasses bounds how many classes are counted for themselves.
const maxClasses = 64

// goodput counts good requests by their class.
type goodput struct {
	slos    map[string]SLO // as requests tell of theirs
	classes map[string]*ClassSummary
}

// of is the count of a class.
func (g *goodput) of(class string) *ClassSummary {
	if g.classes == nil {
		g.classes = map[string]*ClassSummary{}
	}
	c := g.classes[class]
	if c == nil {
		if len(g.classes) >= maxClasses || len(class) > longestName {
			class = otherName
		}
		if c = g.classes[class]; c == nil {
			c = &ClassSummary{Name: strings.Clone(class)}
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
	}
}

// summary is what every class came to, and last all of them; nothing where there
// are neither classes nor bounds.
func (g *goodput) summary(seconds float64) []ClassSummary {
	if len(g.slos) == 0 && len(g.classes) <= 1 && g.classes[""] != nil || len(g.classes) == 0 {
		return nil
	}
	var out []ClassSummary
	all := ClassSummary{}
	for _, name := range slices.Sorted(maps.Keys(g.classes)) {
		c := *g.classes[name]
		all.Requests, all.Completed, all.Good = all.Requests+c.Requests, all.Completed+c.Completed, all.Good+c.Good
		if name != "" {
			out = append(out, c)
		}
	}
	out = append(out, all)
	for i := range out {
		c := &out[i]
		c.Attainment = round(float64(c.Good) / float64(max(1, c.Requests)))
		if seconds > 0 {
			c.Goodput = round(float64(c.Good) / seconds)
		}
	}
	return out
}

// write is a line for each class and one for all.
func (c *ClassSummary) write(l *lines) {
	l.add("goodput", fmt.Sprintf("%s: %s of %s good (%.1f%%), %.4g a second", cmp.Or(c.Name, "all"), terminal.Thousands(c.Good), counted(c.Requests, "request"), 100*c.Attainment, c.Goodput))
}

// classOf is the class of traffic that a request's first event tells.
func classOf(e *flow.Event) string {
	class, _ := e.Details.Get("class").(string)
	return class
}

// sloOf is what it tells that a good answer keeps to.
func sloOf(e *flow.Event) string {
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
			return slo, fmt.Errorf("found %q; expected ttft, tpot or e2e with a duration above 0, such as ttft=200ms,tpot=30ms", text)
		}
		*to = d
	}
	return slo, nil
}
