package structured

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// style is the syntax of an object's members in a structural tag: each member is between tags, and in most styles
// contains JSON.
type style struct {
	name  string
	never string // a text that no string contains
	// open returns the text before a member of this name, or before an element of an array, up to the part that depends
	// on the value. shut returns the text after it.
	open     func(name string, member bool) string
	shut     func(name string, member bool) string
	describe func(option *value) string
	given    func(v *value) string // a value of enum or const
	// only named members, no bounds on strings, no values of unknown type
	fixed bool
	// objects and arrays within members are between tags too
	deep bool
}

const dsml = "｜DSML｜"

// flatStyles are xgrammar's (JSONSchemaFormat.style) with JSON in members: the name, and the texts before a member's
// name, between it and its value (which may contain its TYPE, and whether it IS_STRING), and after the value.
var flatStyles = [][4]string{
	{"qwen_xml", "<parameter=", ">", "</parameter>"},
	{"minimax_xml", `<parameter name="`, `">`, "</parameter>"},
	{"deepseek_xml", "<" + dsml + `parameter name="`, `" string="IS_STRING">`, "</" + dsml + "parameter>"},
	{"deepseek_v4_1_xml", "<" + dsml + ` parameter name="`, `" string="IS_STRING">`, "</" + dsml + " parameter>"},
	{"glm_xml", "<arg_key>", "</arg_key><arg_value>", "</arg_value>"},
	{"kimi_k3_xml", `<|open|>argument key="`, `" type="TYPE"<|sep|>`, "<|close|>argument<|sep|>"},
}

// flat returns a flat style.
func flat(name, before, middle, behind string) *style {
	return &style{name: name, never: behind, given: plainly,
		open: func(name string, _ bool) string { return before + name },
		shut: func(string, bool) string { return behind },
		describe: func(v *value) string {
			kind := cmp.Or(v.typeName(), "string")
			if kind == "integer" {
				kind = "number"
			}
			return strings.NewReplacer("TYPE", kind, "IS_STRING", strconv.FormatBool(kind == "string")).Replace(middle)
		}}
}

// plainly returns a fixed value: a string without its quotes, any other value as JSON.
func plainly(v *value) string {
	if v.is('"') {
		return v.text
	}
	return v.compact()
}

// styles maps names to the flat styles, and to those with tags at any depth (cpp/converter_ext/cohere.cc,
// minimax_m3.cc).
var styles = func() map[string]*style {
	cohere := &style{name: "cohere_xml", never: "</cofl:value>", given: plainly, deep: true}
	entities := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
	cohere.open = func(name string, member bool) string {
		switch {
		case strings.Contains(name, "\x00"):
			panic(refusal("Cohere property names cannot contain NUL"))
		case member:
			return `<cofl:value name="` + entities.Replace(name) + `"`
		}
		return "<cofl:value"
	}
	cohere.shut = func(string, bool) string { return cohere.never }
	cohere.describe = func(option *value) string {
		kind := "json"
		switch only := option.get("const"); {
		case only.is('"'), only == nil && (option.typeName() == "string" || option.typeName() == ""):
			kind = "raw"
		case only != nil:
		case option.typeName() == "object":
			kind = "dict"
		case option.typeName() == "array":
			kind = "list"
		}
		return ` type="` + kind + `">`
	}

	m3 := &style{name: "minimax_m3_xml", never: "]<]minimax[>[", fixed: true, deep: true}
	m3.open = func(name string, member bool) string {
		if !member {
			name = "item"
		}
		switch {
		case name == "" || name[0] == '/' || strings.Contains(name, ">"):
			panic(refusal("Invalid minimax_m3_xml element name: %s", name))
		case strings.Trim(name, " \t\n\r\f\v") == "":
			panic(refusal("minimax_m3_xml element names cannot be blank"))
		}
		return m3.never + "<" + name + ">"
	}
	m3.shut = func(name string, member bool) string {
		if !member {
			name = "item"
		}
		return m3.never + "</" + name + ">"
	}
	m3.describe = func(*value) string { return "" }
	m3.given = func(v *value) string {
		switch {
		case v.is('"') && strings.Contains(v.text, m3.never):
			panic(refusal("A minimax_m3_xml string literal cannot contain the namespace marker"))
		case v.is('"'):
			return v.text
		case !v.is('{') && !v.is('['):
			return string(v.append(nil))
		}
		var b strings.Builder
		for i, kid := range v.vals {
			name := ""
			if v.is('{') {
				name = v.keys[i]
			}
			b.WriteString(m3.open(name, v.is('{')) + m3.given(kid) + m3.shut(name, v.is('{')))
		}
		return b.String()
	}
	all := map[string]*style{cohere.name: cohere, m3.name: m3}
	for _, f := range flatStyles {
		all[f[0]] = flat(f[0], f[1], f[2], f[3])
	}
	return all
}()

// styleCompiler makes the nodes of a schema in a style.
type styleCompiler struct {
	*compiler
	*style
	values map[*value]*node // the node between open and shut
}

// value returns the node between open and shut. It returns the same node each time, so that schemas may refer to
// themselves.
func (c *styleCompiler) value(v *value, depth int) *node {
	if n := c.values[v]; n != nil {
		return n
	}
	n := c.node(node{})
	c.values[v] = n
	c.options(n, v, true, depth)
	return n
}

// options makes n write one of the values that a schema allows, with its type if the tag contains it.
func (c *styleCompiler) options(n *node, v *value, describe bool, depth int) {
	n.kind = either
	for _, option := range c.choices(v, depth) {
		body := c.body(option, depth+1)
		if describe {
			body = c.sequence(c.literal(c.describe(option)), body)
		}
		n.kids = append(n.kids, body)
	}
}

// choices returns the schemas of one type, or of one value, that a schema allows.
func (c *styleCompiler) choices(v *value, depth int) []*value {
	if depth > 2*maxDepth {
		panic(refusal("nested more than %d deep", maxDepth))
	}
	c.spend(nodeWork)
	v = c.plain(v)
	var all []*value
	switch {
	case v.is('f'):
		panic(never("schema is false"))
	case v.get("const") != nil:
		return []*value{v}
	case v.get("enum") != nil:
		for _, x := range v.fitting() {
			all = append(all, c.with("const", x))
		}
		return all
	}
	options := c.alternatives(v)
	if options == nil {
		return []*value{v}
	}
	for _, o := range options {
		all = append(all, c.choices(o, depth+1)...)
	}
	return all
}

// body returns the node of a value of one type.
func (c *styleCompiler) body(v *value, depth int) *node {
	if only := v.get("const"); only != nil {
		return c.literal(c.given(only))
	}
	switch kind := v.typeName(); {
	case !c.deep && (depth > 1 || kind != "object" && kind != ""):
		return c.raw(v)
	case kind == "object":
		return c.object(v, depth)
	case kind == "array":
		return c.array(v, depth)
	case kind == "" && c.fixed:
		panic(refusal("%s does not support unconstrained schemas", c.name))
	case kind == "" && depth == 1: // arguments without a schema
		return c.literal("")
	case kind == "string" && c.fixed:
		_, known := formats[formatOf(v)]
		if known || v.get("pattern") != nil || v.get("minLength") != nil || v.get("maxLength") != nil {
			panic(refusal("String pattern, recognized format, and length constraints are not supported by %s",
				c.name))
		}
		return c.raw(v.without("format"))
	}
	return c.raw(v)
}

func formatOf(v *value) string {
	if f := v.get("format"); f.is('"') {
		return f.text
	}
	return ""
}

// tagged returns a member, or an element, with its tags.
func (c *styleCompiler) tagged(name string, member bool, v *value, depth int) *node {
	open := c.literal(c.open(name, member))
	return c.sequence(open, c.value(v, depth), c.literal(c.shut(name, member)))
}

// object returns the members that a schema names, and as many others as it requires.
func (c *styleCompiler) object(v *value, depth int) *node {
	properties, others := v.get("properties"), v.others()
	if others.is('f') {
		others = nil
	}
	switch {
	case properties == nil:
		properties = &value{kind: '{', spend: c.spend}
	case !properties.is('{'):
		panic(refusal("properties must be an object"))
	}
	if c.fixed && (others != nil || v.get("patternProperties") != nil || v.get("propertyNames") != nil) {
		panic(refusal("%s requires fixed object property names; additionalProperties, "+
			"unevaluatedProperties, patternProperties, and propertyNames are not supported", c.name))
	}
	required := v.strings("required")
	var n node
	counts(&n, v, "minProperties", "maxProperties")
	c.spend(len(required) * (len(required) + len(properties.keys)))
	least, most := n.least, n.most
	names, schemas, must := slices.Clone(properties.keys), slices.Clone(properties.vals), map[string]bool{}
	for _, name := range required {
		if !slices.Contains(names, name) {
			switch {
			case c.fixed:
				panic(refusal("%s required property has no fixed schema: %s", c.name, name))
			case others == nil: // xgrammar ignores it too
				continue
			}
			names, schemas = append(names, name), append(schemas, others)
		}
		must[name] = true
	}
	if most >= 0 && most < len(must) {
		panic(never("maxProperties is less than the number of required properties: %d < %d", most, len(must)))
	}
	if least > len(names) && (others == nil || v.get("patternProperties") != nil || v.get("propertyNames") != nil) {
		panic(never("minProperties is greater than the number of properties, but additional properties aren't "+
			"allowed: %d > %d", least, len(names)))
	}
	more := min(max(least-len(names), 1), maxOthers)
	if others == nil {
		more = 0
	} else if least > len(names)+more {
		panic(refusal("minProperties is at most %d more than there are properties, got %d", maxOthers, least))
	}
	for i := 1; more > 0; i++ {
		if name := "key" + strconv.Itoa(i); !slices.Contains(names, name) {
			names, schemas = append(names, name), append(schemas, others)
			more--
		}
	}
	perhaps := len(names) - len(must) // optional members
	if most >= 0 {
		perhaps = min(perhaps, most-len(must))
	}
	need := max(least-len(must), 0) // number of optional members that must be present
	all := []*node{c.literal("")}
	for i, name := range names {
		if !must[name] && perhaps == 0 {
			continue
		}
		member := c.tagged(name, true, schemas[i], depth)
		if !must[name] {
			if perhaps--; need > 0 {
				need--
			} else {
				member = c.repeat(member, 0, 1)
			}
		}
		all = append(all, member)
	}
	return c.sequence(all...)
}

// maxOthers limits the members without a name in the schema.
const maxOthers = 64

// array returns the elements that a schema describes.
func (c *styleCompiler) array(v *value, depth int) *node {
	var n node
	counts(&n, v, "minItems", "maxItems")
	least, most := n.least, n.most
	prefix, items := v.elements()
	if first := len(prefix.list()); most >= 0 && most < first {
		panic(never("maxItems is less than the number of prefixItems: %d < %d", most, first))
	}
	all := []*node{c.literal("")}
	for _, p := range prefix.list() {
		item := c.tagged("", false, p, depth)
		all = append(all, item)
	}
	had := len(all) - 1
	if items == nil || items.is('f') || most == had {
		if least > had {
			panic(never("minItems is greater than the number of items, but additional items aren't allowed: %d "+
				"> %d", least, had))
		}
		return c.sequence(all...)
	}
	item := c.tagged("", false, items, depth)
	if most >= 0 {
		most -= had
	}
	return c.sequence(append(all, c.repeat(item, max(least-had, 0), most))...)
}
