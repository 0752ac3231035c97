package structured

import (
	"strconv"
)

// schema returns the node of a JSON text, or of a text in one of the styles.
func (t *tagCompiler) schema(v *value, kind string) *node {
	schema := v.get("json_schema")
	if !schema.is('{') && !schema.is('t') && !schema.is('f') {
		panic(refusal("JSON schema format must have a json_schema field with a object or boolean value"))
	}
	excludes := v.strings("excludes")
	if blanks := v.get("max_whitespace_cnt"); blanks != nil && !blanks.is('n') {
		if n, err := strconv.Atoi(blanks.lit); err != nil || n < 1 {
			panic(refusal("max_whitespace_cnt must be positive."))
		}
	}
	name := "json"
	if s := v.get("style"); s != nil {
		name = s.text
	}
	if kind == "qwen_xml_parameter" {
		name = "qwen_xml"
	}
	if name == "json" {
		return t.json(schema, excludes)
	}
	s := styles[name]
	switch {
	case s == nil:
		panic(refusal("style must be json, qwen_xml, minimax_xml, minimax_m3_xml, deepseek_xml, glm_xml, "+
			"cohere_xml, kimi_k3_xml or deepseek_v4_1_xml, got %q", name))
	case s.deep && len(excludes) > 0:
		panic(refusal("JSONSchemaFormat.excludes is not supported for %s", name))
	}
	return t.part(func(b *builder) *node {
		c := styleCompiler{newCompiler(schema, b), s, map[*value]*node{}}
		c.excludes = append(excludes, s.never)
		n := c.node(node{})
		c.options(n, schema, false, 0) // the outermost value has no tag
		return n
	})
}

// json returns the node of a JSON text whose strings do not contain the excluded texts.
func (t *tagCompiler) json(schema *value, excludes []string) *node {
	return t.part(func(b *builder) *node {
		c := newCompiler(schema, b)
		c.excludes = excludes
		return c.schema(schema, 0)
	})
}

// typeName returns the one type of a schema: "string" if that is one of several, "" if the schema has none.
func (v *value) typeName() string {
	of := v.get("type")
	if first := v.get("enum").list(); of == nil && len(first) > 0 {
		of = typeOf(first[0])
	} else if x := v.get("const"); of == nil && x != nil {
		of = typeOf(x)
	} else if of.is('[') && len(of.vals) > 0 {
		of = of.vals[0]
	}
	if of.is('"') {
		return of.text
	}
	return v.kindByKeyword(2) // xgrammar considers object and array here
}

// typeOf returns the name of a value's type.
func typeOf(v *value) *value {
	names := map[byte]string{'{': "object", '[': "array", '"': "string", '0': "number", 't': "boolean", 'f': "boolean",
		'n': "null"}
	return &value{kind: '"', text: names[v.kind]}
}

// plain returns a schema without its references.
func (c *compiler) plain(v *value) *value {
	for _, key := range []string{"$ref", "allOf"} {
		for depth := 0; v.get(key) != nil; depth++ {
			if depth > maxDepth {
				panic(refusal("nested more than %d deep", maxDepth))
			}
			v = c.together(v, key)
		}
	}
	return v
}

// raw returns a value in a style: a string without its quotes, any other value as JSON.
func (c *compiler) raw(v *value) *node {
	switch only := v.get("const"); {
	case only.is('"'):
		return c.literal(only.text)
	case only != nil:
		return c.literal(only.compact())
	case v.typeName() == "":
		return c.without(c.excludes, "")
	case v.typeName() != "string":
		return c.schema(v, 0)
	}
	if pattern := v.pattern(); pattern != "" {
		return c.regex(pattern, 0, false)
	}
	n := c.node(node{kind: str, bare: true, excludes: c.excludes})
	counts(n, v, "minLength", "maxLength")
	return n
}
