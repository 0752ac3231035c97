package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is a position in a document, with the node there. A Value that is not given, such as an omitted field, reads as
// a zero value, and a mistake about it has the position of the enclosing value. The zero Value has no position at all.
//
// Methods that read note a mistake in the Document (Document.Problems) and continue with a zero value.
type Value struct {
	doc          *Document
	node         *yaml.Node // never an alias; nil where the value is not given
	path         string
	line, column int
	kubernetes   bool
	fold         bool
}

// value returns a node with its position.
func (d *Document) value(n *yaml.Node, path string, kubernetes bool) Value {
	v := Value{doc: d, path: path, kubernetes: kubernetes, node: resolve(n), line: n.Line, column: n.Column}
	if n.Kind != yaml.AliasNode && v.line == 0 { // a document with only ---
		v.line, v.column = 1, 1
	}
	return v
}

// below returns a node inside v.
func (v Value) below(n *yaml.Node, path string) Value {
	out := v.doc.value(n, path, v.kubernetes)
	out.fold = v.fold
	return out
}

// absent returns a field of v that is not given.
func (v Value) absent(path string) Value {
	v.node, v.path = nil, path
	return v
}

// Kubernetes returns the value, from here on read with Options.Kubernetes, inside a file without that option.
func (v Value) Kubernetes() Value {
	v.kubernetes = true
	return v
}

// Fold returns the value with field names in any case, as encoding/json matches them. An exact name takes precedence.
func (v Value) Fold() Value {
	v.fold = true
	return v
}

// Named returns the value with another path in messages. Field names are appended to that path.
func (v Value) Named(path string) Value {
	v.path = path
	return v
}

// Given reports whether the file has a value other than null here.
func (v Value) Given() bool { return v.node != nil && v.tag() != "!!null" }

// File returns the name of the file, for messages.
func (v Value) File() string {
	if v.doc == nil {
		return ""
	}
	return v.doc.o.File
}

// Line returns the value's line, from 1.
func (v Value) Line() int { return v.line }

// Path returns the field's path, such as pools[0].name.
func (v Value) Path() string { return v.path }

// Problem returns a mistake at this position.
func (v Value) Problem(found, expected, hint string) Problem {
	p := Problem{File: v.File(), Line: v.line, Column: v.column, Path: strings.TrimSuffix(v.path, ": "), Found: found,
		Expected: expected, Hint: hint}
	if len(p.Path) > maxPath {
		p.Path = strings.ToValidUTF8(p.Path[:maxPath], "") + "…"
	}
	return p
}

const maxPath = 200

// Fail notes a mistake at this position.
func (v Value) Fail(found, expected, hint string) { v.doc.fail(v.Problem(found, expected, hint)) }

// Note adds the result of Decode or ProblemsOf to the document's mistakes.
func (v Value) Note(list Problems) {
	for _, p := range list {
		v.doc.fail(p)
	}
}

// Warn notes a warning at this position.
func (v Value) Warn(found, expected, hint string) { v.doc.warn(v.Problem(found, expected, hint)) }

// ProblemsOf returns an error as problems: its own where it is Problems or a Problem, otherwise one with the error's
// text. A problem without a position gets this one.
func (v Value) ProblemsOf(err error) Problems {
	var list Problems
	var one Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &list):
		return list
	case !errors.As(err, &one):
		return Problems{v.Problem(err.Error(), "", "")}
	case one.Line == 0:
		one = v.Problem(one.Found, one.Expected, one.Hint)
	}
	return Problems{one}
}

// Found returns a description of the value, such as "found 3" or "missing".
func (v Value) Found() string {
	if v.node == nil {
		return "missing"
	}
	return "found " + describe(v.node, v.tag())
}

// tag returns the type of a scalar. It knows YAML 1.1's words where the options allow them.
func (v Value) tag() string {
	n := v.node
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	if v.kubernetes && n.Style == 0 && n.Tag == "!!str" &&
		slices.Contains([]string{"y", "yes", "on", "n", "no", "off"}, strings.ToLower(n.Value)) {
		return "!!bool"
	}
	return n.Tag
}

// describe returns a description of a node, for "found …".
func describe(n *yaml.Node, tag string) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	text := n.Value
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:57], "") + "..."
	}
	switch tag {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "the number " + text
	case "!!bool":
		return "the truth value " + text
	case mergeTag:
		return "a merge key (<<)"
	}
	return strconv.Quote(text)
}

// Pair is one entry of a mapping.
type Pair struct {
	Name string
	Key  Value // the key's position
	Value
}

// entries returns the entries of a mapping, including those that it merges.
func (v Value) entries() []Pair {
	if v.node == nil || v.node.Kind != yaml.MappingNode {
		return nil
	}
	var out, merged []Pair
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, value := v.node.Content[i], v.node.Content[i+1]
		if v.kubernetes && key.Tag == mergeTag {
			from := v.below(value, v.path)
			if merged = append(merged, from.entries()...); from.node.Kind == yaml.SequenceNode {
				for _, n := range from.node.Content {
					merged = append(merged, v.below(n, v.path).entries()...)
				}
			}
			continue
		}
		path := join(v.path, key.Value)
		out = append(out, Pair{key.Value, v.below(key, path), v.below(value, path)})
	}
	if merged == nil {
		return out
	}
	own := map[string]bool{}
	for _, p := range out {
		own[p.Name] = true
	}
	for _, p := range merged {
		if !own[p.Name] {
			own[p.Name] = true
			out = append(out, p)
		}
	}
	return out
}

func join(path, name string) string {
	if path == "" || strings.HasSuffix(path, ": ") {
		return path + name
	}
	return path + "." + name
}

// is reports whether the value is of this kind, and notes a mistake where it is of another. A value that is not given
// is neither.
func (v Value) is(kind yaml.Kind, name string) bool {
	if !v.Given() {
		return false
	}
	if v.node.Kind != kind {
		v.Fail(v.Found(), name, "")
		return false
	}
	return true
}

const (
	aMapping = "a mapping"
	aList    = "a list (lines that begin with -)"
)

// IsMapping reports whether the file has a mapping here.
func (v Value) IsMapping() bool { return v.Given() && v.node.Kind == yaml.MappingNode }

// IsList reports whether the file has a list here.
func (v Value) IsList() bool { return v.Given() && v.node.Kind == yaml.SequenceNode }

// Pairs returns the entries of a mapping, and notes a mistake where the value is no mapping.
func (v Value) Pairs() []Pair {
	if !v.is(yaml.MappingNode, aMapping) {
		return nil
	}
	return v.entries()
}

// Fields reads a mapping with known keys: it passes each value to its key's function. Other keys are mistakes, or
// warnings with Options.WarnUnknown.
func (v Value) Fields(known map[string]func(Value)) {
	for _, p := range v.Pairs() {
		read, ok := known[p.Name]
		switch {
		case ok:
			read(p.Value)
		case v.doc.o.WarnUnknown:
			p.Key.Warn("unknown field", "", "it is ignored"+and(DidYouMean(p.Name, keys(known))))
		default:
			p.Key.Fail("unknown field", "one of "+strings.Join(keys(known), ", "), DidYouMean(p.Name, keys(known)))
		}
	}
}

func and(hint string) string {
	if hint != "" {
		hint = "; " + hint
	}
	return hint
}

func keys(known map[string]func(Value)) []string { return slices.Sorted(maps.Keys(known)) }

// Mapping returns the value itself, and notes a mistake where it is given and no mapping.
func (v Value) Mapping() Value {
	v.is(yaml.MappingNode, aMapping)
	return v
}

// Get returns one entry of a mapping and ignores the other keys. Where several keys are equal, it returns the last, as
// encoding/json does. For a value that is no mapping, it returns an entry that is not given and notes no mistake.
func (v Value) Get(name string) Value {
	out, exact := v.absent(join(v.path, name)), false
	for _, p := range v.entries() {
		if p.Name == name || v.fold && !exact && strings.EqualFold(p.Name, name) {
			out, exact = p.Value, p.Name == name
		}
	}
	return out
}

// At returns the value at a path below this one, such as plugins[2].parameters. Missing steps give a value that is not
// given.
func (v Value) At(path string) Value {
	at := v
	for path != "" {
		path = strings.TrimPrefix(path, ".")
		end := strings.IndexAny(path[1:], ".[") + 1
		end = cmp.Or(end, len(path))
		step := path[:end]
		path = path[end:]
		if digits, is := strings.CutPrefix(step, "["); is {
			i, err := strconv.Atoi(strings.TrimSuffix(digits, "]"))
			if err == nil && at.node != nil && at.node.Kind == yaml.SequenceNode && i >= 0 && i < len(at.node.Content) {
				at = at.below(at.node.Content[i], at.path+step)
			} else {
				at = at.absent(at.path + step)
			}
			continue
		}
		at = at.Get(step)
	}
	return at
}

// Text returns a text that is not from a file.
func Text(s string) Value {
	return Value{node: &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}}
}

// With returns a mapping with additional entries. They take precedence over its own entries of the same names. A given
// value that is no mapping stays the same.
func (v Value) With(more ...Pair) Value {
	if v.Given() && !v.IsMapping() {
		return v
	}
	out := v
	out.node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: v.line, Column: v.column}
	for _, p := range append(slices.DeleteFunc(v.entries(), func(own Pair) bool {
		return slices.ContainsFunc(more, func(p Pair) bool { return p.Name == own.Name })
	}), more...) {
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: p.Name, Line: p.Key.line, Column: p.Key.column}
		out.node.Content = append(out.node.Content, key, p.node)
	}
	return out
}

// List returns the entries of a list.
func (v Value) List() (out []Value) {
	if !v.is(yaml.SequenceNode, aList) {
		return nil
	}
	for i, n := range v.node.Content {
		out = append(out, v.below(n, fmt.Sprintf("%s[%d]", v.path, i)))
	}
	return out
}

// CheckKeys notes duplicate keys, here or below.
func (v Value) CheckKeys() {
	if v.node == nil {
		return
	}
	if v.node.Kind == yaml.SequenceNode {
		for _, e := range v.List() {
			e.CheckKeys()
		}
	}
	first := map[string]int{}
	for _, p := range v.entries() {
		if line := first[p.Name]; line > 0 {
			p.Key.Fail(twice(line), "each field once", "")
		} else {
			first[p.Name] = p.Key.line
		}
		p.CheckKeys()
	}
}

func twice(line int) string { return fmt.Sprintf("given twice, first on line %d", line) }

const quotes = "put it in quotes if it is meant as text"

// Text returns a text, or "" where none is given.
func (v Value) Text() (s string) {
	v.Note(v.Decode(&s))
	return s
}

// IsText reports whether the file has a text here, and not a number.
func (v Value) IsText() bool {
	t := v.tag()
	return t == "!!str" || v.kubernetes && t == "!!timestamp" // JSON has no dates
}

// Scalar returns a scalar as written, whatever its type. It returns "" where no scalar is given.
func (v Value) Scalar() string {
	if !v.Given() || v.node.Kind != yaml.ScalarNode {
		return ""
	}
	return v.node.Value
}

// OneOf returns one of these words. It returns the first where none is given.
func (v Value) OneOf(words ...string) string {
	s := v.Text()
	if !v.Given() || !v.IsText() {
		return words[0]
	}
	if !slices.Contains(words, s) {
		v.Fail(v.Found(), Words(words), DidYouMean(s, words))
		return words[0]
	}
	return s
}

// Int returns a whole number from low to high, or otherwise where none is given.
func (v Value) Int(low, high, otherwise int64) int64 {
	expected := fmt.Sprintf("a whole number from %d to %d", low, high)
	if !v.is(yaml.ScalarNode, expected) {
		return otherwise
	}
	n, ok := v.integer()
	if !ok || n < low || n > high {
		v.Fail(v.Found(), expected, "")
		return otherwise
	}
	return n
}

// integer reads a scalar as a whole number.
func (v Value) integer() (int64, bool) {
	text, base := strings.ReplaceAll(v.node.Value, "_", ""), 10
	if v.kubernetes {
		base = 0
	}
	if n, err := strconv.ParseInt(text, base, 64); err == nil && v.tag() == "!!int" {
		return n, true
	}
	f, ok := v.number()
	return int64(f), v.kubernetes && ok && f == math.Trunc(f) && math.Abs(f) < 1<<63
}

// number reads a scalar as a finite number.
func (v Value) number() (f float64, ok bool) {
	t := v.tag()
	ok = (t == "!!int" || t == "!!float") && v.node.Decode(&f) == nil
	return f, ok && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// Float returns a number that is not negative, or 0 where none is given.
func (v Value) Float() float64 {
	const expected = "a number that is not negative"
	if !v.is(yaml.ScalarNode, expected) {
		return 0
	}
	f, ok := v.number()
	if !ok || f < 0 || f > 1e300 {
		v.Fail(v.Found(), expected, "")
		return 0
	}
	return f
}

// Bool returns true or false. It returns false where none is given.
func (v Value) Bool() (b bool) {
	v.Note(v.Decode(&b))
	return b
}

func (v Value) truth() (b, ok bool) {
	return slices.Contains([]string{"true", "yes", "y", "on"}, strings.ToLower(v.node.Value)), v.tag() == "!!bool"
}

// Texts returns a mapping of texts to texts, or nil where none is given.
func (v Value) Texts() map[string]string {
	if !v.Given() {
		return nil
	}
	out := map[string]string{}
	for _, p := range v.Pairs() {
		out[p.Name] = p.Text()
	}
	return out
}

// TextList reads a list whose entries are texts. An entry of another type is a mistake.
func (v Value) TextList() (out []string) {
	for _, e := range v.List() {
		out = append(out, e.Text())
	}
	return out
}

// Any returns the value in Go's own types: map[string]any, []any, string, bool, int, float64 and YAML's others. It
// returns nil where none is given.
func (v Value) Any() any {
	switch {
	case !v.Given():
		return nil
	case v.node.Kind == yaml.MappingNode:
		out := map[string]any{}
		for _, p := range v.entries() {
			out[p.Name] = p.Any()
		}
		return out
	case v.node.Kind == yaml.SequenceNode:
		out := []any{}
		for _, e := range v.List() {
			out = append(out, e.Any())
		}
		return out
	case v.tag() == "!!bool":
		b, _ := v.truth()
		return b
	case v.IsText():
		return v.node.Value
	}
	var out any
	if v.node.Decode(&out) != nil {
		return v.node.Value
	}
	return out
}

// Inert is the type of a known field without effect. Reading the field notes a warning.
type Inert struct{}

// ReadYAML implements Reader.
func (Inert) ReadYAML(v Value) Problems {
	v.Warn("it has no effect here", "", "")
	return nil
}
