package structured

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Schema is the form of a JSON text that a schema describes.
//
// What xgrammar leaves out without a word is left out here too: not, if, then,
// else, dependentRequired and dependentSchemas; and oneOf is anyOf. What
// neither it nor its stand-in, llguidance, takes is refused.
func Schema(raw json.RawMessage, spend func(int) bool) (*Grammar, error) {
	if err := tooLong("JSON schema", len(raw)); err != nil {
		return nil, err
	}
	v, err := parseValue(raw, spend)
	if err != nil {
		return nil, err
	}
	c := newCompiler(v, builder{spend: spend})
	root, err := c.schema(v, 0)
	if err != nil {
		return nil, err
	}
	return c.grammar(root)
}

// Arguments is the form of a tool's arguments, which nobody forces a model to
// keep to: what of their schema is refused elsewhere is passed over, and without a
// schema of an object there are no arguments.
func Arguments(raw json.RawMessage, spend func(int) bool) *Grammar {
	none := &Grammar{&node{kind: literal, text: "{}", min: 2}}
	v, err := parseValue(raw, spend)
	if err != nil || len(raw) > MaxBytes {
		return none
	}
	c := newCompiler(v, builder{spend: spend})
	c.lenient = true
	root, err := c.schema(v, 0)
	if err != nil || root.kind != object && root.kind != either {
		return none
	}
	if g, err := c.grammar(root); err == nil {
		return g
	}
	return none
}

// Object is the form of any JSON object.
func Object(spend func(int) bool) (*Grammar, error) {
	return Schema(json.RawMessage(`{"type": "object"}`), spend)
}

// compiler makes the nodes of a JSON schema.
type compiler struct {
	builder
	document *value
	lenient  bool     // what is not known is passed over
	excludes []string // what strings do not have, where that can be
	done     map[*value]*node
	merged   map[[2]*value]*value
}

func newCompiler(v *value, b builder) *compiler {
	return &compiler{builder: b, document: v, done: map[*value]*node{}, merged: map[[2]*value]*value{}}
}

// unsatisfiable is what no value fits.
type unsatisfiable struct{ why string }

func (u unsatisfiable) Error() string { return "Unsatisfiable schema: " + u.why }

func never(format string, args ...any) error { return unsatisfiable{fmt.Sprintf(format, args...)} }

// unimplemented are keywords that neither vLLM's default backend nor the one that
// steps in for it takes.
var unimplemented = []string{"uniqueItems", "contains", "minContains", "maxContains"}

// schema is the node of a schema: the same one each time, so that schemas may
// refer to themselves.
func (c *compiler) schema(v *value, depth int) (*node, error) {
	if n := c.done[v]; n != nil {
		return n, nil
	}
	if depth > 2*maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	if !c.spend(nodeWork) {
		return nil, errTooMuch
	}
	n := c.node(node{})
	c.done[v] = n
	kids, err := c.fill(n, v, depth+1)
	if err == nil && kids != nil {
		n.kind, n.kids = either, kids
	}
	return n, err
}

// one makes n write what another node does.
func one(n *node, err error) ([]*node, error) { return []*node{n}, err }

// fill makes n the node of a schema. Where it is one of several things, those are
// what it returns.
func (c *compiler) fill(n *node, v *value, depth int) ([]*node, error) {
	switch v.kind {
	case 't':
		n.kind = anyValue
		return nil, nil
	case 'f':
		return nil, never("schema is false")
	case '{':
	default:
		return nil, fmt.Errorf("Schema should be an object or bool, but got %s", v.append(nil))
	}
	for _, key := range unimplemented {
		if k := v.get(key); k != nil && !k.is('f') && !c.lenient {
			return nil, fmt.Errorf("Unimplemented keys: [%q]", key)
		}
	}
	for _, key := range []string{"$ref", "allOf"} {
		if v.get(key) == nil {
			continue
		}
		whole, err := c.together(v, key)
		if err != nil {
			return nil, err
		}
		return one(c.schema(whole, depth))
	}
	if k := v.get("const"); k != nil {
		n.kind, n.text = literal, string(k.append(nil))
		return nil, nil
	}
	if k := v.get("enum"); k != nil {
		if !k.is('[') || len(k.vals) == 0 {
			return nil, errors.New("enum must be an array, and not empty")
		}
		var kids []*node
		for _, x := range k.vals {
			if fits(v.get("type"), x) {
				kids = append(kids, c.literal(string(x.append(nil))))
			}
		}
		if kids == nil {
			return nil, never("no value of enum has the type")
		}
		return kids, nil
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if k := v.get(key); k != nil {
			return c.anyOf(v, key, k, depth)
		}
	}
	if t := v.get("type"); t.is('[') {
		options := &value{kind: '[', spend: c.spend}
		for _, x := range t.vals {
			one := &value{kind: '{', spend: c.spend, keys: []string{"type"}, vals: []*value{x}}
			options.vals = append(options.vals, one)
		}
		return c.anyOf(v.without("type"), "type", options, depth)
	}
	return nil, c.typed(n, v, depth)
}

// fits tells whether a value is of a schema's type, where that is one word.
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

// anyOf are the options of a schema, each together with what stands beside them.
func (c *compiler) anyOf(v *value, key string, options *value, depth int) ([]*node, error) {
	if !options.is('[') || len(options.vals) == 0 {
		return nil, fmt.Errorf("%s must be an array, and not empty", key)
	}
	beside := v.without(slices.Concat([]string{key}, annotations)...)
	var kids []*node
	var last error
	for _, o := range options.vals {
		if len(beside.keys) > 0 {
			var err error
			if o, err = c.merge(beside, o); err != nil {
				return nil, err
			}
		}
		kid, err := c.schema(o, depth)
		if never := (unsatisfiable{}); errors.As(err, &never) {
			last = err
			continue
		}
		if err != nil {
			return nil, err
		}
		kids = append(kids, kid)
	}
	if kids == nil {
		return nil, last
	}
	return kids, nil
}

// annotations say nothing about which values fit.
var annotations = []string{"title", "description", "default", "examples", "$defs", "definitions", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly", "discriminator"}

// together is a schema with what it refers to by $ref or allOf.
func (c *compiler) together(v *value, key string) (*value, error) {
	parts := []*value{v.get(key)}
	if key == "allOf" {
		if !parts[0].is('[') {
			return nil, errors.New("allOf must be an array")
		}
		parts = parts[0].vals
	} else {
		to, err := c.resolve(parts[0])
		if err != nil {
			return nil, err
		}
		parts = []*value{to}
	}
	whole := v.without(slices.Concat([]string{key}, annotations)...)
	if len(whole.keys) == 0 && len(parts) == 1 {
		return parts[0], nil
	}
	var err error
	for _, p := range parts {
		if whole, err = c.merge(whole, p); err != nil {
			return nil, err
		}
	}
	return whole, nil
}

// resolve finds what a $ref is about.
func (c *compiler) resolve(ref *value) (*value, error) {
	if !ref.is('"') {
		return nil, errors.New("$ref must be a string")
	}
	if ref.text != "#" && !strings.HasPrefix(ref.text, "#/") {
		return nil, fmt.Errorf("URI should either be '#' or start with '#/' but got %s", ref.text)
	}
	at := c.document
	for part := range strings.SplitSeq(strings.TrimPrefix(ref.text[1:], "/"), "/") {
		if ref.text == "#" {
			break
		}
		if p, err := url.PathUnescape(part); err == nil {
			part = p
		}
		if strings.Contains(part, "~") {
			part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		}
		next := at.get(part)
		if i, err := strconv.Atoi(part); err == nil && at.is('[') && i >= 0 && i < len(at.vals) {
			next = at.vals[i]
		}
		if next == nil {
			return nil, fmt.Errorf("Cannot find field %s in %s", part, ref.text)
		}
		at = next
	}
	return at, nil
}

// merge is a schema that fits what both fit. Where both say something of one
// keyword, bounds are the narrower ones, members are joined, and of anything else
// the second's counts.
func (c *compiler) merge(a, b *value) (*value, error) {
	pair := [2]*value{a, b}
	if m := c.merged[pair]; m != nil {
		return m, nil
	}
	if !c.spend(nodeWork) {
		return nil, errTooMuch
	}
	if a.is('{') && len(a.keys) == 0 || a.is('t') {
		return b, nil
	}
	if b.is('t') {
		return a, nil
	}
	if !a.is('{') || !b.is('{') {
		return &value{kind: 'f', spend: c.spend}, nil
	}
	m := a.without()
	c.merged[pair] = m
	for i, key := range b.keys {
		theirs := b.vals[i]
		ours := m.get(key)
		if ours == nil {
			m.set(key, theirs)
			continue
		}
		switch key {
		case "properties":
			joined := ours.without()
			for k, name := range theirs.keys {
				both := theirs.vals[k]
				if had := joined.get(name); had != nil {
					var err error
					if both, err = c.merge(had, both); err != nil {
						return nil, err
					}
				}
				joined.set(name, both)
			}
			m.set(key, joined)
		case "required", "allOf":
			if ours.is('[') && theirs.is('[') {
				m.set(key, &value{kind: '[', vals: slices.Concat(ours.vals, theirs.vals), spend: c.spend})
			}
		case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
			m.set(key, narrower(ours, theirs, 1))
		case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
			m.set(key, narrower(ours, theirs, -1))
		case "anyOf", "oneOf", "$ref": // both have to fit
			part := &value{kind: '{', keys: []string{key}, vals: []*value{theirs}, spend: c.spend}
			all := &value{kind: '[', vals: []*value{part}, spend: c.spend}
			if had := m.get("allOf"); had.is('[') {
				all.vals = append(all.vals, had.vals...)
			}
			m.set("allOf", all)
		case "additionalProperties":
			if !ours.is('f') {
				m.set(key, theirs)
			}
		case "type":
			if t := common(ours, theirs); t != nil {
				m.set(key, t)
			} else {
				return &value{kind: 'f', spend: c.spend}, nil
			}
		default:
			m.set(key, theirs)
		}
	}
	return m, nil
}

// common are the types that both of two keywords name; nil is none.
func common(a, b *value) *value {
	list := func(v *value) []*value {
		if v.is('[') {
			return v.vals
		}
		return []*value{v}
	}
	out := &value{kind: '[', spend: a.spend}
	for _, x := range list(a) {
		for _, y := range list(b) {
			switch {
			case x.text == y.text, x.text == "number" && y.text == "integer":
				out.vals = append(out.vals, y)
			case x.text == "integer" && y.text == "number":
				out.vals = append(out.vals, x)
			}
		}
	}
	switch len(out.vals) {
	case 0:
		return nil
	case 1:
		return out.vals[0]
	}
	return out
}

func narrower(a, b *value, sign float64) *value {
	x, errX := strconv.ParseFloat(a.lit, 64)
	y, errY := strconv.ParseFloat(b.lit, 64)
	if errX == nil && errY == nil && sign*x > sign*y {
		return a
	}
	return b
}

// typed makes n the node of a schema of one type, which may be told by its
// keywords alone.
func (c *compiler) typed(n *node, v *value, depth int) error {
	kind := ""
	if t := v.get("type"); t != nil {
		if !t.is('"') {
			return errors.New("Type should be a string")
		}
		kind = t.text
	} else {
		for _, k := range []struct {
			kind string
			keys []string
		}{
			{"object", []string{"properties", "additionalProperties", "unevaluatedProperties", "required", "patternProperties", "propertyNames", "minProperties", "maxProperties"}},
			{"array", []string{"items", "prefixItems", "unevaluatedItems", "minItems", "maxItems"}},
			{"string", []string{"pattern", "minLength", "maxLength", "format"}},
			{"number", []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
		} {
			if kind == "" && slices.ContainsFunc(k.keys, func(key string) bool { return v.get(key) != nil }) {
				kind = k.kind
			}
		}
	}
	switch kind {
	case "":
		n.kind = anyValue
	case "null":
		n.kind, n.text = literal, "null"
	case "boolean":
		n.kind, n.kids = either, []*node{c.literal("true"), c.literal("false")}
	case "integer", "number":
		return c.number(n, v, kind == "integer")
	case "string":
		return c.str(n, v)
	case "array":
		return c.array(n, v, depth)
	case "object":
		return c.object(n, v, depth)
	default:
		return fmt.Errorf("Unsupported type %q", kind)
	}
	return nil
}

func (c *compiler) number(n *node, v *value, integer bool) error {
	n.kind, n.num = number, &numbers{integer: integer}
	for _, key := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
		k := v.get(key)
		if k == nil || k.kind == 't' || k.kind == 'f' {
			continue // draft 4's true and false are looked at below
		}
		x, err := strconv.ParseFloat(k.lit, 64)
		if !k.is('0') || err != nil {
			return fmt.Errorf("%s: Value must be a number", key)
		}
		without := strings.HasPrefix(key, "exclusive")
		if strings.HasSuffix(strings.ToLower(key), "minimum") {
			if n.num.low == nil || x > *n.num.low || x == *n.num.low && without {
				n.num.low, n.num.withoutLow = &x, without
			}
		} else if n.num.high == nil || x < *n.num.high || x == *n.num.high && without {
			n.num.high, n.num.withoutHigh = &x, without
		}
	}
	n.num.withoutLow = n.num.withoutLow || v.get("exclusiveMinimum").is('t')
	n.num.withoutHigh = n.num.withoutHigh || v.get("exclusiveMaximum").is('t')
	if k := v.get("multipleOf"); k != nil {
		x, err := strconv.ParseFloat(k.lit, 64)
		if err != nil || x <= 0 {
			return errors.New("multipleOf must be greater than 0")
		}
		n.num.step, _ = new(big.Rat).SetString(k.lit)
		if integer { // those multiples that are whole are multiples of the numerator
			n.num.step.SetInt(n.num.step.Num())
		}
	}
	if n.num.empty() {
		return never("no %s from %v to %v", v.get("type").name(), *n.num.low, *n.num.high)
	}
	return nil
}

func (v *value) name() string {
	if v.is('"') {
		return v.text
	}
	return "number"
}

// count reads a keyword that counts something; otherwise is its default.
func count(v *value, key string, otherwise int) (int, error) {
	k := v.get(key)
	if k == nil {
		return otherwise, nil
	}
	x, err := strconv.ParseFloat(k.lit, 64)
	if !k.is('0') || err != nil || x < 0 || x != math.Trunc(x) {
		return 0, fmt.Errorf("%s must be a non-negative integer", key)
	}
	return int(min(x, endless-1)), nil
}

// counts reads a pair of such keywords into a node.
func counts(n *node, v *value, least, most string) (err error) {
	if n.least, err = count(v, least, 0); err != nil {
		return err
	}
	if n.most, err = count(v, most, -1); err == nil && n.most >= 0 && n.least > n.most {
		err = never("%s (%d) is greater than %s (%d)", least, n.least, most, n.most)
	}
	return err
}

func (c *compiler) str(n *node, v *value) error {
	n.kind, n.excludes = str, c.excludes
	if err := counts(n, v, "minLength", "maxLength"); err != nil {
		return err
	}
	pattern, err := v.pattern()
	if pattern == "" && err == nil && v.get("pattern") == nil {
		return nil
	}
	var re *node
	if err == nil {
		re, err = c.regex(pattern, 0, true)
	}
	if err != nil && c.lenient {
		return nil
	}
	if err != nil {
		return err
	}
	fit(re, n.least, n.most)
	n.kind, n.kids = sequence, []*node{c.literal(`"`), re, c.literal(`"`)}
	return nil
}

// pattern is the regular expression that a string keeps to, of its format where it
// has none of its own; "" where it has neither.
func (v *value) pattern() (string, error) {
	pattern, format := v.get("pattern"), v.get("format")
	switch {
	case pattern.is('"'):
		return pattern.text, nil
	case pattern != nil:
		return "", errors.New("pattern must be a string")
	case !format.is('"'):
		return "", nil
	}
	expression, known := formats[format.text]
	if !known {
		return "", fmt.Errorf("Unknown format: %s", format.text)
	}
	return expression, nil
}

// fit has a pattern that is a single repetition keep to a length.
func fit(re *node, least, most int) {
	if re.kind == sequence { // the marks of its beginning and end
		var some []*node
		for _, k := range re.kids {
			if k.kind != literal || k.text != "" {
				some = append(some, k)
			}
		}
		if len(some) != 1 {
			return
		}
		re = some[0]
	}
	if re.kind != repeat || re.kids[0].kind != class {
		return
	}
	re.least = max(re.least, least)
	if most >= 0 && (re.most < 0 || re.most > most) {
		re.most = max(most, re.least)
	}
}

// formats are those that xgrammar knows, as regular expressions of some of their
// texts (vllm/v1/structured_output/backend_xgrammar.py: STRING_SUPPORTED_FORMATS).
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

func (c *compiler) array(n *node, v *value, depth int) error {
	n.kind = array
	if err := counts(n, v, "minItems", "maxItems"); err != nil {
		return err
	}
	prefix, items := v.get("prefixItems"), v.get("items")
	if items.is('[') { // as drafts before 2020-12 have it
		prefix, items = items, v.get("additionalItems")
	}
	if prefix != nil {
		if !prefix.is('[') {
			return errors.New("prefixItems must be an array")
		}
		for _, p := range prefix.vals {
			kid, err := c.schema(p, depth)
			if never := (unsatisfiable{}); errors.As(err, &never) && len(n.kids) >= n.least {
				n.most = len(n.kids)
				break
			}
			if err != nil {
				return err
			}
			n.kids = append(n.kids, kid)
		}
	}
	if items == nil {
		items = v.get("unevaluatedItems")
	}
	if items == nil {
		items = &value{kind: 't', spend: c.spend}
	}
	more, err := c.schema(items, depth)
	switch never := (unsatisfiable{}); {
	case errors.As(err, &never):
		if n.least > len(n.kids) {
			return err
		}
	case err != nil:
		return err
	default:
		n.more = more
	}
	return nil
}

func (c *compiler) object(n *node, v *value, depth int) error {
	n.kind = object
	if err := counts(n, v, "minProperties", "maxProperties"); err != nil {
		return err
	}
	required := map[string]bool{}
	var order []string
	if k := v.get("required"); k != nil && !k.is('f') && !k.is('t') {
		if !k.is('[') {
			return errors.New("required must be an array")
		}
		for _, x := range k.vals {
			if !x.is('"') {
				return errors.New("required must be an array of strings")
			}
			if !required[x.text] {
				order = append(order, x.text)
			}
			required[x.text] = true
		}
	}
	if len(order) > n.most && n.most >= 0 {
		return never("maxProperties is less than the number of required properties: %d < %d", n.most, len(order))
	}
	if err := c.further(n, v, depth); err != nil {
		return err
	}
	props := v.get("properties")
	if props != nil && !props.is('{') {
		return errors.New("properties must be an object")
	}
	add := func(name string, s *value) error {
		kid, err := c.schema(s, depth)
		if never := (unsatisfiable{}); errors.As(err, &never) && !required[name] {
			return nil
		}
		n.props = append(n.props, property{name: name, key: quote(name) + ": ", value: kid, required: required[name]})
		return err
	}
	known := map[string]bool{}
	if props != nil {
		for i, name := range props.keys {
			if known[name] {
				continue
			}
			known[name] = true
			if err := add(name, props.vals[i]); err != nil {
				return err
			}
		}
	}
	for _, name := range order { // required, and described elsewhere at most
		if known[name] {
			continue
		}
		if n.more == nil {
			return never("required property %q is not allowed", name)
		}
		n.props = append(n.props, property{name: name, key: quote(name) + ": ", value: n.more, required: true})
	}
	after := 0
	for i := len(n.props) - 1; i >= 0; i-- {
		if n.props[i].after = after; n.props[i].required {
			after++
		}
	}
	if n.least > len(n.props) && n.more == nil {
		return never("minProperties is greater than the number of properties, but additional properties aren't allowed: %d > %d", n.least, len(n.props))
	}
	return nil
}

// further is what an object may have beside its named members.
func (c *compiler) further(n *node, v *value, depth int) error {
	if k := v.get("patternProperties"); k.is('{') && len(k.keys) > 0 {
		re, err := c.regex(k.keys[0], 0, true)
		if err != nil {
			return err
		}
		n.names = c.sequence(c.literal(`"`), re, c.literal(`"`))
		n.more, err = c.schema(k.vals[0], depth)
		return err
	}
	allowed := v.get("additionalProperties")
	if allowed == nil {
		allowed = v.get("unevaluatedProperties")
	}
	if allowed == nil {
		allowed, n.free = &value{kind: 't', spend: c.spend}, true
	}
	n.free = n.free || allowed.is('t')
	if k := v.get("propertyNames"); k != nil {
		names, err := c.merge(&value{kind: '{', keys: []string{"type"}, vals: []*value{{kind: '"', text: "string", spend: c.spend}}, spend: c.spend}, k)
		if err != nil {
			return err
		}
		if n.names, err = c.schema(names, depth); err != nil {
			return err
		}
	}
	more, err := c.schema(allowed, depth)
	if never := (unsatisfiable{}); errors.As(err, &never) {
		return nil
	}
	n.more = more
	return err
}
