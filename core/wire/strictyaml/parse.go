package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of what is read, whatever the file is.
const (
	// MaxBytes is the largest text, unless Options say less.
	MaxBytes = 4 << 20
	// maxNodes is how many values there may be with aliases written out: a few
	// kilobytes of aliases to aliases would otherwise fill the memory.
	maxNodes = 1 << 20
	maxDepth = 100
	// maxKept is how many mistakes, and how many warnings, a document keeps; of
	// what a hostile file has beyond that nobody reads a word.
	maxKept = 1000
)

// Options say what a text is and how it is read.
type Options struct {
	// File is its name in messages.
	File string
	// MaxBytes is the largest text; 0 is the package's own limit.
	MaxBytes int
	// Kubernetes reads as Kubernetes' own tools do, which know YAML 1.1 and JSON:
	// merge keys; yes, no, on and off as truth values; nothing as a field that is
	// left out; 1e3 as a whole number; a date as text; of several documents the
	// first, with a warning.
	Kubernetes bool
	// Many allows several documents. Otherwise there is one.
	Many bool
	// WarnUnknown makes an unknown field a warning, not a mistake: the file may
	// have been written for a newer version.
	WarnUnknown bool
	// Prepare, when given, gets a pointer to each struct that Decode makes before
	// it is read: the place for defaults.
	Prepare func(any)
}

// Document is a text that was read.
type Document struct {
	// Values are its documents, without empty ones.
	Values []Value

	o        Options
	text     []byte
	problems Problems
	warnings []string
}

// Root returns the first document; where there is none, a Value that is not given.
func (d *Document) Root() Value {
	if len(d.Values) == 0 {
		return Value{doc: d, line: 1, column: 1, kubernetes: d.o.Kubernetes}
	}
	return d.Values[0]
}

// Problems returns the mistakes that were found while reading so far.
func (d *Document) Problems() Problems { return d.problems }

// Warnings are what is odd, but harmless.
func (d *Document) Warnings() []string { return d.warnings }

func (d *Document) fail(p Problem) {
	if d != nil && len(d.problems) < maxKept {
		d.problems = append(d.problems, p)
	}
}

func (d *Document) warn(p Problem) {
	if d != nil && len(d.warnings) < maxKept {
		d.warnings = append(d.warnings, p.Error())
	}
}

// Parse reads a text. An error, which is Problems, says that it is no YAML or
// beyond a limit.
func Parse(text []byte, o Options) (*Document, error) {
	d := &Document{o: o, text: text}
	if limit := cmp.Or(o.MaxBytes, MaxBytes); len(text) > limit {
		return nil, Problems{{File: o.File, Found: fmt.Sprintf("found %d bytes", len(text)),
			Expected: fmt.Sprintf("at most %d", limit)}}
	}
	reader := yaml.NewDecoder(bytes.NewReader(text))
	m := measure{d: d, left: maxNodes, open: map[*yaml.Node]bool{}}
	for {
		var doc yaml.Node
		err := reader.Decode(&doc)
		first := o.Kubernetes && !o.Many && len(d.Values) > 0 // and of the rest nobody reads a word
		switch {
		case errors.Is(err, io.EOF):
			return d, nil
		case first:
			p := Problem{File: o.File, Line: doc.Line, Column: doc.Column, Found: "a second document after ---",
				Expected: "one per file", Hint: "only the first is read"}
			if err != nil {
				p.Line, p.Column = d.syntax(err)[0].Line, 1
			}
			d.warn(p)
			return d, nil
		case err != nil:
			return nil, d.syntax(err)
		case len(doc.Content) == 0:
			continue
		case !o.Many && len(d.Values) > 0:
			d.fail(Problem{File: o.File, Line: doc.Line, Column: doc.Column, Found: "a second document after ---",
				Expected: "one per file"})
			return d, nil
		}
		root := doc.Content[0]
		if !m.walk(root, 0) {
			return nil, Problems{m.problem}
		}
		d.Values = append(d.Values, d.value(root, "", o.Kubernetes))
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// syntax returns what the YAML library says in this package's own form.
func (d *Document) syntax(err error) Problems {
	p := Problem{File: d.o.File, Line: 1, Column: 1, Found: err.Error(), Expected: "YAML"}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.Line = max(p.Line, 1)
		p.Found = "not YAML: " + m[2]
		if strings.Contains(m[2], "cannot start any token") {
			p.Hint = "indent with spaces, not with tabs"
		}
	}
	return Problems{p}
}

// measure walks once over everything with aliases written out, so that whoever
// walks there later need not count.
type measure struct {
	d       *Document
	left    int
	open    map[*yaml.Node]bool // aliases on the way, to see a loop
	problem Problem
}

func (m *measure) walk(n *yaml.Node, depth int) bool {
	refuse := func(found, expected string) bool {
		m.problem = Problem{File: m.d.o.File, Line: max(n.Line, 1), Column: max(n.Column, 1), Found: found,
			Expected: expected}
		return false
	}
	if m.left--; m.left < 0 {
		return refuse("too many values", fmt.Sprintf("at most %d, aliases written out", maxNodes))
	}
	if depth >= maxDepth {
		return refuse("too deep", fmt.Sprintf("at most %d levels", maxDepth))
	}
	if n.Kind == yaml.AliasNode {
		if m.open[n.Alias] {
			return refuse("the alias *"+n.Value+" contains itself", "an alias of something that ends")
		}
		m.open[n.Alias] = true
		defer delete(m.open, n.Alias)
		return m.walk(n.Alias, depth+1)
	}
	for i, c := range n.Content {
		if !m.walk(c, depth+1) {
			return false
		}
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Tag == mergeTag && !mergeable(c) {
			n = c
			return refuse("found "+describe(resolve(c), resolve(c).Tag), "a mapping to merge, or a list of some")
		}
	}
	return true
}

const mergeTag = "!!merge"

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// mergeable reports whether << may point at a node.
func mergeable(n *yaml.Node) bool {
	n = resolve(n)
	for _, c := range n.Content {
		if n.Kind == yaml.SequenceNode && resolve(c).Kind != yaml.MappingNode {
			return false
		}
	}
	return n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode
}
