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

// Limits for every file.
const (
	// MaxBytes is the largest text, unless Options set a lower limit.
	MaxBytes = 4 << 20
	// maxNodes limits the values, with aliases written out. A few kilobytes of aliases to aliases could otherwise fill
	// the memory.
	maxNodes = 1 << 20
	maxDepth = 100
	// maxKept limits the mistakes, and the warnings, that a document keeps. A hostile file could have more, and nothing
	// needs them.
	maxKept = 1000
)

// Options describe a text and how to read it.
type Options struct {
	// File is the name of the text in messages.
	File string
	// MaxBytes is the largest text in bytes; 0 is the package's own limit.
	MaxBytes int
	// Kubernetes reads like Kubernetes' own tools, which accept YAML 1.1 and JSON: merge keys; yes, no, on and off as
	// booleans; an empty value as an omitted field; 1e3 as a whole number; a date as text. Of several documents it
	// reads the first, with a warning.
	Kubernetes bool
	// Many allows several documents. Without it, only one is allowed.
	Many bool
	// WarnUnknown makes an unknown field a warning, not a mistake, because the file may be for a newer version.
	WarnUnknown bool
	// Prepare, if not nil, gets a pointer to each struct before Decode fills it. It sets defaults.
	Prepare func(any)
}

// Document is a parsed text.
type Document struct {
	// Values are the text's documents, without empty ones.
	Values []Value

	o        Options
	text     []byte
	problems Problems
	warnings []string
}

// Root returns the first document, or a Value that is not given where there is none.
func (d *Document) Root() Value {
	if len(d.Values) == 0 {
		return Value{doc: d, line: 1, column: 1, kubernetes: d.o.Kubernetes}
	}
	return d.Values[0]
}

// Problems returns the mistakes found so far.
func (d *Document) Problems() Problems { return d.problems }

// Warnings returns the harmless oddities found so far.
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

// Parse parses a text. The error, a Problems, says that the text is not YAML or exceeds a limit.
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
		first := o.Kubernetes && !o.Many && len(d.Values) > 0 // the other documents stay unread
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

// syntax returns the YAML library's error as problems.
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

// measure walks once over all values with aliases written out and counts them, so that later walks need not.
type measure struct {
	d       *Document
	left    int
	open    map[*yaml.Node]bool // the aliases on the way, to find a loop
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

// mergeable reports whether << may point to a node.
func mergeable(n *yaml.Node) bool {
	n = resolve(n)
	for _, c := range n.Content {
		if n.Kind == yaml.SequenceNode && resolve(c).Kind != yaml.MappingNode {
			return false
		}
	}
	return n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode
}
