package search

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report"
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
	// Results is the file that points are appended to, and whose points are not played again; empty for none.
	Results string
	// Measures are the names of the measures in the table, empty for the default ones.
	Measures []string
	// Note is called with notes for the user.
	Note func(string)

	slo     record.SLO
	shown   []report.Measure
	digests map[string][]byte // of files that points depend on
}

// MaxReplications bounds how often a scenario is played, maxPoints the combinations of a sweep, and maxPaces the
// combinations whose trace's speed is noted.
const MaxReplications, maxPoints, maxPaces = 1000, 100_000, 20

// Swept are the points of a sweep.
type Swept struct {
	paths        []string
	points       []*Point
	shown        []report.Measure
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

// Sweep plays a sweep. After an interruption it returns the points that were played, and an error.
func (p *Player) Sweep(ctx context.Context, c Sweep) (*Swept, error) {
	var err error
	if c.slo, err = record.ParseSLO(c.SLO); err != nil {
		return nil, exit.Errorf(exit.Usage, "--slo: %w", err)
	}
	if err := CheckReplications(1, c.Replications); err != nil {
		return nil, err
	}
	if c.shown, err = measuresNamed(c.Measures); err != nil {
		return nil, err
	}
	out := &Swept{replications: c.Replications}
	variants, results, err := c.points(out)
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
		if err := out.points[i].play(ctx, p, variants[i], &c); err != nil {
			return err
		}
		return results.add(out.points[i])
	})
	err = errors.Join(err, results.close())
	if ctx.Err() != nil { // print the points that were played
		out.points = slices.DeleteFunc(out.points, func(p *Point) bool { return p.Measures == nil })
	}
	if err != nil && (ctx.Err() == nil || len(out.points) == 0) {
		return nil, err
	}
	if n := len(results.had); n > 0 {
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

// points fills in the points, and opens the results.
func (c *Sweep) points(out *Swept) (variants []Variant, file *results, err error) {
	var combinations [][]scenario.Setting
	if out.paths, combinations, err = c.combinations(); err != nil {
		return nil, nil, err
	}
	variants, out.points = make([]Variant, len(combinations)), make([]*Point, len(combinations))
	inputs, judges := []string{c.Variant.File}, len(c.SLO) > 0
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
		if out.points[i], err = c.point(s, settings); err != nil {
			return nil, nil, err
		}
	}
	if out.shown = c.shown; len(c.Measures) == 0 && judges {
		judged, err := measuresNamed([]string{"goodput", "attainment"})
		if err != nil {
			return nil, nil, err
		}
		out.shown = append(out.shown, judged...)
	}
	file, err = openResults(c.Results, inputs)
	return variants, file, err
}

// Write prints the points as text, json or csv.
func (x *Swept) Write(to io.Writer, form string) error {
	switch form {
	case "json":
		for _, p := range x.points {
			if err := json.NewEncoder(to).Encode(p); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return x.writeCSV(to)
	}
	return x.writeText(to)
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
				next = append(next, append(slices.Clone(before), scenario.Setting{Path: s.Path, Value: v}))
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

// point returns a combination before it is played. Its key is a hash of the scenario's text and files, of the changes
// to it, and of windtunnel's version.
func (c *Sweep) point(s *scenario.Scenario, settings []scenario.Setting) (*Point, error) {
	h := sha256.New()
	flags, err := json.Marshal(c.Variant.Overrides)
	if err != nil {
		return nil, err
	}
	part := func(b []byte) { fmt.Fprintf(h, "%d:%s;", len(b), b) }
	part([]byte(version.Text()))
	part(c.Variant.Text)
	part(flags)
	part(fmt.Append(nil, c.SLO, c.Replications))
	for _, file := range s.Files() {
		sum, err := c.digest(file)
		if err != nil {
			return nil, LoadError(err)
		}
		part(sum)
	}
	p := &Point{Set: map[string]string{}}
	for _, s := range settings {
		p.Set[s.Path] = s.Value
		part([]byte(s.String()))
	}
	p.Key = hex.EncodeToString(h.Sum(nil)[:16])
	return p, nil
}

// digest returns the hash of a file. It reads the file, perhaps a long trace, once.
func (c *Sweep) digest(file string) ([]byte, error) {
	if sum, known := c.digests[file]; known {
		return sum, nil
	}
	f, err := files.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	if c.digests == nil {
		c.digests = map[string][]byte{}
	}
	c.digests[file] = h.Sum(nil)
	return c.digests[file], nil
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

// openResults reads the points in the file, and opens the file for appending. It drops an incomplete last line, whose
// point is played again.
func openResults(path string, inputs []string) (*results, error) {
	x := &results{had: map[string]*Point{}}
	if path == "" {
		return x, nil
	}
	for _, in := range inputs {
		if files.Same(in, path) {
			return nil, exit.Errorf(exit.Usage, "--results %s: this is a file that the sweep reads; choose another",
				path)
		}
	}
	bad := func(line int) error {
		return exit.Errorf(exit.Input, "--results %s:%d: this is not a point of a sweep; expected a file of "+
			"windtunnel sweep --results, or a new file", path, line)
	}
	data, err := files.Read(path, maxResults)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Errorf(exit.Input, "--results: %w", err)
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	for i, line := range bytes.Split(bytes.TrimSuffix(data[:whole], []byte("\n")), []byte("\n")) {
		var p Point
		if whole == 0 {
			break
		}
		if err := json.Unmarshal(line, &p); err != nil || p.Key == "" {
			return nil, bad(i + 1)
		}
		x.had[p.Key] = &p
	}
	if whole == 0 && len(data) > 0 && data[0] != '{' {
		return nil, bad(1)
	}
	if x.f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644); err == nil {
		if err = x.f.Truncate(int64(whole)); err == nil {
			_, err = x.f.Seek(0, io.SeekEnd)
		}
	}
	if err != nil {
		return nil, exit.Errorf(exit.Input, "--results: %w", err)
	}
	return x, nil
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
	text := fmt.Sprintf("%d combinations", len(x.points))
	if len(x.points) == 1 {
		text = "1 combination"
	}
	if x.Sound() {
		return text + ": all requests completed, all runs steady"
	}
	return fmt.Sprintf("%s: %d with requests that did not complete, %d not steady", text, failed, unsteady)
}

func (x *Swept) writeText(to io.Writer) error {
	if _, err := fmt.Fprintln(to, x.verdict()); err != nil {
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, path := range x.paths {
		fmt.Fprintf(w, "%s\t", path)
	}
	for _, m := range x.shown {
		fmt.Fprintf(w, "%s\t", m.Name)
	}
	fmt.Fprintln(w)
	unsure := false
	var steps []string
	for _, p := range x.points {
		if p.StepTimes != "" && !slices.Contains(steps, p.StepTimes) {
			steps = append(steps, p.StepTimes)
		}
		for _, path := range x.paths {
			fmt.Fprintf(w, "%s\t", p.Set[path])
		}
		for _, m := range x.shown {
			fmt.Fprintf(w, "%s\t", p.text(m, &unsure))
		}
		note := ""
		if p.Failed > 0 {
			note = fmt.Sprintf("%d of %d did not complete", p.Failed, p.Requests)
		}
		if !p.Steady {
			note = strings.TrimPrefix(note+", not steady", ", ")
		}
		fmt.Fprintln(w, note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	why := "the run is too short for it, or not steady (--output csv or json have the reason); --replications 10 " +
		"plays several"
	if x.replications > 1 {
		why = "the runs are too short for it (--output csv or json have the number of requests that each needs)"
	}
	var err error
	if unsure {
		_, err = fmt.Fprintln(to, "? has no interval: "+why)
	}
	for _, text := range steps {
		_, err = fmt.Fprintln(to, "step times of "+text)
	}
	return err
}

// text returns a measure with half of its interval.
func (p *Point) text(m report.Measure, unsure *bool) string {
	for _, v := range p.Measures {
		if v.Measure == m.Name {
			*unsure = *unsure || v.Low == nil
			return v.Interval()
		}
	}
	return "-"
}

func (x *Swept) writeCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	head := append(slices.Clone(x.paths), "requests", "failed", "steady", "warm_up_seconds", "measure", "unit", "value",
		"low", "high", "why")
	lines := [][]string{head}
	number := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'f', -1, 64)
	}
	for _, p := range x.points {
		for _, v := range p.Measures {
			var line []string
			for _, path := range x.paths {
				line = append(line, p.Set[path])
			}
			lines = append(lines, append(line, strconv.Itoa(p.Requests), strconv.Itoa(p.Failed),
				strconv.FormatBool(p.Steady), number(&p.WarmUp),
				v.Measure, string(v.Unit), number(&v.Value), number(v.Low), number(v.High), v.Why))
		}
	}
	return w.WriteAll(lines)
}
