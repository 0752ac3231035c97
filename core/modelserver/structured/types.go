package structured

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// typed makes n the node of a schema of one type, which its keywords alone may imply.
func (c *compiler) typed(n *node, v *value, depth int) {
	kind := ""
	if t := v.get("type"); t != nil {
		if !t.is('"') {
			panic(refusal("Type should be a string"))
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
		c.number(n, v, kind == "integer")
	case "string":
		c.str(n, v)
	case "array":
		c.array(n, v, depth)
	case "object":
		c.object(n, v, depth)
	default:
		panic(refusal("Unsupported type %q", kind))
	}
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

func (c *compiler) number(n *node, v *value, integer bool) {
	n.kind, n.num = number, &numbers{integer: integer}
	for _, key := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
		k := v.get(key)
		if k == nil || k.kind == 't' || k.kind == 'f' {
			continue // draft 4's boolean form is handled below
		}
		x, err := strconv.ParseFloat(k.lit, 64)
		if !k.is('0') || err != nil {
			panic(refusal("%s: Value must be a number", key))
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
			panic(refusal("multipleOf must be greater than 0"))
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
		panic(never("no %s from %v to %v", v.get("type").name(), *n.num.low, *n.num.high))
	}
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
func count(v *value, key string, otherwise int) int {
	k := v.get(key)
	if k == nil {
		return otherwise
	}
	x, err := strconv.ParseFloat(k.lit, 64)
	if !k.is('0') || err != nil || x < 0 || x != math.Trunc(x) {
		panic(refusal("%s must be a non-negative integer", key))
	}
	return int(min(x, endless-1))
}

// counts copies a pair of such keywords to a node.
func counts(n *node, v *value, least, most string) {
	n.least, n.most = count(v, least, 0), count(v, most, -1)
	if n.most >= 0 && n.least > n.most {
		panic(never("%s (%d) is greater than %s (%d)", least, n.least, most, n.most))
	}
}

func (c *compiler) str(n *node, v *value) {
	n.kind, n.excludes = str, c.excludes
	counts(n, v, "minLength", "maxLength")
	re, err := attempt(func() *node {
		if pattern := v.pattern(); pattern != "" || v.get("pattern") != nil {
			return c.regex(pattern, 0, true)
		}
		return nil
	})
	switch {
	case err != nil && !c.lenient:
		panic(refused{err})
	case re == nil:
		return
	}
	fit(re, n.least, n.most)
	n.kind, n.kids = sequence, []*node{c.literal(`"`), re, c.literal(`"`)}
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

func (c *compiler) array(n *node, v *value, depth int) {
	n.kind = array
	counts(n, v, "minItems", "maxItems")
	prefix, items := v.elements()
	if prefix != nil {
		if !prefix.is('[') {
			panic(refusal("prefixItems must be an array"))
		}
		for _, p := range prefix.vals {
			kid, never := c.possible(p, depth)
			if never != nil {
				if len(n.kids) < n.least {
					panic(refused{never})
				}
				n.most = len(n.kids)
				break
			}
			n.kids = append(n.kids, kid)
		}
	}
	if items == nil {
		items = &value{kind: 't', spend: c.spend}
	}
	var never error
	if n.more, never = c.possible(items, depth); never != nil && n.least > len(n.kids) {
		panic(refused{never})
	}
}

// elements returns the schemas of the first elements of an array, one by one, and of all further ones; nil for any.
func (v *value) elements() (prefix, items *value) {
	prefix, items = v.get("prefixItems"), v.get("items")
	if items.is('[') { // as in drafts before 2020-12
		prefix, items = items, v.get("additionalItems")
	}
	return prefix, cmp.Or(items, v.get("unevaluatedItems"))
}

// others returns the schema of the members of an object that it does not name; nil for any.
func (v *value) others() *value {
	return cmp.Or(v.get("additionalProperties"), v.get("unevaluatedProperties"))
}

func (c *compiler) object(n *node, v *value, depth int) {
	n.kind = object
	counts(n, v, "minProperties", "maxProperties")
	required := map[string]bool{}
	var order []string
	if k := v.get("required"); k != nil && !k.is('f') && !k.is('t') {
		if !k.is('[') {
			panic(refusal("required must be an array"))
		}
		for _, x := range k.vals {
			if !x.is('"') {
				panic(refusal("required must be an array of strings"))
			}
			if !required[x.text] {
				order = append(order, x.text)
			}
			required[x.text] = true
		}
	}
	if len(order) > n.most && n.most >= 0 {
		panic(never("maxProperties is less than the number of required properties: %d < %d", n.most, len(order)))
	}
	c.further(n, v, depth)
	props := v.get("properties")
	if props != nil && !props.is('{') {
		panic(refusal("properties must be an object"))
	}
	known := map[string]bool{}
	if props != nil {
		for i, name := range props.keys {
			if known[name] {
				continue
			}
			known[name] = true
			kid, never := c.possible(props.vals[i], depth)
			switch {
			case never == nil:
				n.props = append(n.props, property{name: name, key: quote(name) + ": ", value: kid,
					required: required[name]})
			case required[name]:
				panic(refused{never})
			}
		}
	}
	for _, name := range order { // required members without a description of their own
		if known[name] {
			continue
		}
		if n.more == nil {
			panic(never("required property %q is not allowed", name))
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
		panic(never("minProperties is greater than the number of properties, but additional properties aren't "+
			"allowed: %d > %d", n.least, len(n.props)))
	}
}

// further sets the members that an object may have beside its named ones.
func (c *compiler) further(n *node, v *value, depth int) {
	if k := v.get("patternProperties"); k.is('{') && len(k.keys) > 0 {
		re := c.regex(k.keys[0], 0, true)
		n.names = c.sequence(c.literal(`"`), re, c.literal(`"`))
		n.more = c.schema(k.vals[0], depth)
		return
	}
	allowed := v.others()
	if allowed == nil {
		allowed, n.free = &value{kind: 't', spend: c.spend}, true
	}
	n.free = n.free || allowed.is('t')
	if k := v.get("propertyNames"); k != nil {
		n.names = c.schema(c.merge(c.with("type", &value{kind: '"', text: "string", spend: c.spend}), k), depth)
	}
	n.more, _ = c.possible(allowed, depth)
}
