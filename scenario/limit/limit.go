// Package limit reads the limits that a scenario sets for the summary: of measures (Limit), of other numbers (Figure),
// and of counts of requests (Amount).
package limit

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Limit is a bound of a measure of the summary: ttft p99 <= 200ms, goodput >= 40, utilisation <= 85%.
type Limit struct {
	// Measure is the measure's name in the summary.
	Measure string
	Bounds
}

// Bounds is the smallest value, with AtLeast, or the largest one: in seconds, as a share, or a number.
type Bounds struct {
	AtLeast bool
	Bound   float64
}

// Holds reports whether a value keeps the bound.
func (b Bounds) Holds(v float64) bool {
	if b.AtLeast {
		return v >= b.Bound
	}
	return v <= b.Bound
}

// sign returns the bound after the sign of its direction. text formats the number.
func (b Bounds) sign(text func(float64) string, atLeast, atMost string) string {
	if b.AtLeast {
		return atLeast + text(b.Bound)
	}
	return atMost + text(b.Bound)
}

const limitHelp = "a measure with its least or most, such as ttft p99 <= 200ms, goodput >= 40 or utilisation <= 85%"

// unit is the unit of a measure.
type unit int

const (
	inNumbers unit = iota
	inSeconds
	inShares
)

// measures returns the names of all measures, and their units.
func measures() (names []string, units map[string]unit) {
	units = map[string]unit{}
	add := func(in unit, list ...string) {
		for _, name := range list {
			names = append(names, name)
			units[name] = in
		}
	}
	add(inNumbers, "requests/s", "input tokens/s", "output tokens/s", "goodput", "in flight", "GPUs",
		"USD per 1M output tokens")
	add(inShares, "attainment", "completed", "hit rate")
	for _, family := range []string{"ttft", "tpot", "itl", "e2e"} {
		for _, q := range []string{"mean", "p50", "p90", "p95", "p99"} {
			add(inSeconds, family+" "+q)
		}
	}
	for _, role := range []string{"", " prefill", " decode"} {
		add(inShares, "utilisation"+role, "kv use mean"+role, "kv use peak"+role)
		add(inNumbers, "balance"+role, "queue mean"+role, "queue peak"+role, "preemptions"+role)
	}
	return names, units
}

// Measures returns the names of all measures.
func Measures() []string {
	names, _ := measures()
	return names
}

// UnmarshalText reads a name, <= or >=, and a value.
func (l *Limit) UnmarshalText(text []byte) error {
	name, value, most := strings.Cut(string(text), "<=")
	if !most {
		var least bool
		if name, value, least = strings.Cut(string(text), ">="); !least {
			return fmt.Errorf("%q is not %s", text, limitHelp)
		}
	}
	*l = Limit{Measure: strings.Join(strings.Fields(name), " "), Bounds: Bounds{AtLeast: !most}}
	names, units := measures()
	unit, known := units[l.Measure]
	if !known {
		hint := strictyaml.DidYouMean(l.Measure, names)
		hint = cmp.Or(hint, "they are "+strings.Join(names, ", "))
		return fmt.Errorf("there is no measure %q; %s", l.Measure, hint)
	}
	var err error
	value = strings.TrimSpace(value)
	switch unit {
	case inSeconds:
		var d time.Duration
		d, err = time.ParseDuration(value)
		l.Bound = d.Seconds()
	case inShares:
		number, percent := strings.CutSuffix(value, "%")
		l.Bound, err = strconv.ParseFloat(strings.TrimSpace(number), 64)
		if percent {
			l.Bound /= 100
		}
		if err == nil && l.Bound > 1 {
			err = fmt.Errorf("found %q, more than all", value)
		}
	default:
		l.Bound, err = strconv.ParseFloat(value, 64)
	}
	if err != nil || !(l.Bound >= 0) || math.IsInf(l.Bound, 0) {
		return fmt.Errorf("found %q as the bound of %s; expected %s", value, l.Measure,
			[]string{"a number such as 40", "a duration such as 200ms", "a share such as 95%"}[unit])
	}
	return nil
}

// Expected describes a valid limit, for errors.
func (Limit) Expected() string { return limitHelp }

// String writes the limit so that UnmarshalText reads it back.
func (l Limit) String() string { return l.Measure + l.sign(l.Text, " >= ", " <= ") }

// Words returns the limit in words.
func (l Limit) Words() string { return l.sign(l.Text, "at least ", "at most ") }

// Rounded formats seconds with four digits, as summaries do, or with as many as show the side of a bound.
func Rounded(seconds float64, bound time.Duration) string {
	d, unit := time.Duration(math.Round(seconds*1e9)), time.Duration(1)
	for d/unit >= 10_000 {
		unit *= 10
	}
	for cmp.Compare(d.Round(unit), bound) != cmp.Compare(d, bound) {
		unit /= 10
	}
	return d.Round(unit).String()
}

// Found formats a value that was found. Times and fractions have four digits, or as many as show the side of the bound.
func (l Limit) Found(v float64) string {
	if _, units := measures(); units[l.Measure] == inSeconds {
		return Rounded(v, time.Duration(math.Round(l.Bound*1e9)))
	}
	for digits := 4; v != math.Trunc(v) && digits < 17; digits++ {
		r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
		if err == nil && cmp.Compare(r, l.Bound) == cmp.Compare(v, l.Bound) {
			return l.Text(r)
		}
	}
	return l.Text(v)
}

// Text formats a value in the measure's unit.
func (l Limit) Text(v float64) string {
	_, units := measures()
	switch units[l.Measure] {
	case inSeconds:
		return time.Duration(math.Round(v * 1e9)).String()
	case inShares:
		return strconv.FormatFloat(100*v, 'g', 6, 64) + "%"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Figure is a bound of any number of the summary, by the names that it has in JSON:
// classes[chat].attainment >= 0.95, refusals[epp: queue full] <= 3.
type Figure struct {
	// Name is the text in the file, and Path the names in it.
	Name string
	Path []string
	Bounds
}

const figureHelp = "a number of the summary by its names in JSON, with its least or most, such as " +
	"classes[chat].attainment >= 0.95 or refusals[epp: queue full] <= 3"

// maxPath bounds the names of a path.
const maxPath = 8

// UnmarshalText reads names, <= or >=, and a number.
func (f *Figure) UnmarshalText(text []byte) error {
	at, sign := strings.LastIndex(string(text), "<="), "<="
	if at < 0 {
		at, sign = strings.LastIndex(string(text), ">="), ">="
	}
	if at < 0 {
		return fmt.Errorf("%q is not %s", text, figureHelp)
	}
	bound, err := strconv.ParseFloat(strings.TrimSpace(string(text[at+2:])), 64)
	if err != nil || math.IsInf(bound, 0) || math.IsNaN(bound) {
		return fmt.Errorf("found %q as the bound; expected %s", strings.TrimSpace(string(text[at+2:])), figureHelp)
	}
	name := strings.TrimSpace(string(text[:at]))
	path, err := names(name)
	*f = Figure{Name: name, Path: path, Bounds: Bounds{sign == ">=", bound}}
	return err
}

// A path is a name, then names behind dots and keys in brackets.
var (
	pathForm = regexp.MustCompile(`^[^.\[]+(\.[^.\[]+|\[[^\]]*\])*$`)
	pathStep = regexp.MustCompile(`([^.\[]+)|\[([^\]]*)\]`)
)

// names splits a path.
func names(text string) (path []string, err error) {
	if text != "" && !pathForm.MatchString(text) {
		return nil, fmt.Errorf("found %q; expected %s", text, figureHelp)
	}
	for _, step := range pathStep.FindAllStringSubmatch(text, -1) {
		path = append(path, step[1]+step[2])
	}
	if len(path) == 0 || len(path) > maxPath {
		return nil, fmt.Errorf("found %q, which has %d names; expected from 1 to %d: %s", text, len(path), maxPath,
			figureHelp)
	}
	return path, nil
}

// Expected describes a valid figure, for errors.
func (Figure) Expected() string { return figureHelp }

// Words returns the bound in words.
func (f Figure) Words() string { return f.sign(f.Text, "at least ", "at most ") }

// String writes the figure so that UnmarshalText reads it back.
func (f Figure) String() string { return f.Name + f.sign(f.Text, " >= ", " <= ") }

// Text formats a value.
func (Figure) Text(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
