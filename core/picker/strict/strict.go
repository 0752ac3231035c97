// Package strict decodes YAML into Go structs and refuses what it does not
// know, naming line and field. encoding/json's and yaml's own decoders either
// lose the line or accept what nobody meant.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits on documents that come from outside.
const (
	MaxBytes = 4 << 20
	maxDepth = 64
	maxNodes = 1 << 20
)

// Error is a fault in a document: where, what, and what was expected.
type Error struct {
	Line  int    // from 1; 0 when unknown
	Field string // "plugins[2].parameters.threshold"
	Msg   string
}

// Error is "line 3: field: message".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// At makes an Error at a node.
func At(n *yaml.Node, field, format string, args ...any) error {
	line := 0
	if n != nil {
		line = n.Line
	}
	return &Error{line, field, fmt.Sprintf(format, args...)}
}

// Scalar is implemented by types that read themselves from a YAML scalar
// (quantities, durations).
type Scalar interface{ FromScalar(text string) error }

// Parse reads one YAML document and returns its root node, nil when it is
// empty. Anchors are refused where they would grow without bound.
func Parse(data []byte) (*yaml.Node, error) {
	if len(data) > MaxBytes {
		return nil, &Error{Msg: fmt.Sprintf("%d bytes are more than the %d allowed", len(data), MaxBytes)}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	left := maxNodes
	if err := measure(doc.Content[0], 0, &left); err != nil {
		return nil, err
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if text := bytes.TrimLeft(data, " \t\r\n"); text[0] == '{' && !json.Valid(text) {
		return nil, At(root, "", "a document that begins with { must be JSON as a whole")
	}
	return root, older(root)
}

// older reads what YAML 1.1 has and 1.2 has not, since Kubernetes' tools still
// read it: merge keys, and yes, no, on and off as booleans.
func older(n *yaml.Node) error {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Style == 0 && n.Tag == "!!str" {
			switch strings.ToLower(n.Value) {
			case "y", "yes", "on":
				n.Tag, n.Value = "!!bool", "true"
			case "n", "no", "off":
				n.Tag, n.Value = "!!bool", "false"
			}
		}
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if err := older(c); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			if err := older(n.Content[i]); err != nil {
				return err
			}
		}
		return merge(n)
	}
	return nil
}

// merge takes over what << points at, unless the mapping has it itself.
func merge(n *yaml.Node) error {
	var own, from []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			own = append(own, n.Content[i], n.Content[i+1])
			continue
		}
		if c := resolved(n.Content[i+1]); c.Kind == yaml.SequenceNode {
			from = append(from, c.Content...)
		} else {
			from = append(from, c)
		}
	}
	if from == nil {
		return nil
	}
	has := map[string]bool{}
	for i := 0; i < len(own); i += 2 {
		has[own[i].Value] = true
	}
	for _, f := range from {
		f = resolved(f)
		if f.Kind != yaml.MappingNode {
			return At(f, "<<", "expected a mapping to merge, got %s", kind(f))
		}
		for i := 0; i+1 < len(f.Content); i += 2 {
			if k := f.Content[i]; !has[k.Value] {
				has[k.Value] = true
				own = append(own, k, f.Content[i+1])
			}
		}
	}
	n.Content = own
	return nil
}

func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func measure(n *yaml.Node, depth int, left *int) error {
	if *left--; *left < 0 {
		return At(n, "", "the document grows beyond %d values", maxNodes)
	}
	if depth > maxDepth {
		return At(n, "", "nested deeper than %d levels", maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		return measure(n.Alias, depth+1, left)
	}
	for _, c := range n.Content {
		if err := measure(c, depth+1, left); err != nil {
			return err
		}
	}
	return nil
}

// Decode reads a node into the struct, slice, map or scalar that into points
// to. Fields are named by their json tag; names that are not there are errors.
func Decode(n *yaml.Node, field string, into any) error {
	if n == nil {
		return nil
	}
	return decoder{}.value(n, field, reflect.ValueOf(into).Elem())
}

// DecodeFold is Decode for names in any case, as encoding/json has it. A name
// written exactly counts before one that is not.
func DecodeFold(n *yaml.Node, field string, into any) error {
	if n == nil {
		return nil
	}
	return decoder{fold: true}.value(n, field, reflect.ValueOf(into).Elem())
}

// decoder fills Go values from nodes.
type decoder struct {
	fold bool // names match in any case
}

var nodeType = reflect.TypeFor[*yaml.Node]()

func (d decoder) value(n *yaml.Node, field string, v reflect.Value) error {
	n = resolved(n)
	if v.Type() == nodeType {
		v.Set(reflect.ValueOf(n))
		return nil
	}
	null := n.Kind == yaml.ScalarNode && n.Tag == "!!null"
	if null {
		return nil // as absent
	}
	if s, ok := v.Addr().Interface().(Scalar); ok {
		if n.Kind != yaml.ScalarNode {
			return At(n, field, "expected a single value, got %s", kind(n))
		}
		if err := s.FromScalar(n.Value); err != nil {
			return At(n, field, "%v", err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := d.value(n, field, p.Elem()); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.Struct:
		return d.structValue(n, field, v)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return At(n, field, "expected a list, got %s", kind(n))
		}
		out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, c := range n.Content {
			if err := d.value(c, fmt.Sprintf("%s[%d]", field, i), out.Index(i)); err != nil {
				return err
			}
		}
		v.Set(out)
		return nil
	case reflect.Map:
		return d.mapValue(n, field, v)
	case reflect.Interface:
		var x any
		if err := n.Decode(&x); err != nil {
			return At(n, field, "%v", err)
		}
		if x != nil {
			v.Set(reflect.ValueOf(x))
		}
		return nil
	}
	return scalar(n, field, v)
}

func (d decoder) structValue(n *yaml.Node, field string, v reflect.Value) error {
	if n.Kind != yaml.MappingNode {
		return At(n, field, "expected a mapping, got %s", kind(n))
	}
	known := map[string][]int{}
	for _, f := range reflect.VisibleFields(v.Type()) { // those of embedded structs, too
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			known[name] = f.Index
		}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, c := n.Content[i], n.Content[i+1]
		if seen[k.Value] {
			return At(k, join(field, k.Value), "key %q is set twice", k.Value)
		}
		seen[k.Value] = true
		j, ok := known[k.Value]
		if !ok && d.fold {
			for name, f := range known {
				if ok = strings.EqualFold(name, k.Value); ok {
					if j = f; exact(n, name) {
						j = nil
					}
					break
				}
			}
			if ok && j == nil {
				continue
			}
		}
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			sort.Strings(names)
			return At(k, join(field, k.Value), "unknown field %q; expected one of: %s", k.Value, strings.Join(names, ", "))
		}
		if err := d.value(c, join(field, k.Value), v.FieldByIndex(j)); err != nil {
			return err
		}
	}
	return nil
}

// exact says whether a mapping has a key by this very name.
func exact(n *yaml.Node, name string) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

func (d decoder) mapValue(n *yaml.Node, field string, v reflect.Value) error {
	if n.Kind != yaml.MappingNode {
		return At(n, field, "expected a mapping, got %s", kind(n))
	}
	out := reflect.MakeMap(v.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, c := n.Content[i], n.Content[i+1]
		e := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(c, join(field, k.Value), e); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(k.Value).Convert(v.Type().Key()), e)
	}
	v.Set(out)
	return nil
}

func scalar(n *yaml.Node, field string, v reflect.Value) error {
	wrong := func() error {
		return At(n, field, "cannot read %s %q as %s", kind(n), n.Value, typeName(v))
	}
	if n.Kind != yaml.ScalarNode {
		return At(n, field, "expected %s, got %s", typeName(v), kind(n))
	}
	number := n.Tag == "!!int" || n.Tag == "!!float"
	switch v.Kind() {
	case reflect.String:
		if n.Tag != "!!str" && n.Tag != "!!timestamp" { // a date is text to JSON
			return wrong()
		}
		v.SetString(n.Value)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if n.Tag != "!!bool" || err != nil {
			return wrong()
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64, reflect.Int32:
		var f float64
		if !number || n.Decode(&f) != nil || f != math.Trunc(f) || math.Abs(f) > 1<<62 || v.OverflowInt(int64(f)) {
			return wrong()
		}
		i := int64(f)
		if p, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			i = p
		}
		v.SetInt(i)
	case reflect.Float64:
		var f float64
		if !number || n.Decode(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return wrong()
		}
		v.SetFloat(f)
	default:
		return At(n, field, "a value of type %s cannot be configured", v.Type())
	}
	return nil
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!str":
		return "string"
	case "!!int", "!!float":
		return "number"
	case "!!bool":
		return "boolean"
	}
	return "value"
}

func typeName(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	}
	return "a whole number"
}
