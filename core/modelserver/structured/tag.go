package structured

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Tag returns the form of a structural tag: text with parts between marks that follow forms of their own. The tag is an
// object with a format, in xgrammar's syntax (python/xgrammar/structural_tag.py of 0.2.8), or the older object with
// structures and triggers. token returns the text of a token id, and whether there is one.
//
// Tag refuses what xgrammar refuses without a tokenizer, which is how vLLM calls it before it accepts a request: for
// example, a token that the tag names by its text.
func Tag(raw json.RawMessage, token func(id uint32) (string, bool), spend func(int) bool) (*Grammar, error) {
	return build(spend, func(b *builder) *node {
		notTooLong("structural tag", len(raw))
		t := tagCompiler{builder: b, token: token}
		root := t.root(b.value(raw))
		if root.kind == free && root.words.least == 0 {
			root.words.long = true
		}
		return root
	})
}

// tagCompiler makes the nodes of a structural tag.
type tagCompiler struct {
	*builder
	token func(id uint32) (string, bool)
}

// freeText is text of arbitrary words, within bounds.
type freeText struct {
	excludes []string // texts that must not occur in it
	work     int      // work of searching for them, for each word
	next     string   // the text after it
	most     int      // bytes, below 0 without a limit
	least    int      // in words
	long     bool     // as long as the target of the whole text
}

// surroundings are the context of a part of a structural tag: the marks that would end the part, and the one that does
// if there is one.
type surroundings struct {
	ends []string
	next string
}

func (t *tagCompiler) root(v *value) *node {
	if !v.is('{') {
		panic(refusal("Structural tag must be an object"))
	}
	if kind := v.get("type"); kind != nil && (!kind.is('"') || kind.text != "structural_tag") {
		panic(refusal(`Structural tag's type must be a string "structural_tag"`))
	}
	if v.get("structures") == nil {
		format := v.get("format")
		if format == nil {
			panic(refusal("Structural tag must have a format field"))
		}
		return t.format(format, surroundings{}, 0)
	}
	triggers := v.strings("triggers")
	old := v.get("structures")
	if !old.is('[') {
		panic(refusal("structures must be an array"))
	}
	tags := make([]tag, len(old.vals))
	for i, s := range old.vals {
		begin, end, schema := s.get("begin"), s.get("end"), s.get("schema")
		if !begin.is('"') || !end.is('"') || !schema.is('{') {
			panic(refusal("structures[%d] must have the strings begin and end, and an object as its schema", i))
		}
		content := t.json(schema, nil)
		tags[i] = t.tagged(begin.text, content, []string{end.text})
	}
	return t.triggered(triggers, tags, nil, surroundings{}, false, false)
}

// format returns the node of a format.
func (t *tagCompiler) format(v *value, around surroundings, depth int) *node {
	if !v.is('{') {
		panic(refusal("Format must be an object"))
	}
	if depth > maxDepth {
		panic(refusal("nested more than %d deep", maxDepth))
	}
	t.spend(nodeWork)
	depth++
	switch kind := v.formatType(); kind {
	case "const_string":
		text := v.get("value")
		if !text.is('"') {
			panic(refusal("Const string format's value must be a string"))
		}
		return t.literal(text.text)
	case "json_schema", "qwen_xml_parameter":
		return t.schema(v, kind)
	case "regex":
		pattern := v.get("pattern")
		if !pattern.is('"') || pattern.text == "" {
			panic(refusal("Regex format must have a pattern field with a non-empty string"))
		}
		return t.part(func(b *builder) *node { return b.regex(pattern.text, 0, false) })
	case "grammar":
		text := v.get("grammar")
		if !text.is('"') || text.text == "" {
			panic(refusal("Grammar format must have a grammar field with a non-empty string"))
		}
		return t.part(func(b *builder) *node { return b.parse(text.text, ebnf) })
	case "any_text", "any_tokens":
		return t.anyText(v, around)
	case "token":
		return t.tokenOf(v.get("token"))
	case "exclude_token":
		n := t.free(around, nil)
		n.words.least, n.words.next = 1, ""
		return n
	case "sequence", "or":
		return t.several(v, kind, around, depth)
	case "tag":
		return t.tag(v, depth).node
	case "optional", "plus", "star", "repeat":
		least, most := v.times(kind)
		return t.repeat(t.format(v.get("content"), around, depth), least, most)
	case "triggered_tags", "token_triggered_tags":
		return t.triggeredTags(v, kind, around, depth)
	case "tags_with_separator":
		return t.separated(v, depth)
	case "dispatch", "token_dispatch":
		return t.dispatch(v, kind, around, depth)
	default:
		panic(refusal("Format type not recognized: %s", kind))
	}
}

func (t *tagCompiler) several(v *value, kind string, around surroundings, depth int) *node {
	elements := v.get("elements")
	if !elements.is('[') || len(elements.vals) == 0 {
		panic(refusal("%s format must have at least one element", strings.ToUpper(kind[:1])+kind[1:]))
	}
	kids := make([]*node, len(elements.vals))
	for i, e := range elements.vals {
		last := around
		if kind == "sequence" && i < len(kids)-1 {
			last.next = ""
		}
		kids[i] = t.format(e, last, depth)
	}
	if kind == "or" {
		return t.either(kids...)
	}
	return t.sequence(kids...)
}

// free returns text of arbitrary words that fits its context.
func (t *tagCompiler) free(around surroundings, excludes []string) *node {
	return t.without(slices.Concat(excludes, around.ends), around.next)
}

// without returns text of arbitrary words without the excluded texts, before next.
func (b *builder) without(excludes []string, next string) *node {
	b.spend(copyWork * len(excludes))
	return b.node(node{kind: free,
		words: &freeText{excludes: excludes, work: lengthOf(excludes), next: next, most: -1}})
}

func lengthOf(texts []string) int {
	n := 0
	for _, t := range texts {
		n += len(t) + 1
	}
	return n
}

func (t *tagCompiler) anyText(v *value, around surroundings) *node {
	excludes := v.strings("excludes")
	n := t.free(around, excludes)
	for _, name := range []string{"max_tokens", "max_chars"} {
		limit := v.get(name)
		if limit == nil || limit.is('n') {
			continue
		}
		most, err := strconv.ParseInt(limit.lit, 10, 32)
		if err != nil || most < 0 {
			panic(refusal("%s in %s must be a non-negative 32-bit integer or null", name, v.formatType()))
		}
		if n.words.most < 0 || int(most) < n.words.most {
			n.words.most = int(most) // a token or a character has at least one byte
		}
	}
	return n
}

// tag is one tag: its beginning, and all of it.
type tag struct {
	begin string
	node  *node
}

func (t *tagCompiler) tagged(begin string, content *node, ends []string) tag {
	kids := make([]*node, len(ends))
	for i, e := range ends {
		kids[i] = t.literal(e)
	}
	return tag{begin, t.sequence(t.literal(begin), content, t.either(kids...))}
}

// mark returns the text of a tag's mark, or of a token.
func (t *tagCompiler) mark(v *value) string {
	if !v.is('{') {
		return v.text
	}
	return t.tokenOf(v.get("token")).text
}

func (t *tagCompiler) tag(v *value, depth int) tag {
	if kind := v.get("type"); kind != nil && kind.text != "tag" {
		panic(refusal(`Tag format's type must be a string "tag"`))
	}
	begin, end := v.get("begin"), v.get("end")
	if !begin.is('"') && !begin.is('{') {
		panic(refusal("Tag format's begin field must be a string or a token"))
	}
	first := t.mark(begin)
	var ends []string
	switch {
	case end.is('"'), end.is('{'):
		ends = []string{t.mark(end)}
	case !end.is('['):
		panic(refusal("Tag format's end field must be a string or array of strings"))
	case len(end.vals) == 0:
		panic(refusal("Tag format's end array cannot be empty"))
	default:
		ends = v.strings("end")
	}
	content := v.get("content")
	if content == nil {
		panic(refusal("Tag format must have a content field"))
	}
	around := surroundings{ends: slices.DeleteFunc(slices.Clone(ends), func(e string) bool { return e == "" })}
	if len(ends) == 1 {
		around.next = ends[0]
	}
	n := t.format(content, around, depth)
	if len(around.ends) == 0 && content.unlimited() {
		panic(refusal("When the content is unlimited, at least one end string must be non-empty"))
	}
	return t.tagged(first, n, ends)
}

func (t *tagCompiler) tags(v *value, depth int) []tag {
	list := v.get("tags")
	if !list.is('[') || len(list.vals) == 0 {
		panic(refusal("%s format's tags must be non-empty", v.formatType()))
	}
	out := make([]tag, len(list.vals))
	for i, one := range list.vals {
		out[i] = t.tag(one, depth)
	}
	return out
}
