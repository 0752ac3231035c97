// Package experiment measures the figures of docs/claims.md again.
//
// An experiment is a file experiments/NAME.yaml. It belongs to one part of the page, from a heading of the first level
// to the next one, and has pieces of the part's text in which {DIGITS: EXPRESSION} stands for a figure. An expression
// (github.com/expr-lang/expr) plays command lines of windtunnel and computes with what they measure. The page has
// the figures of the last time: a test, and windtunnel experiment, compare them with those that are measured now.
package experiment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/internal/cachedir"
)

// Page is the path of the page in the repository.
const Page = "docs/claims.md"

// Experiment measures the figures of one part of the page.
type Experiment struct {
	Name     string            `yaml:"-"`        // of the file, without .yaml
	Title    string            `yaml:"title"`    // one line for lists
	Part     string            `yaml:"part"`     // the heading of the part
	Needs    string            `yaml:"needs"`    // xgboost: nothing plays without the library
	Commands map[string]string `yaml:"commands"` // pieces of command lines, by the names that expressions use
	Sections []Section         `yaml:"sections"`
}

// Section has pieces of the text under one heading of the part. In a piece, {DIGITS: EXPRESSION} is a figure, rounded
// to so many digits (+ before them: with its sign), and {} a figure that another piece measures.
type Section struct {
	Heading string   `yaml:"section"`
	Always  []string `yaml:"always"`  // what make test plays, in seconds altogether
	Nightly []string `yaml:"nightly"` // what takes longer
	Traces  []string `yaml:"traces"`  // files in traces, beside the experiment's scenarios, that the figures need
}

// Link links the traces that the sections need from windtunnel's cache (scripts/traces) into experiments/traces below
// dir. It takes sections out whose traces the cache lacks, all sections with traces if quick, and notes each trace.
func (e *Experiment) Link(getenv func(string) string, dir string, quick bool, note func(text string)) error {
	cache, err := cachedir.Dir(getenv)
	if err != nil {
		return err
	}
	to, kept := filepath.Join(dir, "experiments", "traces"), e.Sections[:0:0]
	for _, s := range e.Sections {
		if quick && len(s.Traces) > 0 {
			continue
		}
		whole := true
		for _, name := range s.Traces {
			from := filepath.Join(cache, "traces", name)
			if _, err := os.Stat(from); err != nil {
				whole = false
				note(from + " is missing, and its figures are those of the page: scripts/traces fetches it")
				continue
			}
			note(from + " is played")
			if err := errors.Join(os.MkdirAll(to, 0o755), os.Symlink(from, filepath.Join(to, name))); err != nil {
				return err
			}
		}
		if whole {
			kept = append(kept, s)
		}
	}
	e.Sections = kept
	return nil
}

// Figure is a number on the page, and the expression that measures it.
type Figure struct {
	Section    string `json:"section"`
	Expression string `json:"expression"`
	Printed    string `json:"page"`
	Measured   string `json:"measured"`

	digits     string
	start, end int // in the page
}

// All returns the experiments in files, sorted by name. An error names the file.
func All(files fs.FS) ([]Experiment, error) {
	names, err := fs.Glob(files, "experiments/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Experiment
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(text, []byte("title:")) {
			continue // a scenario that experiments play
		}
		e := Experiment{Name: strings.TrimSuffix(path.Base(name), ".yaml")}
		in := yaml.NewDecoder(bytes.NewReader(text))
		in.KnownFields(true)
		if err := in.Decode(&e); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// Figures returns the experiment's figures in the order of the page, without values; quick leaves out what takes long.
// An error names the piece of text that the page does not have, or has twice.
func (e *Experiment) Figures(page []byte, quick bool) ([]Figure, error) {
	at := map[int]Figure{}
	first, last := span(page, "# "+e.Part, regexp.MustCompile(`(?m)^# `))
	if first < 0 {
		return nil, fmt.Errorf("%s has no part %q, which experiments/%s.yaml names", Page, e.Part, e.Name)
	}
	for _, s := range e.Sections {
		from, to := first, last // of the part's own heading
		if s.Heading != e.Part {
			if from, to = span(page[first:last], s.Heading, regexp.MustCompile(`(?m)^#+ `)); from < 0 {
				return nil, fmt.Errorf("%s: the part %q has no section %q, which experiments/%s.yaml names",
					Page, e.Part, s.Heading, e.Name)
			}
			from, to = first+from, first+to
		}
		pieces := s.Always
		if !quick {
			pieces = slices.Concat(pieces, s.Nightly)
		}
		for _, piece := range pieces {
			pattern, expressions := pieceOf(piece)
			found := pattern.FindAllSubmatchIndex(page[from:to], -1)
			if len(found) != 1 {
				return nil, fmt.Errorf("%s: %q has %d places that read %q; expected one", Page, s.Heading, len(found),
					piece)
			}
			for i, x := range expressions {
				digits, expression, ok := strings.Cut(x, ":")
				if x == "" {
					continue
				}
				if !ok {
					return nil, fmt.Errorf("experiments/%s.yaml: found {%s}; expected {DIGITS: EXPRESSION}", e.Name, x)
				}
				start, end := from+found[0][2+2*i], from+found[0][3+2*i]
				at[start] = Figure{Section: s.Heading, Expression: strings.TrimSpace(expression), digits: digits,
					Printed: string(page[start:end]), start: start, end: end}
			}
		}
	}
	return slices.SortedFunc(maps.Values(at), func(a, b Figure) int { return cmp.Compare(a.start, b.start) }), nil
}

// Rewrite returns the page with the measured figures.
func Rewrite(page []byte, figures []Figure) []byte {
	var out []byte
	end := 0
	for _, f := range figures {
		out = append(append(out, page[end:f.start]...), f.Measured...)
		end = f.end
	}
	return append(out, page[end:]...)
}

// Text returns the experiment's part of the page, with its heading.
func (e *Experiment) Text(page []byte) []byte {
	from, to := span(page, "# "+e.Part, regexp.MustCompile(`(?m)^# `))
	if from < 0 {
		return nil
	}
	return slices.Concat([]byte("# "+e.Part), page[from:to])
}

// span returns where the text under a heading starts and ends, or -1. next finds the heading that ends it.
func span(page []byte, heading string, next *regexp.Regexp) (from, to int) {
	at := regexp.MustCompile(`(?m)^#* ?` + regexp.QuoteMeta(heading) + `$`).FindIndex(page)
	if at == nil {
		return -1, -1
	}
	if end := next.FindIndex(page[at[1]:]); end != nil {
		return at[1], at[1] + end[0]
	}
	return at[1], len(page)
}

var (
	inBraces = regexp.MustCompile(`\{([^{}]*)\}`)
	gaps     = regexp.MustCompile(`\s+`)
)

// pieceOf returns the pattern by which a piece is found in a page, whose groups are its figures, and the figures'
// texts in braces. Lines may break anywhere.
func pieceOf(piece string) (pattern *regexp.Regexp, figures []string) {
	var p strings.Builder
	literal := func(s string) { p.WriteString(gaps.ReplaceAllString(regexp.QuoteMeta(s), `\s+`)) }
	piece, end := strings.TrimSpace(piece), 0
	for _, at := range inBraces.FindAllStringSubmatchIndex(piece, -1) {
		literal(piece[end:at[0]])
		p.WriteString(`([+−-]?[0-9][0-9,]*(?:\.[0-9]+)?)`)
		figures = append(figures, piece[at[2]:at[3]])
		end = at[1]
	}
	literal(piece[end:])
	return regexp.MustCompile(p.String()), figures
}
