package structured

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Schema returns the form of JSON texts that match a schema.
//
// Schema ignores the keywords that xgrammar ignores: not, if, then, else, dependentRequired and dependentSchemas. It
// treats oneOf as anyOf. It refuses schemas that neither xgrammar nor its fallback, llguidance, supports.
func Schema(raw json.RawMessage, spend func(int) bool) (*Grammar, error) {
	return build(spend, func(b *builder) *node {
		notTooLong("JSON schema", len(raw))
		return b.jsonSchema(raw)
	})
}

// jsonSchema returns the node of the schema in a JSON text.
func (b *builder) jsonSchema(raw json.RawMessage) *node {
	v := b.value(raw)
	return newCompiler(v, b).schema(v, 0)
}

// Arguments returns the form of a tool's arguments when nothing forces a model to follow their schema. It ignores the
// parts of the schema that are refused elsewhere. Without the schema of an object there are no arguments.
func Arguments(raw json.RawMessage, spend func(int) bool) *Grammar {
	g, err := build(spend, func(b *builder) *node {
		v := b.value(raw)
		c := newCompiler(v, b)
		c.lenient = true
		return c.schema(v, 0)
	})
	if err != nil || len(raw) > MaxBytes || g.root.kind != object && g.root.kind != either {
		return &Grammar{&node{kind: literal, text: "{}", min: 2}}
	}
	return g
}

// Object returns the form of any JSON object.
func Object(spend func(int) bool) (*Grammar, error) {
	return Schema(json.RawMessage(`{"type": "object"}`), spend)
}

// compiler makes the nodes of a JSON schema.
type compiler struct {
	*builder
	document *value
	lenient  bool     // ignores unknown parts
	excludes []string // texts that strings do not contain, as far as possible
	done     map[*value]*node
	merged   map[[2]*value]*value
}

func newCompiler(v *value, b *builder) *compiler {
	return &compiler{builder: b, document: v, done: map[*value]*node{}, merged: map[[2]*value]*value{}}
}

// unsatisfiable is the error for a schema that no value matches.
type unsatisfiable struct{ why string }

func (u unsatisfiable) Error() string { return "Unsatisfiable schema: " + u.why }

func never(format string, args ...any) refused {
	return refused{unsatisfiable{fmt.Sprintf(format, args...)}}
}

// possible returns the node of a schema, or the error of one that no value matches.
func (c *compiler) possible(v *value, depth int) (n *node, never error) {
	n, err := attempt(func() *node { return c.schema(v, depth) })
	if err != nil && !errors.As(err, new(unsatisfiable)) {
		panic(refused{err})
	}
	return n, err
}

// unimplemented lists keywords that neither vLLM's default backend nor its fallback supports.
var unimplemented = []string{"uniqueItems", "contains", "minContains", "maxContains"}

// schema returns the node of a schema. It returns the same node each time, so that schemas may refer to themselves.
func (c *compiler) schema(v *value, depth int) *node {
	if n := c.done[v]; n != nil {
		return n
	}
	if depth > 2*maxDepth {
		panic(refusal("nested more than %d deep", maxDepth))
	}
	c.spend(nodeWork)
	n := c.node(node{})
	c.done[v] = n
	if kids := c.fill(n, v, depth+1); kids != nil {
		n.kind, n.kids = either, kids
	}
	return n
}

// fill makes n the node of a schema. If the schema has alternatives, fill returns them.
func (c *compiler) fill(n *node, v *value, depth int) []*node {
	switch v.kind {
	case 't':
		n.kind = anyValue
		return nil
	case 'f':
		panic(never("schema is false"))
	case '{':
	default:
		panic(refusal("Schema should be an object or bool, but got %s", v.append(nil)))
	}
	for _, key := range unimplemented {
		if k := v.get(key); k != nil && !k.is('f') && !c.lenient {
			panic(refusal("Unimplemented keys: [%q]", key))
		}
	}
	for _, key := range []string{"$ref", "allOf"} {
		if v.get(key) != nil {
			return []*node{c.schema(c.together(v, key), depth)}
		}
	}
	if k := v.get("const"); k != nil {
		n.kind, n.text = literal, string(k.append(nil))
		c.spend(len(n.text))
		return nil
	}
	if k := v.get("enum"); k != nil {
		if !k.is('[') || len(k.vals) == 0 {
			panic(refusal("enum must be an array, and not empty"))
		}
		var kids []*node
		for _, x := range v.fitting() {
			kids = append(kids, c.literal(string(x.append(nil))))
		}
		return kids
	}
	if options := c.alternatives(v); options != nil {
		return c.anyOf(options, depth)
	}
	c.typed(n, v, depth)
	return nil
}

// fitting returns the values of enum that have the schema's type.
func (v *value) fitting() (out []*value) {
	of := v.get("type")
	for _, x := range v.get("enum").list() {
		if fits(of, x) {
			out = append(out, x)
		}
	}
	if out == nil {
		panic(never("no value of enum has the type"))
	}
	return out
}

// fits reports whether a value has a schema's type, if the type is one word.
func fits(t, x *value) bool {
	if !t.is('"') {
		return true
	}
	switch t.text {
	case "string":
		return x.kind == '"'
	case "object":
		return x.kind == '{'
	case "array":
		return x.kind == '['
	case "boolean":
		return x.kind == 't' || x.kind == 'f'
	case "null":
		return x.kind == 'n'
	case "integer", "number":
		return x.kind == '0'
	}
	return true
}

// with returns a schema with one keyword.
func (c *compiler) with(key string, v *value) *value {
	c.spend(nodeWork)
	return &value{kind: '{', spend: c.spend, keys: []string{key}, vals: []*value{v}}
}

// alternatives returns the schemas of anyOf, of oneOf, or of each type in a list, merged with the keywords beside them.
// They are nil for a schema without alternatives.
func (c *compiler) alternatives(v *value) []*value {
	key := ""
	var options []*value
	switch types := v.get("type"); {
	case v.get("anyOf") != nil:
		key = "anyOf"
		options = v.get(key).list()
	case v.get("oneOf") != nil:
		key = "oneOf"
		options = v.get(key).list()
	case types.is('['):
		key = "type"
		for _, x := range types.vals {
			options = append(options, c.with(key, x))
		}
	default:
		return nil
	}
	if len(options) == 0 {
		panic(refusal("%s must be an array, and not empty", key))
	}
	beside := v.without(slices.Concat([]string{key}, annotations)...)
	if len(beside.keys) == 0 {
		return options
	}
	merged := make([]*value, len(options))
	for i, o := range options {
		merged[i] = c.merge(beside, o)
	}
	return merged
}

// anyOf returns the nodes of those schemas that some value matches.
func (c *compiler) anyOf(options []*value, depth int) []*node {
	var kids []*node
	var last error
	for _, o := range options {
		if kid, never := c.possible(o, depth); never != nil {
			last = never
		} else {
			kids = append(kids, kid)
		}
	}
	if kids == nil {
		panic(refused{last})
	}
	return kids
}

// annotations do not restrict values.
var annotations = []string{"title", "description", "default", "examples", "$defs", "definitions", "$schema", "$id",
	"$comment", "deprecated", "readOnly", "writeOnly", "discriminator"}

// pattern returns the regular expression of a string: its own, else its format's; "" if it has neither.
func (v *value) pattern() string {
	pattern, format := v.get("pattern"), v.get("format")
	switch {
	case pattern.is('"'):
		return pattern.text
	case pattern != nil:
		panic(refusal("pattern must be a string"))
	case !format.is('"'):
		return ""
	}
	expression, known := formats[format.text]
	if !known {
		panic(refusal("Unknown format: %s", format.text))
	}
	return expression
}

// formats maps the formats that xgrammar knows to regular expressions of some of their texts
// (vllm/v1/structured_output/backend_xgrammar.py: STRING_SUPPORTED_FORMATS).
var formats = func() map[string]string {
	const (
		date = `20[0-4][0-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])`
		time = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{3})?(Z|[+-]0[0-9]:[0-5]0)`
		host = `[a-z]{3,8}(\.[a-z]{3,8}){0,2}\.(com|net|org|example)`
		octe = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
		path = `(/[a-z0-9]{1,8}){0,3}`
	)
	return map[string]string{
		"date": date, "time": time, "date-time": date + "T" + time,
		"duration": `P([1-9][0-9]?D|T[1-9][0-9]?(H|M|S))`,
		"email":    `[a-z]{2,8}(\.[a-z]{2,8})?@` + host,
		"hostname": host,
		"ipv4":     octe + `(\.` + octe + `){3}`,
		"ipv6":     `[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}`,
		"uuid":     `[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`,
		"uri":      `https?://` + host + path, "uri-reference": `/[a-z0-9]{1,8}` + path,
		"uri-template": `https?://` + host + `/\{[a-z]{1,8}\}`,
		"json-pointer": path, "relative-json-pointer": `[0-9]` + path,
	}
}()
