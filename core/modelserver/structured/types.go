package structured

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// typed makes n the node of a schema of one type, which its keywords alone may imply.
func (c *compiler) typed(n *node, v *value, depth int) error {
	kind := ""
	if t := v.get("type"); t != nil {
		if !t.is('"') {
			return errors.New("Type should be a string")
		}
		kind = t.text
	} else {
		kind = v.kindByKeyword(len(keywords))
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

// keywords lists the keywords that imply the type of a schema without one.
var keywords = []struct {
	kind string
	keys []string
}{
	{"object", []string{"properties", "additionalProperties", "unevaluatedProperties", "required", "patternProperties",
		"propertyNames", "minProperties", "maxProperties"}},
	{"array", []string{"items", "prefixItems", "unevaluatedItems", "minItems", "maxItems"}},
	{"string", []string{"pattern", "minLength", "maxLength", "format"}},
	{"number", []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
}

// kindByKeyword returns the first of the given number of types for which the schema has a keyword.
func (v *value) kindByKeyword(types int) string {
	for _, k := range keywords[:types] {
		if slices.ContainsFunc(k.keys, func(key string) bool { return v.get(key) != nil }) {
			return k.kind
		}
	}
	return ""
}

func (c *compiler) number(n *node, v *value, integer bool) error {
	n.kind, n.num = number, &numbers{integer: integer}
	for _, key := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
		k := v.get(key)
		if k == nil || k.kind == 't' || k.kind == 'f' {
			continue // draft 4's boolean form is handled below
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
		exact := k.lit
		if len(exact) > maxDigits {
			exact = strconv.FormatFloat(x, 'g', -1, 64)
		}
		n.num.step, _ = new(big.Rat).SetString(exact)
		if integer { // those multiples that are whole are multiples of the numerator
			n.num.step.SetInt(n.num.step.Num())
		}
	}
	if n.num.empty() {
		return never("no %s from %v to %v", v.get("type").name(), *n.num.low, *n.num.high)
	}
	return nil
}

// maxDigits limits the length of a number whose every digit counts.
const maxDigits = 64

func (v *value) name() string {
	if v.is('"') {
		return v.text
	}
	return "number"
}

// count returns the value of a keyword that is a count; otherwise is its default.
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

// counts copies a pair of such keywords to a node.
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

// fit limits the length of a pattern that is a single repetition.
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

func (c *compiler) array(n *node, v *value, depth int) error {
	n.kind = array
	if err := counts(n, v, "minItems", "maxItems"); err != nil {
		return err
	}
	prefix, items := v.get("prefixItems"), v.get("items")
	if items.is('[') { // as in drafts before 2020-12
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
	for _, name := range order { // required members without a description of their own
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
		return never("minProperties is greater than the number of properties, but additional properties aren't "+
			"allowed: %d > %d", n.least, len(n.props))
	}
	return nil
}

// further sets the members that an object may have beside its named ones.
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
		names, err := c.merge(&value{kind: '{', keys: []string{"type"},
			vals: []*value{{kind: '"', text: "string", spend: c.spend}}, spend: c.spend}, k)
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
