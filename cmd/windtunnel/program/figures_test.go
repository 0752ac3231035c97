package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/expr-lang/expr"
	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// figuresSection is a part of testdata/figures.yaml: what one section of a page prints.
// Each text is a piece of the section in which {DIGITS: EXPRESSION} stands for a figure, and {}
// for a figure that another text has.
type figuresSection struct {
	Page    string   `yaml:"page"`
	Section string   `yaml:"section"` // its heading
	Needs   string   `yaml:"needs"`   // xgboost: the section is left out where the library is missing
	Always  []string `yaml:"always"`  // what make test plays
	Nightly []string `yaml:"nightly"` // what make test-nightly plays besides
}

// TestFiguresOfPages compares the figures that pages print with what the commands in
// testdata/figures.yaml measure, and with -update rewrites the pages. The race detector makes
// simulations several times slower and has nothing to find in them: under it, too, a few play.
func TestFiguresOfPages(t *testing.T) {
	text, err := os.ReadFile("testdata/figures.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Commands map[string]string `yaml:"commands"`
		Sections []figuresSection  `yaml:"sections"`
	}
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&file); err != nil {
		t.Fatalf("testdata/figures.yaml: %v", err)
	}
	measured := newMeasured(file.Commands)
	for _, s := range file.Sections {
		texts := s.Always
		if nightly.On() && !raced {
			texts = slices.Concat(s.Always, s.Nightly)
		}
		if len(texts) == 0 {
			continue
		}
		t.Run(s.Section, func(t *testing.T) {
			if s.Needs == "xgboost" {
				library(t)
			}
			compareFigures(t, s, texts, measured)
		})
	}
}

// compareFigures compares these texts of a section with the page, or rewrites the page.
func compareFigures(t *testing.T, s figuresSection, texts []string, measured *measured) {
	path := filepath.Join(repository, s.Page)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		from, to := sectionOf(page, s.Section)
		if from < 0 {
			t.Fatalf("%s has no section %q, which testdata/figures.yaml names", s.Page, s.Section)
		}
		pattern, expressions := figurePattern(text)
		found := pattern.FindAllSubmatchIndex(page[from:to], -1)
		if len(found) != 1 {
			t.Errorf("%s: %q has %d places that read %q; expected one", s.Page, s.Section, len(found), text)
			continue
		}
		for i := len(expressions) - 1; i >= 0; i-- { // from the end on: earlier places stay where they are
			if expressions[i] == "" {
				continue
			}
			start, end := from+found[0][2+2*i], from+found[0][3+2*i]
			got, err := measured.figure(expressions[i])
			switch {
			case err != nil:
				t.Errorf("%s: %q: {%s}: %v", s.Page, s.Section, expressions[i], err)
			case got == string(page[start:end]):
			case *update:
				t.Logf("%s: %q: %s → %s in %q", s.Page, s.Section, page[start:end], got, text)
				page = slices.Concat(page[:start], []byte(got), page[end:])
			default:
				t.Errorf("%s: %q prints %s; found %s in\n  %s\nRewrite the page with: WINDTUNNEL_NIGHTLY=all "+
					"go test ./cmd/windtunnel/program -run TestFiguresOfPages -update", s.Page, s.Section,
					page[start:end], got, text)
			}
		}
	}
	if *update {
		if err := os.WriteFile(path, page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// sectionOf returns where a section of a page starts and ends: from its heading to the next one.
func sectionOf(page []byte, heading string) (from, to int) {
	at := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(heading) + `$`).FindIndex(page)
	if at == nil {
		return -1, -1
	}
	if next := regexp.MustCompile(`(?m)^#+ `).FindIndex(page[at[1]:]); next != nil {
		return at[1], at[1] + next[0]
	}
	return at[1], len(page)
}

var inBraces = regexp.MustCompile(`\{([^{}]*)\}`)

// figurePattern returns the pattern by which a text is found in a page, whose groups are its
// figures, and the expressions of these figures. Lines may break anywhere.
func figurePattern(text string) (pattern *regexp.Regexp, expressions []string) {
	var p strings.Builder
	literal := func(s string) {
		p.WriteString(regexp.MustCompile(`\s+`).ReplaceAllString(regexp.QuoteMeta(s), `\s+`))
	}
	text, end := strings.TrimSpace(text), 0
	for _, at := range inBraces.FindAllStringSubmatchIndex(text, -1) {
		literal(text[end:at[0]])
		p.WriteString(`([+−-]?[0-9][0-9,]*(?:\.[0-9]+)?)`)
		expressions = append(expressions, text[at[2]:at[3]])
		end = at[1]
	}
	literal(text[end:])
	return regexp.MustCompile(p.String()), expressions
}

// measured plays commands, each once, and evaluates expressions over what they measure.
type measured struct {
	env    map[string]any
	played map[string]any
}

// newMeasured returns a measured whose expressions know these commands by name, and
// sim, compare, steps, checks and highestRate, which play command lines.
func newMeasured(commands map[string]string) *measured {
	m := &measured{env: map[string]any{}, played: map[string]any{}}
	for name, words := range commands {
		m.env[name] = words
	}
	m.env["sim"] = m.once("sim", simulated)
	m.env["compare"] = m.once("compare", comparedRuns)
	m.env["steps"] = m.once("steps", engineSteps)
	m.env["checks"] = m.once("checks", predictionChecks)
	m.env["highestRate"] = m.once("highestRate", highestRate)
	return m
}

// once returns a function that joins parts of a command line and plays each line once.
func (m *measured) once(name string, play func(args []string) (any, error)) func(parts ...string) (any, error) {
	return func(parts ...string) (any, error) {
		line := strings.Join(parts, " ")
		key := name + " " + line
		if out, ok := m.played[key]; ok {
			return out, nil
		}
		args := words(line)
		for i, a := range args {
			if strings.HasPrefix(a, "examples/") {
				args[i] = filepath.Join(repository, a)
			}
		}
		out, err := play(args)
		if err == nil {
			m.played[key] = out
		}
		return out, err
	}
}

// figure evaluates DIGITS: EXPRESSION and returns the number as pages print it: rounded to so
// many digits, with commas between thousands. A + before DIGITS prints the sign.
func (m *measured) figure(text string) (string, error) {
	format, expression, found := strings.Cut(text, ":")
	digits, err := strconv.Atoi(strings.TrimPrefix(format, "+"))
	if !found || err != nil {
		return "", fmt.Errorf("found %q; expected DIGITS: EXPRESSION", text)
	}
	program, err := expr.Compile(expression, expr.Env(m.env))
	if err != nil {
		return "", err
	}
	out, err := expr.Run(program, m.env)
	if err != nil {
		return "", err
	}
	value, ok := out.(float64)
	if n, whole := out.(int); whole {
		value, ok = float64(n), true
	}
	if !ok || math.IsNaN(value) || math.IsInf(value, 0) {
		return "", fmt.Errorf("found %v; expected a number", out)
	}
	return printedNumber(value, digits, strings.HasPrefix(format, "+")), nil
}

func printedNumber(value float64, digits int, signed bool) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(math.Abs(value), 'f', digits, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	switch {
	case value < 0:
		return "−" + whole
	case signed:
		return "+" + whole
	}
	return whole
}

// lines plays a command and hands each line of its JSON output to a function. An expectation
// that the run misses is no error: tables show such runs, too.
func lines(args []string, each func(line []byte) error) error {
	reader, writer := io.Pipe()
	var stderr bytes.Buffer
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = writer, &stderr, false, 0
	var code int
	var done sync.WaitGroup
	done.Go(func() {
		code = run(append(slices.Clone(args), "--output", "json"), o)
		writer.Close()
	})
	in := bufio.NewScanner(reader)
	in.Buffer(nil, 64<<20)
	var err error
	for in.Scan() && err == nil {
		err = each(in.Bytes())
	}
	if err == nil {
		err = in.Err()
	}
	reader.CloseWithError(err)
	done.Wait()
	if err == nil && code != int(exit.OK) && code != int(exit.Failed) {
		err = fmt.Errorf("windtunnel %s: exit code %d: %s", strings.Join(args, " "), code, &stderr)
	}
	return err
}

// simulated returns the summary of a simulation, with spans and measures by name.
func simulated(args []string) (any, error) {
	var last []byte
	err := lines(append([]string{"sim"}, args...), func(line []byte) error {
		last = append(last[:0], line...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out struct {
		Summary map[string]any `json:"summary"`
	}
	if err := json.Unmarshal(last, &out); err != nil || out.Summary == nil {
		return nil, fmt.Errorf("windtunnel sim %s: no summary: %w", strings.Join(args, " "), err)
	}
	byName(out.Summary, "spans", "name")
	byName(out.Summary, "measures", "measure")
	return out.Summary, nil
}

// comparedRuns returns the first comparison of windtunnel compare, with its measures by name.
func comparedRuns(args []string) (any, error) {
	var text bytes.Buffer
	err := lines(append([]string{"compare"}, args...), func(line []byte) error {
		text.Write(line)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out struct {
		Comparisons []map[string]any `json:"comparisons"`
	}
	if err := json.Unmarshal(text.Bytes(), &out); err != nil || len(out.Comparisons) == 0 {
		return nil, fmt.Errorf("windtunnel compare %s: no comparison: %w", strings.Join(args, " "), err)
	}
	byName(out.Comparisons[0], "measures", "measure")
	return out.Comparisons[0], nil
}

// byName replaces a field's list of objects by a map from the value of their field name.
func byName(of map[string]any, field, name string) {
	list, _ := of[field].([]any)
	named := map[string]any{}
	for _, e := range list {
		if object, ok := e.(map[string]any); ok {
			named[fmt.Sprint(object[name])] = object
		}
	}
	of[field] = named
}

// engineSteps returns the details of each step of the engines.
func engineSteps(args []string) (any, error) {
	var out []any
	err := lines(append([]string{"sim"}, args...), func(line []byte) error {
		if !bytes.Contains(line, []byte(`"step":"`+string(record.EngineStep)+`"`)) {
			return nil
		}
		var e struct{ Details map[string]any }
		err := json.Unmarshal(line, &e)
		out = append(out, e.Details)
		return err
	})
	return out, err
}

// predictionChecks returns each comparison of a prediction with what a request took: the request's
// number, when, the endpoint, and for ttft and tpot prediction / truth - 1.
func predictionChecks(args []string) (any, error) {
	var out []any
	err := lines(append([]string{"sim"}, args...), func(line []byte) error {
		if !bytes.Contains(line, []byte(`"step":"`+string(record.PredictionChecked)+`"`)) {
			return nil
		}
		var e struct {
			Time     float64
			Request  string
			Endpoint string
			Details  map[string]float64
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		n, err := strconv.Atoi(e.Request[strings.LastIndexByte(e.Request, '-')+1:])
		if err != nil {
			return err
		}
		check := map[string]any{"number": n, "at": e.Time, "endpoint": e.Endpoint}
		for _, name := range []string{"ttft", "tpot"} {
			was, is := e.Details[name+"_ms"], e.Details["predicted_"+name+"_ms"] // a prediction may be 0
			if was == 0 {
				return fmt.Errorf("%s has no %s: %s", e.Request, name, line)
			}
			check[name] = is/was - 1
		}
		out = append(out, check)
		return nil
	})
	return out, err
}

// highestRate returns the highest whole rate a second, up to 100, at which 99 % of the requests
// keep the objectives of the scenario (attainment).
func highestRate(args []string) (any, error) {
	low, high := 0, 101
	for high-low > 1 {
		rate := (low + high) / 2
		out, err := simulated(append(slices.Clone(args), "--rate", strconv.Itoa(rate)))
		if err != nil {
			return nil, err
		}
		measures, _ := out.(map[string]any)["measures"].(map[string]any)
		attainment, _ := measures["attainment"].(map[string]any)
		kept, ok := attainment["value"].(float64)
		if !ok {
			return nil, fmt.Errorf("windtunnel sim %s: no attainment", strings.Join(args, " "))
		}
		if kept >= .99 {
			low = rate
		} else {
			high = rate
		}
	}
	return low, nil
}
