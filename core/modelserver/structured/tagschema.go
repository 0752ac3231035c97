package structured

import (
	"errors"
	"fmt"
	"strconv"
)

// schema returns the node of a JSON text, or of a text in one of the styles.
func (t *tagCompiler) schema(v *value, kind string) (*node, error) {
	schema := v.get("json_schema")
	if !schema.is('{') && !schema.is('t') && !schema.is('f') {
		return nil, errors.New("JSON schema format must have a json_schema field with a object or boolean value")
	}
	excludes, err := v.strings("excludes")
	if err != nil {
		return nil, err
	}
	if blanks := v.get("max_whitespace_cnt"); blanks != nil && !blanks.is('n') {
		if n, err := strconv.Atoi(blanks.lit); err != nil || n < 1 {
			return nil, errors.New("max_whitespace_cnt must be positive.")
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
		return nil, fmt.Errorf("style must be json, qwen_xml, minimax_xml, minimax_m3_xml, deepseek_xml, glm_xml, "+
			"cohere_xml, kimi_k3_xml or deepseek_v4_1_xml, got %q", name)
	case s.deep && len(excludes) > 0:
		return nil, fmt.Errorf("JSONSchemaFormat.excludes is not supported for %s", name)
	}
	c := styleCompiler{newCompiler(schema, &builder{spend: t.spend}), s, map[*value]*node{}}
	c.excludes = append(excludes, s.never)
	root, err := c.root(schema)
	if err != nil {
		return nil, err
	}
	return within(c.grammar(root))
}

// json returns the node of a JSON text whose strings do not contain the excluded texts.
func (t *tagCompiler) json(schema *value, excludes []string) (*node, error) {
	c := newCompiler(schema, &builder{spend: t.spend})
	c.excludes = excludes
	root, err := c.schema(schema, 0)
	if err != nil {
		return nil, err
	}
	return within(c.grammar(root))
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
func (c *compiler) plain(v *value) (*value, error) {
	for _, key := range []string{"$ref", "allOf"} {
		for depth := 0; v.get(key) != nil; depth++ {
			if depth > maxDepth {
				return nil, fmt.Errorf("nested more than %d deep", maxDepth)
			}
			var err error
			if v, err = c.together(v, key); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// raw returns a value in a style: a string without its quotes, any other value as JSON.
func (c *compiler) raw(v *value) (*node, error) {
	switch only := v.get("const"); {
	case only.is('"'):
		return c.literal(only.text), nil
	case only != nil:
		return c.literal(only.compact()), nil
	case v.typeName() == "":
		return c.without(c.excludes, ""), nil
	case v.typeName() != "string":
		return c.schema(v, 0)
	}
	pattern, err := v.pattern()
	if err != nil {
		return nil, err
	}
	if pattern != "" {
		return c.regex(pattern, 0, false)
	}
	n := c.node(node{kind: str, bare: true, excludes: c.excludes})
	return n, counts(n, v, "minLength", "maxLength")
}
