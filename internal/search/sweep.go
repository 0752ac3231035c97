package search

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/table"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

// Sweep says which combinations of values of a scenario's fields are played.
type Sweep struct {
	// Variant is the scenario. Vary are fields with their values, such as workload.rate=10,20.
	Variant Variant
	Vary    []string
	// SLO are bounds in the form of record.ParseSLO.
	SLO          []string
	Replications int
	Division
	// Measures are the names of the measures in the table, empty for the default ones.
	Measures []string
	// Note is called with notes for the user.
	Note func(string)

	slo   record.SLO
	shown []report.Measure
	keys  keys
}

// MaxReplications bounds how often a scenario is played, maxPoints the combinations of a sweep, and maxPaces the
// combinations whose trace's speed is noted.
const MaxReplications, maxPoints, maxPaces = 1000, 100_000, 20

// Swept are the points of a sweep.
type Swept struct {
	paths        []string
	points       []*Point
	shown        []report.Measure
	chosen       bool // the user has chosen the measures
	replications int
}

// Point is the result of one combination of values, a line of the results.
type Point struct {
	// Key is a hash of everything that the point depends on.
	Key      string            `json:"key"`
	Set      map[string]string `json:"set"`
	Requests int               `json:"requests"`
	// Failed counts requests that did not complete.
	Failed   int               `json:"failed"`
	Steady   bool              `json:"steady"`
	WarmUp   float64           `json:"warmUpSeconds"`
	Measures []report.Measured `json:"measures"`
	// StepTimes is the expected error of the step times, in words.
	StepTimes string `json:"stepTimes,omitempty"`
}

// Check returns how many combinations there are and the files that they read, or an error for a mistake.
func (c *Sweep) Check() (combinations int, inputs []string, err error) {
	out, _, inputs, err := c.prepare()
	if err != nil {
		return 0, nil, err
	}
	return len(out.points), inputs, nil
}

func (c *Sweep) prepare() (out *Swept, variants []Variant, inputs []string, err error) {
	if c.slo, err = record.ParseSLO(c.SLO); err != nil {
		return nil, nil, nil, exit.Errorf(exit.Usage, "--slo: %w", err)
	}
	if err := CheckReplications(1, c.Replications); err != nil {
		return nil, nil, nil, err
	}
	if c.shown, err = measuresNamed(c.Measures); err != nil {
		return nil, nil, nil, err
	}
	out = &Swept{replications: c.Replications, chosen: len(c.Measures) > 0}
	variants, inputs, err = c.points(out)
	return out, variants, inputs, cmp.Or(err, c.Division.check())
}

// Sweep plays a sweep. After an interruption it returns the points that were played, and an error.
func (p *Player) Sweep(ctx context.Context, c Sweep) (*Swept, error) {
	out, variants, inputs, err := c.prepare()
	if err != nil {
		return nil, err
	}
	results, err := c.open(inputs)
	if err != nil {
		return nil, err
	}
	done := p.Counter("combinations", len(out.points))
	err = Each(len(out.points), func(i int) error {
		defer done()
		if was := results.had[out.points[i].Key]; was != nil {
			out.points[i] = was
			return nil
		}
		if c.Collect {
			return nil
		}
		if err := out.points[i].play(ctx, p, variants[i], &c); err != nil {
			return err
		}
		p.row(variants[i].Name + ": " + out.points[i].words(out.needed()))
		return results.add(out.points[i])
	})
	err = errors.Join(err, results.close())
	all := len(out.points)
	if ctx.Err() != nil || c.Collect { // print the points that were played
		out.points = slices.DeleteFunc(out.points, func(p *Point) bool { return p.Measures == nil })
	}
	if n := all - len(out.points); c.Collect && n > 0 {
		return out, exit.Errorf(exit.Failed, "%d of %s are not in %s; without --collect, windtunnel plays them", n,
			terminal.Counted(all, "combination"), c.Results)
	}
	if err != nil && (ctx.Err() == nil || len(out.points) == 0) {
		return nil, err
	}
	if c.Share.Of > 0 && err == nil {
		err = rows(c.file()+".parquet", out.columns(), out.rows)
	}
	if n := len(results.had); n > 0 && !c.Collect {
		c.Note(c.Results + " has points already, which were not played again")
	}
	return out, err
}

// CheckReplications returns an error unless least <= n <= MaxReplications.
func CheckReplications(least, n int) error {
	if n < least || n > MaxReplications {
		return exit.Errorf(exit.Usage, "--replications: found %d; expected a whole number, from %d to %d", n, least,
			MaxReplications)
	}
	return nil
}

// points fills in the points of the share, and returns their variants and the files that they read.
func (c *Sweep) points(out *Swept) (variants []Variant, inputs []string, err error) {
	var combinations [][]scenario.Setting
	if out.paths, combinations, err = c.combinations(); err != nil {
		return nil, nil, err
	}
	if i := -1; c.Share.Of > 0 {
		combinations = slices.DeleteFunc(combinations, func([]scenario.Setting) bool {
			i++
			return i%c.Share.Of != c.Share.Index
		})
	}
	variants, out.points = make([]Variant, len(combinations)), make([]*Point, len(combinations))
	judges := len(c.SLO) > 0
	inputs = []string{c.Variant.File}
	for i, settings := range combinations {
		variants[i] = c.Variant.With(settings...)
		s, err := variants[i].Scenario(0)
		if err != nil {
			return nil, nil, err
		}
		if pace := s.Paced(); pace != "" && i < maxPaces {
			c.Note(variants[i].Name + ": " + pace)
		}
		inputs, judges = append(inputs, s.Files()...), judges || s.Workload.Judges()
		if out.points[i], err = c.point(&variants[i], s, settings); err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(inputs)
	if out.shown = c.shown; len(c.Measures) == 0 && judges {
		judged, err := measuresNamed([]string{"goodput", "attainment"})
		if err != nil {
			return nil, nil, err
		}
		out.shown = append(out.shown, judged...)
	}
	return variants, slices.Compact(inputs), nil
}

// Write prints the points as text, json, csv or parquet. Text has lines of at most so many columns; 0 columns are no
// limit.
func (x *Swept) Write(to io.Writer, form string, columns int) error {
	switch form {
	case "json":
		for _, p := range x.points {
			if err := json.NewEncoder(to).Encode(p); err != nil {
				return err
			}
		}
		return nil
	case "csv", "parquet":
		w := table.CSV(to, x.columns())
		if form == "parquet" {
			w = table.Parquet(to, x.columns())
		}
		x.rows(w)
		return w.Close()
	}
	return x.writeText(to, columns)
}

// measuresNamed returns the measures with these names, or the default ones.
func measuresNamed(names []string) (out []report.Measure, err error) {
	if len(names) == 0 {
		names = []string{"requests/s", "output tokens/s", "ttft p50", "ttft p99", "tpot mean", "e2e p50", "e2e p99",
			"hit rate"}
	}
	for _, name := range names {
		m, ok := report.MeasureNamed(name)
		if !ok {
			var all []string
			for _, m := range report.Measures() {
				all = append(all, m.Name)
			}
			return nil, exit.Errorf(exit.Usage, "--measure: found %q; expected one of %s", name,
				strings.Join(all, ", "))
		}
		out = append(out, m)
	}
	return out, nil
}

// combinations returns all combinations. The last field changes fastest.
func (c *Sweep) combinations() (paths []string, out [][]scenario.Setting, err error) {
	out = [][]scenario.Setting{nil}
	for _, text := range c.Vary {
		s, err := scenario.ParseSetting(text)
		if err != nil {
			return nil, nil, exit.Errorf(exit.Usage, "--vary: %w", err)
		}
		if slices.Contains(paths, s.Path) {
			return nil, nil, exit.Errorf(exit.Usage, "--vary: %s is given twice; give all its values at once, such "+
				"as %s=1,2,3", s.Path, s.Path)
		}
		paths = append(paths, s.Path)
		values := SplitValues(s.Value)
		if len(out)*len(values) > maxPoints {
			return nil, nil, exit.Errorf(exit.Usage, "--vary: found more than %d combinations; expected at most as "+
				"many", maxPoints)
		}
		var next [][]scenario.Setting
		for _, before := range out {
			for _, v := range values {
				next = append(next, append(slices.Clone(before), scenario.Setting{Path: s.Path, Value: v,
					By: "--vary " + s.Path + "=" + v}))
			}
		}
		out = next
	}
	return paths, out, nil
}

// SplitValues splits at commas outside of brackets and quotes.
func SplitValues(text string) (out []string) {
	depth, quote, from := 0, rune(0), 0
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth--
		case r == ',' && depth <= 0:
			out = append(out, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(out, strings.TrimSpace(text[from:]))
}

// point returns a combination before it is played. Its key is a hash of all that its result depends on.
func (c *Sweep) point(v *Variant, s *scenario.Scenario, settings []scenario.Setting) (p *Point, err error) {
	p = &Point{Set: map[string]string{}}
	for _, s := range settings {
		p.Set[s.Path] = s.Value
	}
	p.Key, err = c.keys.of(v, s, c.SLO, c.Replications)
	return p, err
}

func (p *Point) play(ctx context.Context, with *Player, v Variant, c *Sweep) error {
	runs := make(report.Runs, c.Replications)
	p.Steady = true
	for r := range runs {
		x, err := with.Variant(ctx, &v, r)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		runs[r] = x.Sample
		p.Requests += x.Summary.Requests
		p.Failed += x.Summary.Requests - x.Summary.Outcomes[record.Completed]
		p.Steady = p.Steady && x.Sample.Steady
		p.StepTimes = cmp.Or(p.StepTimes, report.StepErrorOf(x.Sample.Load).Text)
		p.WarmUp = max(p.WarmUp, report.Digits(x.Sample.Cut.Seconds()))
	}
	p.Measures = runs.Under(c.slo).All()
	return nil
}

// results is the file that a sweep continues.
type results struct {
	mu  sync.Mutex
	f   *os.File
	had map[string]*Point
}

// maxResults bounds the file, in bytes.
const maxResults = 1 << 30

// open reads the points in the results, and opens the file for appending, with the ending .ndjson in a directory. It
// drops an incomplete last line, whose point is played again. A share reads its own file only.
func (c *Sweep) open(inputs []string) (x *results, err error) {
	x = &results{had: map[string]*Point{}}
	path, own := c.Results, []string{c.Results}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if path = c.file() + ".ndjson"; c.Share.Of == 0 {
			if own, err = filepath.Glob(filepath.Join(c.Results, "*.ndjson")); err != nil {
				return nil, exit.Errorf(exit.Usage, "--results: %w", err)
			}
		} else {
			own = []string{path}
		}
	}
	if path == "" {
		return x, nil
	}
	for _, in := range inputs {
		if files.Same(in, path) {
			return nil, exit.Errorf(exit.Usage, "--results %s: this is a file that the sweep reads; choose another",
				path)
		}
	}
	whole := int64(0) // of the file that is appended to
	for _, name := range own {
		n, err := x.read(name)
		if err != nil {
			return nil, err
		}
		if name == path {
			whole = n
		}
	}
	if c.Collect {
		return x, nil
	}
	if x.f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644); err == nil {
		if err = x.f.Truncate(whole); err == nil {
			_, err = x.f.Seek(0, io.SeekEnd)
		}
	}
	if err != nil {
		return nil, exit.Errorf(exit.Input, "--results: %w", err)
	}
	return x, nil
}

// read adds the points of a file, and returns the length of its complete lines.
func (x *results) read(path string) (int64, error) {
	bad := func(line int) error {
		return exit.Errorf(exit.Input, "--results %s:%d: this is not a point of a sweep; expected a file of "+
			"windtunnel sweep --results, or a new file", path, line)
	}
	data, err := files.Read(path, maxResults)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, exit.Errorf(exit.Input, "--results: %w", err)
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	for i, line := range bytes.Split(bytes.TrimSuffix(data[:whole], []byte("\n")), []byte("\n")) {
		var p Point
		if whole == 0 {
			break
		}
		if err := json.Unmarshal(line, &p); err != nil || p.Key == "" {
			return 0, bad(i + 1)
		}
		x.had[p.Key] = &p
	}
	if whole == 0 && len(data) > 0 && data[0] != '{' {
		return 0, bad(1)
	}
	return int64(whole), nil
}

func (x *results) add(p *Point) error {
	if x.f == nil {
		return nil
	}
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	_, err = x.f.Write(append(line, '\n'))
	return err
}

func (x *results) close() error {
	if x.f == nil {
		return nil
	}
	return x.f.Close()
}

// Sound reports whether every combination is steady and has completed all of its requests.
func (x *Swept) Sound() bool {
	return !slices.ContainsFunc(x.points, func(p *Point) bool { return p.Failed > 0 || !p.Steady })
}

// verdict returns how many combinations can be relied on.
func (x *Swept) verdict() string {
	failed, unsteady := 0, 0
	for _, p := range x.points {
		if p.Failed > 0 {
			failed++
		}
		if !p.Steady {
			unsteady++
		}
	}
	text := terminal.Counted(len(x.points), "combination")
	if x.Sound() {
		return text + ": all requests completed, all runs steady"
	}
	return fmt.Sprintf("%s: %d with requests that did not complete, %d not steady", text, failed, unsteady)
}

// column is a column of the table: a field or a measure, and its value in each row.
type column struct {
	name  string
	cells []string
}

// width returns the columns of a terminal that a column takes.
func (c *column) width() int {
	n := terminal.Columns(c.name)
	for _, cell := range c.cells {
		n = max(n, terminal.Columns(cell))
	}
	return n
}

// leftOut is the order in which the default measures leave a table that is too wide.
var leftOut = []string{"hit rate", "output tokens/s", "e2e p50", "ttft p50", "requests/s", "tpot mean", "e2e p99",
	"goodput", "attainment"}

// needed returns the measures that stay longest in a table.
func (x *Swept) needed() (out []report.Measure) {
	for _, m := range x.shown {
		if x.chosen || !slices.Contains(leftOut[:5], m.Name) {
			out = append(out, m)
		}
	}
	return out
}

// table returns the columns that fit, and lines about the others. A table that is too wide loses the columns with one
// value in all rows, then the leading parts of fields, then measures.
func (x *Swept) table(columns int) (fields, measures []column, about []string) {
	for _, path := range x.paths {
		c := column{name: path}
		for _, p := range x.points {
			c.cells = append(c.cells, p.Set[path])
		}
		fields = append(fields, c)
	}
	for _, m := range x.shown {
		c := column{name: m.Name}
		for _, p := range x.points {
			c.cells = append(c.cells, p.text(m))
		}
		measures = append(measures, c)
	}
	notes := column{}
	for _, p := range x.points {
		notes.cells = append(notes.cells, p.note())
	}
	wide := func() bool {
		n := notes.width()
		for _, c := range slices.Concat(fields, measures) {
			n += c.width() + 2
		}
		return columns > 0 && n > columns
	}
	if wide() && len(x.points) > 1 {
		var same []string
		lift := func(c column) bool {
			if slices.ContainsFunc(c.cells, func(cell string) bool { return cell != c.cells[0] }) {
				return false
			}
			same = append(same, c.name+" "+c.cells[0])
			return true
		}
		fields, measures = slices.DeleteFunc(fields, lift), slices.DeleteFunc(measures, lift)
		if same != nil {
			about = append(about, "in all: "+strings.Join(same, ", "))
		}
	}
	if wide() {
		shorten(fields)
	}
	var gone []string
	for next := 0; wide() && len(measures) > 1; next++ {
		i := len(measures) - 1
		if !x.chosen && next < len(leftOut) {
			i = slices.IndexFunc(measures, func(c column) bool { return c.name == leftOut[next] })
		}
		if i >= 0 {
			gone = append(gone, measures[i].name)
			measures = slices.Delete(measures, i, i+1)
		}
	}
	if gone != nil {
		about = append(about, "left out: "+strings.Join(gone, ", ")+" (--measure chooses, --output csv has all)")
	}
	return fields, append(measures, notes), about
}

// shorten leaves the last parts of fields' paths, as many as distinguish them.
func shorten(fields []column) {
	for i := range fields {
		parts := strings.Split(fields[i].name, ".")
		for n := 1; n < len(parts); n++ {
			short := strings.Join(parts[len(parts)-n:], ".")
			if !slices.ContainsFunc(fields, func(c column) bool {
				return c.name != fields[i].name && (c.name == short || strings.HasSuffix(c.name, "."+short))
			}) {
				fields[i].name = short
				break
			}
		}
	}
}

func (x *Swept) writeText(to io.Writer, columns int) error {
	fields, measures, about := x.table(columns)
	lines := append([]string{x.verdict()}, about...)
	table := slices.Concat(fields, measures)
	for row := range len(x.points) + 1 { // the names first
		var b strings.Builder
		for i, c := range table {
			cell := c.name
			if row > 0 {
				cell = c.cells[row-1]
			}
			if i < len(table)-1 { // the last one is the notes
				fmt.Fprintf(&b, "%*s%s  ", c.width()-terminal.Columns(cell), "", cell)
				continue
			}
			b.WriteString(cell)
		}
		lines = append(lines, b.String())
	}
	why := "the run is too short or unsteady for it (--output csv or json have the reason); --replications 10 " +
		"plays several"
	if x.replications > 1 {
		why = "the runs are too short for it (--output csv or json have the number of requests that each needs)"
	}
	if slices.ContainsFunc(x.points, func(p *Point) bool { return p.unsure(x.shown) }) {
		lines = append(lines, "? has no interval: "+why)
	}
	for _, p := range x.points {
		if text := "step times of " + p.StepTimes; p.StepTimes != "" && !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	for _, line := range lines {
		if terminal.Columns(line) > columns {
			line = terminal.Wrap(line, 2, columns)
		}
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	return nil
}

// note returns what a reader of the point has to know first, "" for nothing.
func (p *Point) note() string {
	var out []string
	if p.Failed > 0 {
		out = append(out, fmt.Sprintf("%d of %d did not complete", p.Failed, p.Requests))
	}
	if !p.Steady {
		out = append(out, "not steady")
	}
	return strings.Join(out, ", ")
}

// words returns measures in one line.
func (p *Point) words(shown []report.Measure) string {
	var out []string
	for _, m := range shown {
		out = append(out, m.Name+" "+p.text(m))
	}
	if note := p.note(); note != "" {
		out = append(out, note)
	}
	return strings.Join(out, ", ")
}

// of returns a measure of the point, nil without it.
func (p *Point) of(m report.Measure) *report.Measured {
	if i := slices.IndexFunc(p.Measures, func(v report.Measured) bool { return v.Measure == m.Name }); i >= 0 {
		return &p.Measures[i]
	}
	return nil
}

// text returns a measure with half of its interval.
func (p *Point) text(m report.Measure) string {
	if v := p.of(m); v != nil {
		return v.Interval()
	}
	return "-"
}

// unsure reports whether one of these measures has no interval.
func (p *Point) unsure(shown []report.Measure) bool {
	return slices.ContainsFunc(shown, func(m report.Measure) bool { v := p.of(m); return v != nil && v.Low == nil })
}

// columns returns those of rows.
func (x *Swept) columns() (out []table.Column) {
	for _, path := range x.paths {
		out = append(out, table.Column{Name: path})
	}
	return slices.Concat(out, []table.Column{{Name: "requests", Kind: table.Whole}, {Name: "failed", Kind: table.Whole},
		{Name: "steady"}, {Name: "warm_up_seconds", Kind: table.Decimal, Digits: table.Exact}}, measureColumns)
}

// rows writes a row for each measure of each point.
func (x *Swept) rows(to table.Writer) {
	for _, p := range x.points {
		var of []table.Value
		for _, path := range x.paths {
			of = append(of, table.Of(p.Set[path]))
		}
		of = append(of, table.Number(float64(p.Requests)), table.Number(float64(p.Failed)),
			table.Of(strconv.FormatBool(p.Steady)), table.Number(p.WarmUp))
		for i := range p.Measures {
			to.Write(slices.Concat(of, measureCells(&p.Measures[i])))
		}
	}
}
