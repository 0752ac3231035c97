package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes is how many values a scenario may have with its aliases written
// out: a few kilobytes of aliases to aliases would otherwise fill the memory.
const maxNodes = 200_000

// maxProblems is how many mistakes are told at once.
const maxProblems = 50

// decoder reads a YAML document into the scenario's types. It goes on after a
// mistake, so that a person sees all of them.
type decoder struct {
	file     string
	problems Problems
	where    map[string]position
	lines    []string
	nodes    int
	aliases  map[*yaml.Node]bool // those being read, to see a loop
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, where: map[string]position{}, aliases: map[*yaml.Node]bool{}}
}

func (d *decoder) document(data []byte, into *Scenario) {
	d.lines = strings.Split(string(data), "\n")
	reader := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := reader.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		d.problems = append(d.problems, Problem{File: d.file, Line: 1, Column: 1, Found: "the file is empty",
			Expected: "apiVersion: " + Version + ", kind: " + Kind, Hint: "`windtunnel scenario show` prints one to start from"})
		return
	case err != nil:
		d.syntax(err)
		return
	}
	var next yaml.Node
	if err := reader.Decode(&next); !errors.Is(err, io.EOF) {
		if err != nil {
			d.syntax(err)
			return
		}
		d.add(&next, "", "a second document after ---", "one scenario per file")
	}
	d.value(doc.Content[0], "", reflect.ValueOf(into).Elem(), "")
	if d.nodes > maxNodes {
		d.problems = Problems{{File: d.file, Line: 1, Column: 1, Found: "too many values",
			Expected: fmt.Sprintf("at most %d, aliases written out", maxNodes)}}
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// syntax tells what the YAML library says in this package's own form.
func (d *decoder) syntax(err error) {
	p := Problem{File: d.file, Line: 1, Column: 1, Found: err.Error(), Expected: "YAML"}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.Line = max(p.Line, 1)
		p.Found = "not YAML: " + m[2]
		if strings.Contains(m[2], "cannot start any token") {
			p.Hint = "indent with spaces, not with tabs"
		}
	}
	d.problems = append(d.problems, p)
}

func (d *decoder) add(n *yaml.Node, path, found, expected string) {
	d.hint(n, path, found, expected, "")
}

func (d *decoder) hint(n *yaml.Node, path, found, expected, hint string) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, Problem{File: d.file, Line: n.Line, Column: n.Column, Path: path, Found: found, Expected: expected, Hint: hint})
	}
}

// defaulter is a section that has default values of its own.
type defaulter interface{ defaults() }

// value reads one node into v. The tag holds the field's limits.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if d.nodes++; d.nodes > maxNodes {
		return
	}
	if n.Kind == yaml.AliasNode {
		if d.aliases[n.Alias] {
			d.add(n, path, "the alias *"+n.Value+" contains itself", "an alias of something that ends")
			return
		}
		d.aliases[n.Alias] = true
		defer delete(d.aliases, n.Alias)
		n = n.Alias
	}
	if path != "" {
		if _, ok := d.where[path]; !ok {
			d.where[path] = position{n.Line, n.Column}
		}
	}
	switch {
	case v.Type() == reflect.TypeFor[PickerConfig]():
		d.pickerConfig(n, path, v.Addr().Interface().(*PickerConfig))
	case isSection(v.Type()):
		d.section(n, path, v)
	case v.Kind() == reflect.Slice:
		d.list(n, path, v, tag)
	default:
		d.leaf(n, path, v, tag)
	}
}

// section reads a mapping into a struct.
func (d *decoder) section(n *yaml.Node, path string, v reflect.Value) {
	if s, ok := v.Addr().Interface().(defaulter); ok {
		s.defaults()
	}
	fields := fieldsOf(v.Type())
	for _, f := range fields { // a section that is left out has defaults too
		if isSection(v.Field(f.index).Type()) {
			setDefaults(v.Field(f.index))
		}
	}
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.add(n, path, "found "+describe(n), "a mapping with "+names(fields))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		at := strings.TrimPrefix(path+"."+name, ".")
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			d.add(key, path, "found "+describe(key)+" as a field's name", "one of "+names(fields))
			continue
		}
		if line, twice := seen[name]; twice {
			d.add(key, at, fmt.Sprintf("given twice, first on line %d", line), "each field once")
			continue
		}
		seen[name] = key.Line
		index := -1
		for _, f := range fields {
			if f.name == name {
				index = f.index
			}
		}
		if index < 0 {
			d.unknown(key, at, fields)
			continue
		}
		d.value(value, at, v.Field(index), v.Type().Field(index).Tag)
	}
}

func (d *decoder) unknown(key *yaml.Node, path string, fields []field) {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.name
	}
	hint := ""
	if guess := nearest(key.Value, known); guess != "" {
		hint = fmt.Sprintf("did you mean %q?", guess)
	} else if at := homes(key.Value); len(at) > 0 {
		hint = fmt.Sprintf("%q belongs in %s", key.Value, strings.Join(at, " or "))
	}
	d.hint(key, path, "unknown field", "one of "+names(fields), hint)
}

func (d *decoder) list(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.add(n, path, "found "+describe(n), "a list (lines that begin with -)")
		return
	}
	if most, _ := strconv.Atoi(tag.Get("max")); len(n.Content) > most {
		d.add(n, path, fmt.Sprintf("found %d entries", len(n.Content)), fmt.Sprintf("at most %d", most))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, fmt.Sprintf("%s[%d]", path, i), out.Index(i), "")
	}
	v.Set(out)
}
