package objects

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits on what one Set reads.
const (
	MaxFileBytes = 4 << 20
	MaxObjects   = 20000
	maxDepth     = 64
	maxField     = 120     // characters of a field's path in an error
	maxFaults    = 100     // errors of one file, and warnings
	maxValues    = 1 << 20 // visited YAML values of one file, aliases included
)

// Error is a fault in an object: where, what, and what was expected.
type Error struct {
	File   string
	Line   int
	Object string // "InferencePool default/sim-pool"; "" before it is known
	Field  string // "spec.targetPorts[0].number"
	Msg    string
}

// Error is "pool.yaml:7: InferencePool default/a: spec.selector: …".
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	if e.Object != "" {
		b.WriteString(e.Object + ": ")
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// reader collects what is wrong and what is odd in one file.
type reader struct {
	file     string
	object   string
	errs     []error
	warnings []string
	left     int
}

// value is a place in the file. The zero node is a field that is not there:
// reading it gives zero values.
type value struct {
	r     *reader
	n     *yaml.Node
	line  int
	field string
}

var errTooMuch = errors.New("too many values")

func (r *reader) at(n *yaml.Node, field string, line int) value {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n != nil {
		line = n.Line
		if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			n = nil // as absent
		}
	}
	if r.left--; r.left < 0 {
		panic(errTooMuch) // caught in Set.Add
	}
	return value{r, n, line, field}
}

func (v value) given() bool { return v.n != nil }

func (v value) fail(format string, args ...any) {
	if len(v.r.errs) < maxFaults {
		v.r.errs = append(v.r.errs, v.fault(format, args))
	}
}

func (v value) warn(format string, args ...any) {
	if len(v.r.warnings) < maxFaults {
		v.r.warnings = append(v.r.warnings, v.fault(format, args).Error())
	}
}

func (v value) fault(format string, args []any) *Error {
	field := v.field
	if len(field) > maxField {
		field = field[:maxField] + "…"
	}
	return &Error{v.r.file, v.line, v.r.object, field, fmt.Sprintf(format, args...)}
}

// is checks the node's kind; absent is false without a complaint.
func (v value) is(kind yaml.Kind, name string) bool {
	if !v.given() {
		return false
	}
	if v.n.Kind != kind {
		v.fail("expected %s, got %s", name, kindName(v.n))
		return false
	}
	return true
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}

// pair is one entry of a mapping.
type pair struct {
	key string
	value
}

func (v value) pairs() (out []pair) {
	if !v.is(yaml.MappingNode, "a mapping") {
		return nil
	}
	for i := 0; i+1 < len(v.n.Content); i += 2 {
		key := v.n.Content[i].Value
		out = append(out, pair{key, v.r.at(v.n.Content[i+1], join(v.field, key), v.n.Content[i].Line)})
	}
	return out
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// unique complains about keys that are set twice anywhere in an object. It
// also ends at aliases that contain themselves.
func (v value) unique(depth int) {
	if !v.given() {
		return
	}
	if depth > maxDepth {
		v.fail("nested deeper than %d levels", maxDepth)
		return
	}
	if v.n.Kind == yaml.SequenceNode {
		for _, e := range v.list() {
			e.unique(depth + 1)
		}
	}
	if v.n.Kind != yaml.MappingNode {
		return
	}
	seen := map[string]bool{}
	for _, p := range v.pairs() {
		if seen[p.key] {
			p.fail("the key is set twice")
		}
		seen[p.key] = true
		p.unique(depth + 1)
	}
}

// fields reads a mapping whose keys have meanings. Each known key is handed to
// its function; other keys are warned about.
func (v value) fields(known map[string]func(value)) {
	for _, p := range v.pairs() {
		if read, ok := known[p.key]; ok {
			read(p.value)
		} else {
			p.warn("unknown field, ignored")
		}
	}
}

// get is one entry of a mapping whose other keys do not matter.
func (v value) get(name string) value {
	for _, p := range v.pairs() {
		if p.key == name {
			return p.value
		}
	}
	return value{v.r, nil, v.line, join(v.field, name)}
}

func (v value) list() (out []value) {
	if !v.is(yaml.SequenceNode, "a list") {
		return nil
	}
	for i, n := range v.n.Content {
		out = append(out, v.r.at(n, fmt.Sprintf("%s[%d]", v.field, i), v.line))
	}
	return out
}

func (v value) text() string {
	if !v.is(yaml.ScalarNode, "a string") {
		return ""
	}
	if v.n.Tag != "!!str" && v.n.Tag != "!!timestamp" {
		v.fail("expected a string, got %s; put it in quotes", v.n.Value)
		return ""
	}
	return v.n.Value
}

// oneOf reads a string out of a few; absent is the first.
func (v value) oneOf(words ...string) string {
	if !v.given() {
		return words[0]
	}
	s := v.text()
	for _, w := range words {
		if s == w {
			return s
		}
	}
	v.fail("expected one of %s, got %q", strings.Join(words, ", "), s)
	return words[0]
}

// number reads a whole number between low and high; absent is otherwise.
func (v value) number(low, high, otherwise int64) int64 {
	if !v.is(yaml.ScalarNode, "a whole number") {
		return otherwise
	}
	n, err := strconv.ParseInt(v.n.Value, 10, 64)
	if v.n.Tag != "!!int" || err != nil || n < low || n > high {
		v.fail("expected a whole number from %d to %d, got %s", low, high, v.n.Value)
		return otherwise
	}
	return n
}

func (v value) float() float64 {
	if !v.is(yaml.ScalarNode, "a number") {
		return 0
	}
	f, err := strconv.ParseFloat(v.n.Value, 64)
	if (v.n.Tag != "!!int" && v.n.Tag != "!!float") || err != nil || !(f >= 0) || f > 1e300 {
		v.fail("expected a number that is not negative, got %s", v.n.Value)
		return 0
	}
	return f
}

func (v value) flag() bool {
	if !v.is(yaml.ScalarNode, "true or false") {
		return false
	}
	if v.n.Tag != "!!bool" {
		v.fail("expected true or false, got %s", v.n.Value)
	}
	return v.n.Value == "true"
}

func (v value) texts() map[string]string {
	if !v.given() {
		return nil
	}
	out := map[string]string{}
	for _, p := range v.pairs() {
		out[p.key] = p.text()
	}
	return out
}

func (v value) textList() (out []string) {
	for _, e := range v.list() {
		out = append(out, e.text())
	}
	return out
}
