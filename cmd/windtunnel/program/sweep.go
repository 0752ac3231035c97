package program

import (
	"bytes"
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

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

type sweepCmd struct {
	loadFlags
	Set          []string `placeholder:"PATH=A,B,…" sep:"none" help:"A field of the scenario and the values that it takes, such as 'pools[0].replicas=2,4,8'. With several of them, every combination is played."`
	SLO          []string `name:"slo" placeholder:"ttft=200ms,tpot=30ms" help:"What makes an answer good: the most that its ttft, tpot and e2e may take. Goodput and attainment are told then."`
	Replications int      `short:"r" default:"1" placeholder:"R" help:"Play each with R seeds."`
	Results      string   `placeholder:"FILE" help:"Write each point to FILE as soon as it is played, one JSON object a line. Points that are there already are not played again, so that a sweep can be stopped and gone on with."`
	Measure      []string `placeholder:"NAME,…" help:"The measures that the table has, such as 'ttft p99' (docs/decide.md). CSV and JSON have all."`
	Output       string   `enum:"text,json,csv" default:"text" placeholder:"text|json|csv" help:"A table for people, one JSON object a line, or CSV."`

	digests map[string][]byte // of files that points depend on
}

func (c *sweepCmd) Help() string {
	return `Plays a scenario in virtual time once for each combination of values, on all cores. Any field can be swept; a path is the one by which mistakes are told, with * for every entry of a list.

Examples:
  windtunnel sweep mine.yaml --set 'pools[0].replicas=2,4,8' --set workload.rate=10,20,40
  windtunnel sweep mine.yaml --set workload.rate=10,20,40 --slo ttft=200ms,tpot=30ms --measure attainment,goodput
  windtunnel sweep mine.yaml --set 'pools[*].modelServer.maxNumSeqs=64,128,256' --results sweep.ndjson --output csv > sweep.csv`
}

// maxPoints is how many combinations a sweep may have, and maxPacesTold of how many the speed of a trace is told.
const maxPoints, maxPacesTold = 100_000, 20

// point is one combination of values and what it came to: a line of the results.
type point struct {
	// Key is of all that the point depends on.
	Key      string            `json:"key"`
	Set      map[string]string `json:"set"`
	Requests int               `json:"requests"`
	// Failed is how many requests did not complete.
	Failed   int               `json:"failed"`
	Steady   bool              `json:"steady"`
	WarmUp   float64           `json:"warmUpSeconds"`
	Measures []report.Measured `json:"measures"`
}

func (c *sweepCmd) Run(o *outside) error {
	slo, err := report.ParseSLO(c.SLO)
	if err != nil {
		return exit.With(exit.Usage, fmt.Errorf("--slo: %w", err))
	}
	if c.Replications < 1 || c.Replications > maxReplications {
		return exit.With(exit.Usage,
			fmt.Errorf("--replications: found %d; expected a whole number, from 1 to %d", c.Replications,
				maxReplications))
	}
	if _, err := c.shown(false); err != nil {
		return err
	}
	v, err := readVariant(o, c.File, &c.changeFlags)
	if err != nil {
		return err
	}
	paths, combinations, err := c.combinations()
	if err != nil {
		return err
	}
	variants, points := make([]variant, len(combinations)), make([]*point, len(combinations))
	var inputs []string
	judges := len(c.SLO) > 0
	for i, settings := range combinations {
		variants[i] = v.with(settings...)
		s, err := variants[i].scenario(0)
		if err != nil {
			return err
		}
		if pace := s.Paced(); pace != "" && i < maxPacesTold {
			fmt.Fprintf(o.Stderr, "windtunnel: note: %s: %s\n", variants[i].Name, pace)
		}
		inputs, judges = append(inputs, s.Files()...), judges || s.Workload.Judges()
		if points[i], err = c.point(variants[i], s, settings); err != nil {
			return err
		}
	}
	shown, err := c.shown(judges)
	if err != nil {
		return err
	}
	results, err := openResults(c.Results, append(inputs, c.File))
	if err != nil {
		return err
	}
	ctx, stop := playing(o)
	defer stop()
	err = each(len(points), func(i int) error {
		if was := results.had[points[i].Key]; was != nil {
			points[i] = was
			return nil
		}
		if err := points[i].play(ctx, variants[i], c.Replications, slo); err != nil {
			return err
		}
		return results.add(points[i])
	})
	err = errors.Join(err, results.close())
	if ctx.Err() != nil { // what was played is told
		points = slices.DeleteFunc(points, func(p *point) bool { return p.Measures == nil })
	}
	if err != nil && (ctx.Err() == nil || len(points) == 0) {
		return err
	}
	if n := len(results.had); n > 0 {
		fmt.Fprintf(o.Stderr, "windtunnel: %s has points already, which were not played again\n", c.Results)
	}
	return errors.Join(err, c.write(o, paths, points, shown))
}

func (c *sweepCmd) write(o *outside, paths []string, points []*point, shown []report.Measure) error {
	switch c.Output {
	case "json":
		for _, p := range points {
			if err := json.NewEncoder(o.Stdout).Encode(p); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return writeCSV(o.Stdout, paths, points)
	}
	return c.writePoints(o.Stdout, paths, points, shown)
}

// shown are the measures that the table has; judges says that something makes an answer good.
func (c *sweepCmd) shown(judges bool) ([]report.Measure, error) {
	names := c.Measure
	if len(names) == 0 {
		names = []string{"requests/s", "output tokens/s", "ttft p50", "ttft p99", "tpot mean", "e2e p50", "e2e p99",
			"hit rate"}
		if judges {
			names = append(names, "goodput", "attainment")
		}
	}
	var out []report.Measure
	for _, name := range names {
		m, ok := report.MeasureNamed(name)
		if !ok {
			return nil, exit.With(exit.Usage,
				fmt.Errorf("--measure: found %q; expected one of %s", name, measureNames()))
		}
		out = append(out, m)
	}
	return out, nil
}

func measureNames() string {
	var names []string
	for _, m := range report.Measures() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// combinations are all of them, the last field changing fastest.
func (c *sweepCmd) combinations() (paths []string, out [][]scenario.Setting, err error) {
	out = [][]scenario.Setting{nil}
	for _, text := range c.Set {
		s, err := scenario.ParseSetting(text)
		if err != nil {
			return nil, nil, exit.With(exit.Usage, fmt.Errorf("--set: %w", err))
		}
		if slices.Contains(paths, s.Path) {
			return nil, nil, exit.With(exit.Usage,
				fmt.Errorf("--set: %s is given twice; give all its values at once, such as %s=1,2,3", s.Path, s.Path))
		}
		paths = append(paths, s.Path)
		values := splitValues(s.Value)
		if len(out)*len(values) > maxPoints {
			return nil, nil, exit.With(exit.Usage,
				fmt.Errorf("--set: found more than %d combinations; expected at most as many", maxPoints))
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

// splitValues splits at commas outside of brackets and quotes.
func splitValues(text string) (out []string) {
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

// point is a combination that is to be played. Its key is of the scenario's text and
// all files that it names, of what is changed in it, and of this windtunnel.
func (c *sweepCmd) point(v variant, s *scenario.Scenario, settings []scenario.Setting) (*point, error) {
	h := sha256.New()
	flags, err := json.Marshal(c.changeFlags)
	if err != nil {
		return nil, err
	}
	part := func(b []byte) { fmt.Fprintf(h, "%d:%s;", len(b), b) }
	part([]byte(version.Text()))
	part(v.text)
	part(flags)
	part(fmt.Append(nil, c.SLO, c.Replications))
	for _, file := range s.Files() {
		sum, err := c.digest(file)
		if err != nil {
			return nil, loadError(err)
		}
		part(sum)
	}
	p := &point{Set: map[string]string{}}
	for _, s := range settings {
		p.Set[s.Path] = s.Value
		part([]byte(s.String()))
	}
	p.Key = hex.EncodeToString(h.Sum(nil)[:16])
	return p, nil
}

// digest is that of a file, which may be a long trace: it is read once.
func (c *sweepCmd) digest(file string) ([]byte, error) {
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

func (p *point) play(ctx context.Context, v variant, replications int, slo report.SLO) error {
	runs := make(report.Runs, replications)
	p.Steady = true
	for r := range runs {
		x, err := v.play(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		runs[r] = x.sample
		p.Requests += x.summary.Requests
		p.Failed += x.summary.Requests - x.summary.Outcomes[flow.Completed]
		p.Steady = p.Steady && x.sample.Steady
		p.WarmUp = max(p.WarmUp, report.Digits(x.sample.Cut.Seconds()))
	}
	p.Measures = runs.Under(slo).All()
	return nil
}

// results are the file that a sweep goes on with.
type results struct {
	mu  sync.Mutex
	f   *os.File
	had map[string]*point
}

// maxResults bounds the file.
const maxResults = 1 << 30

// openResults reads what is there and goes on behind it. A last line that was cut short is
// dropped: its point is played again.
func openResults(path string, inputs []string) (*results, error) {
	x := &results{had: map[string]*point{}}
	if path == "" {
		return x, nil
	}
	for _, in := range inputs {
		if files.Same(in, path) {
			return nil, exit.With(exit.Usage,
				fmt.Errorf("--results %s: this is a file that the sweep reads; choose another", path))
		}
	}
	data, err := files.Read(path, maxResults)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, exit.With(exit.Input, fmt.Errorf("--results: %w", err))
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	for i, line := range bytes.Split(bytes.TrimSuffix(data[:whole], []byte("\n")), []byte("\n")) {
		var p point
		if whole == 0 {
			break
		}
		if err := json.Unmarshal(line, &p); err != nil || p.Key == "" {
			return nil, exit.With(exit.Input,
				fmt.Errorf("--results %s:%d: this is no point of a sweep; expected what windtunnel sweep --results "+
					"wrote, or a new file", path, i+1))
		}
		x.had[p.Key] = &p
	}
	if whole == 0 && len(data) > 0 && data[0] != '{' {
		return nil, exit.With(exit.Input,
			fmt.Errorf("--results %s:1: this is no point of a sweep; expected what windtunnel sweep --results wrote, "+
				"or a new file", path))
	}
	if x.f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644); err == nil {
		if err = x.f.Truncate(int64(whole)); err == nil {
			_, err = x.f.Seek(0, io.SeekEnd)
		}
	}
	if err != nil {
		return nil, exit.With(exit.Input, fmt.Errorf("--results: %w", err))
	}
	return x, nil
}

func (x *results) add(p *point) error {
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

func (c *sweepCmd) writePoints(to io.Writer, paths []string, points []*point, shown []report.Measure) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, path := range paths {
		fmt.Fprintf(w, "%s\t", path)
	}
	for _, m := range shown {
		fmt.Fprintf(w, "%s\t", m.Name)
	}
	fmt.Fprintln(w)
	unsure := false
	for _, p := range points {
		for _, path := range paths {
			fmt.Fprintf(w, "%s\t", p.Set[path])
		}
		for _, m := range shown {
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
	why := "the run is too short for it, or not steady (--output csv or json say which); --replications 10 plays " +
		"several"
	if c.Replications > 1 {
		why = "the runs are too short for it (--output csv or json say how many requests each needs)"
	}
	if unsure {
		_, err := fmt.Fprintln(to, "? has no interval: "+why)
		return err
	}
	return nil
}

// text is a measure with half of its interval.
func (p *point) text(m report.Measure, unsure *bool) string {
	for _, v := range p.Measures {
		if v.Measure == m.Name {
			*unsure = *unsure || v.Low == nil
			return v.Interval()
		}
	}
	return "-"
}

func writeCSV(to io.Writer, paths []string, points []*point) error {
	w := csv.NewWriter(to)
	head := append(slices.Clone(paths), "requests", "failed", "steady", "warm_up_seconds", "measure", "unit", "value",
		"low", "high", "why")
	lines := [][]string{head}
	number := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'f', -1, 64)
	}
	for _, p := range points {
		for _, v := range p.Measures {
			var line []string
			for _, path := range paths {
				line = append(line, p.Set[path])
			}
			lines = append(lines, append(line, strconv.Itoa(p.Requests), strconv.Itoa(p.Failed),
				strconv.FormatBool(p.Steady), number(&p.WarmUp),
				v.Measure, string(v.Unit), number(&v.Value), number(v.Low), number(v.High), v.Why))
		}
	}
	if err := w.WriteAll(lines); err != nil {
		return err
	}
	return w.Error()
}
