package structured

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Tag is the form of a structural tag: text in which what stands between marks
// keeps to forms of its own. It is an object with a format, as xgrammar has them
// (python/xgrammar/structural_tag.py of 0.2.8), or the older one with structures
// and triggers. token tells the text of a token id, and whether there is one.
//
// What is refused is what xgrammar refuses that has no tokenizer, as vLLM asks it
// before it takes a request: a token that is named by its text is.
func Tag(raw json.RawMessage, token func(id uint32) (string, bool), spend func(int) bool) (*Grammar, error) {
	if err := tooLong("structural tag", len(raw)); err != nil {
		return nil, err
	}
	v, err := parseValue(raw, spend)
	if err != nil {
		return nil, err
	}
	t := tagCompiler{builder: builder{spend: spend}, token: token}
	root, err := t.whole(v)
	if err != nil {
		return nil, err
	}
	if root.kind == free && root.words.least == 0 {
		root.words.long = true
	}
	return t.grammar(root)
}

// tagCompiler makes the nodes of a structural tag.
type tagCompiler struct {
	builder
	token func(id uint32) (string, bool)
}

// freeText is text of any words, within bounds.
type freeText struct {
	excludes []string // what must not stand in it
	work     int      // that looking for them takes, for each word
	next     string   // what follows it
	most     int      // bytes, below 0 without a limit
	least    int      // words
	long     bool     // as long as the whole text is meant to be
}

// surroundings are what a part of a structural tag has to mind of what is around
// it: the marks that would end it, and the one that does where there is one.
type surroundings struct {
	ends []string
	next string
}

func (t *tagCompiler) whole(v *value) (*node, error) {
	if !v.is('{') {
		return nil, errors.New("Structural tag must be an object")
	}
	if kind := v.get("type"); kind != nil && (!kind.is('"') || kind.text != "structural_tag") {
		return nil, errors.New(`Structural tag's type must be a string "structural_tag"`)
	}
	if v.get("structures") == nil {
		format := v.get("format")
		if format == nil {
			return nil, errors.New("Structural tag must have a format field")
		}
		return t.format(format, surroundings{}, 0)
	}
	triggers, err := v.strings("triggers")
	if err != nil {
		return nil, err
	}
	old := v.get("structures")
	if !old.is('[') {
		return nil, errors.New("structures must be an array")
	}
	tags := make([]tag, len(old.vals))
	for i, s := range old.vals {
		begin, end, schema := s.get("begin"), s.get("end"), s.get("schema")
		if !begin.is('"') || !end.is('"') || !schema.is('{') {
			return nil, fmt.Errorf("structures[%d] must have the strings begin and end, and an object as its schema", i)
		}
		content, err := t.json(schema, nil)
		if err != nil {
			return nil, err
		}
		tags[i] = t.tagged(begin.text, content, []string{end.text})
	}
	return t.triggered(triggers, tags, nil, surroundings{}, false, false)
}

// format is the node of a format.
func (t *tagCompiler) format(v *value, around surroundings, depth int) (*node, error) {
	if !v.is('{') {
		return nil, errors.New("Format must be an object")
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	if !t.spend(nodeWork) {
		return nil, errTooMuch
	}
	depth++
	inner := func() (*node, error) { return t.format(v.get("content"), around, depth) }
	switch kind := v.formatType(); kind {
	case "const_string":
		text := v.get("value")
		if !text.is('"') {
			return nil, errors.New("Const string format's value must be a string")
		}
		return t.literal(text.text), nil
	case "json_schema", "qwen_xml_parameter":
		return t.schema(v, kind)
	case "regex":
		pattern := v.get("pattern")
		if !pattern.is('"') || pattern.text == "" {
			return nil, errors.New("Regex format must have a pattern field with a non-empty string")
		}
		return within(Regex(pattern.text, t.spend))
	case "grammar":
		text := v.get("grammar")
		if !text.is('"') || text.text == "" {
			return nil, errors.New("Grammar format must have a grammar field with a non-empty string")
		}
		return within(parse(text.text, ebnf, t.spend))
	case "any_text", "any_tokens":
		return t.anyText(v, around)
	case "token":
		return t.tokenOf(v.get("token"))
	case "exclude_token":
		n := t.free(around, nil)
		n.words.least, n.words.next = 1, ""
		return n, nil
	case "sequence", "or":
		return t.several(v, kind, around, depth)
	case "tag":
		one, err := t.tag(v, depth)
		return one.node, err
	case "optional", "plus", "star", "repeat":
		least, most, err := v.times(kind)
		if err != nil {
			return nil, err
		}
		n, err := inner()
		if err != nil {
			return nil, err
		}
		return t.repeat(n, least, most), nil
	case "triggered_tags", "token_triggered_tags":
		return t.triggeredTags(v, kind, around, depth)
	case "tags_with_separator":
		return t.separated(v, depth)
	case "dispatch", "token_dispatch":
		return t.dispatch(v, kind, around, depth)
	default:
		return nil, fmt.Errorf("Format type not recognized: %s", kind)
	}
}

// formatType is what a format is: as it says, or as its members tell.
func (v *value) formatType() string {
	if kind := v.get("type"); kind != nil {
		return kind.text
	}
	for _, known := range []struct{ member, kind string }{{"value", "const_string"}, {"json_schema", "json_schema"}, {"pattern", "regex"}, {"grammar", "grammar"},
		{"begin", "tag"}, {"triggers", "triggered_tags"}, {"separator", "tags_with_separator"}} {
		if v.get(known.member) != nil {
			return known.kind
		}
	}
	return ""
}

// within is the root of a form that is a part of another one.
func within(g *Grammar, err error) (*node, error) {
	if err != nil {
		return nil, err
	}
	return g.root, nil
}

func (t *tagCompiler) several(v *value, kind string, around surroundings, depth int) (*node, error) {
	elements := v.get("elements")
	if !elements.is('[') || len(elements.vals) == 0 {
		return nil, fmt.Errorf("%s format must have at least one element", strings.ToUpper(kind[:1])+kind[1:])
	}
	kids := make([]*node, len(elements.vals))
	for i, e := range elements.vals {
		last := around
		if kind == "sequence" && i < len(kids)-1 {
			last.next = ""
		}
		n, err := t.format(e, last, depth)
		if err != nil {
			return nil, err
		}
		kids[i] = n
	}
	if kind == "or" {
		return t.either(kids...), nil
	}
	return t.sequence(kids...), nil
}

// times is how often a repeating format stands.
func (v *value) times(kind string) (least, most int, err error) {
	switch kind {
	case "optional":
		return 0, 1, nil
	case "plus":
		return 1, -1, nil
	case "star":
		return 0, -1, nil
	}
	for _, f := range []struct {
		name string
		into *int
	}{{"min", &least}, {"max", &most}} {
		n := v.get(f.name)
		if !n.is('0') {
			return 0, 0, fmt.Errorf("Repeat format must have a %s field (number)", f.name)
		}
		if *f.into, err = strconv.Atoi(n.lit); err != nil || *f.into > endless {
			return 0, 0, fmt.Errorf("Repeat %s must be a whole number, got %s", f.name, n.lit)
		}
	}
	switch {
	case least < 0:
		err = errors.New("Repeat min must be >= 0")
	case most < -1:
		err = errors.New("Repeat max must be -1 (unbounded) or >= 0")
	case most >= 0 && least > most:
		err = errors.New("Repeat min must be <= max")
	}
	return least, most, err
}

// unlimited tells whether a format does not say itself where it ends.
func (v *value) unlimited() bool {
	all := func(v *value) bool { return slices.ContainsFunc(v.vals, (*value).unlimited) }
	switch v.formatType() {
	case "any_text", "any_tokens", "triggered_tags", "token_triggered_tags", "tags_with_separator", "dispatch", "token_dispatch", "star", "plus":
		return true
	case "sequence", "or":
		return all(v.get("elements"))
	case "optional":
		return v.get("content").unlimited()
	case "repeat":
		_, most, _ := v.times("repeat")
		return most < 0 || v.get("content").unlimited()
	}
	return false
}

// free is text of any words that minds what is around it.
func (t *tagCompiler) free(around surroundings, excludes []string) *node {
	return t.without(slices.Concat(excludes, around.ends), around.next)
}

// without is text of any words that has none of what is excluded and stands in front
// of next.
func (b *builder) without(excludes []string, next string) *node {
	return b.node(node{kind: free, words: &freeText{excludes: excludes, work: lengthOf(excludes), next: next, most: -1}})
}

func lengthOf(texts []string) int {
	n := 0
	for _, t := range texts {
		n += len(t) + 1
	}
	return n
}

func (t *tagCompiler) anyText(v *value, around surroundings) (*node, error) {
	excludes, err := v.strings("excludes")
	if err != nil {
		return nil, err
	}
	n := t.free(around, excludes)
	for _, name := range []string{"max_tokens", "max_chars"} {
		limit := v.get(name)
		if limit == nil || limit.is('n') {
			continue
		}
		most, err := strconv.ParseInt(limit.lit, 10, 32)
		if err != nil || most < 0 {
			return nil, fmt.Errorf("%s in %s must be a non-negative 32-bit integer or null", name, v.formatType())
		}
		if n.words.most < 0 || int(most) < n.words.most {
			n.words.most = int(most) // a token or a character has a byte at least
		}
	}
	return n, nil
}

// tokenOf is the text of a token.
func (t *tagCompiler) tokenOf(v *value) (*node, error) {
	if v.is('"') {
		return nil, errors.New("Token string resolution requires tokenizer_info")
	}
	if v == nil {
		return nil, errors.New("Token format must have a token field")
	}
	id, err := strconv.ParseUint(v.lit, 10, 32)
	if err == nil {
		if text, known := t.token(uint32(id)); known {
			return t.literal(text), nil
		}
	}
	return nil, fmt.Errorf("Token id %s is not in the vocabulary", v.lit)
}

// tag is one tag: how it begins, and all of it.
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

// mark is a text of a tag's, or of a token.
func (t *tagCompiler) mark(v *value) (string, error) {
	if !v.is('{') {
		return v.text, nil
	}
	n, err := t.tokenOf(v.get("token"))
	if err != nil {
		return "", err
	}
	return n.text, nil
}

func (t *tagCompiler) tag(v *value, depth int) (tag, error) {
	if kind := v.get("type"); kind != nil && kind.text != "tag" {
		return tag{}, errors.New(`Tag format's type must be a string "tag"`)
	}
	begin, end := v.get("begin"), v.get("end")
	if !begin.is('"') && !begin.is('{') {
		return tag{}, errors.New("Tag format's begin field must be a string or a token")
	}
	first, err := t.mark(begin)
	if err != nil {
		return tag{}, err
	}
	var ends []string
	switch {
	case end.is('"'), end.is('{'):
		text, err := t.mark(end)
		if err != nil {
			return tag{}, err
		}
		ends = []string{text}
	case !end.is('['):
		return tag{}, errors.New("Tag format's end field must be a string or array of strings")
	case len(end.vals) == 0:
		return tag{}, errors.New("Tag format's end array cannot be empty")
	default:
		if ends, err = v.strings("end"); err != nil {
			return tag{}, err
		}
	}
	content := v.get("content")
	if content == nil {
		return tag{}, errors.New("Tag format must have a content field")
	}
	around := surroundings{ends: slices.DeleteFunc(slices.Clone(ends), func(e string) bool { return e == "" })}
	if len(ends) == 1 {
		around.next = ends[0]
	}
	n, err := t.format(content, around, depth)
	if err != nil {
		return tag{}, err
	}
	if len(around.ends) == 0 && content.unlimited() {
		return tag{}, errors.New("When the content is unlimited, at least one end string must be non-empty")
	}
	return t.tagged(first, n, ends), nil
}

func (t *tagCompiler) tags(v *value, depth int) ([]tag, error) {
	list := v.get("tags")
	if !list.is('[') || len(list.vals) == 0 {
		return nil, fmt.Errorf("%s format's tags must be non-empty", v.formatType())
	}
	out := make([]tag, len(list.vals))
	for i, one := range list.vals {
		var err error
		if out[i], err = t.tag(one, depth); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// flag is a boolean member.
func (v *value) flag(name string, otherwise bool) (bool, error) {
	switch f := v.get(name); {
	case f == nil:
		return otherwise, nil
	case f.is('t'), f.is('f'):
		return f.is('t'), nil
	}
	return false, fmt.Errorf("%s must be a boolean", name)
}

// strings is a member that is a list of strings.
func (v *value) strings(name string) ([]string, error) {
	list := v.get(name)
	if list == nil {
		return nil, nil
	}
	bad := fmt.Errorf("%s must be an array of strings", name)
	if !list.is('[') {
		return nil, bad
	}
	out := make([]string, len(list.vals))
	for i, s := range list.vals {
		if !s.is('"') {
			return nil, bad
		}
		out[i] = s.text
	}
	return out, nil
}

// texts are a list of strings, or of tokens where of is not nil.
func (t *tagCompiler) texts(v *value, name string, tokens bool) ([]string, error) {
	if !tokens {
		return v.strings(name)
	}
	list := v.get(name)
	if list == nil {
		return nil, nil
	}
	if !list.is('[') {
		return nil, fmt.Errorf("%s must be an array of token ids", name)
	}
	out := make([]string, len(list.vals))
	for i, one := range list.vals {
		n, err := t.tokenOf(one)
		if err != nil {
			return nil, err
		}
		out[i] = n.text
	}
	return out, nil
}

func (t *tagCompiler) triggeredTags(v *value, kind string, around surroundings, depth int) (*node, error) {
	of, without, tokens := "triggers", "excludes", kind == "token_triggered_tags"
	if tokens {
		of, without = "trigger_tokens", "exclude_tokens"
	}
	triggers, err := t.texts(v, of, tokens)
	if err != nil {
		return nil, err
	}
	excludes, err := t.texts(v, without, tokens)
	if err != nil {
		return nil, err
	}
	if slices.Contains(excludes, "") {
		return nil, errors.New("Triggered tags format's excluded_strs must be non-empty strings")
	}
	for _, one := range v.get("tags").list() {
		if tokens != one.get("begin").is('{') {
			return nil, fmt.Errorf("Tags in %s must have a begin of the other kind, string or token", kind)
		}
	}
	tags, err := t.tags(v, depth)
	if err != nil {
		return nil, err
	}
	least, err := v.flag("at_least_one", false)
	if err != nil {
		return nil, err
	}
	stop, err := v.flag("stop_after_first", false)
	if err != nil {
		return nil, err
	}
	return t.triggered(triggers, tags, excludes, around, least, stop)
}

// list are the elements of an array; none of anything else.
func (v *value) list() []*value {
	if !v.is('[') {
		return nil
	}
	return v.vals
}

// triggered is any text in which each trigger begins one of its tags.
func (t *tagCompiler) triggered(triggers []string, tags []tag, excludes []string, around surroundings, least, stop bool) (*node, error) {
	switch {
	case len(triggers) == 0:
		return nil, errors.New("Triggered tags format's triggers must be non-empty")
	case slices.Contains(triggers, ""):
		return nil, errors.New("Triggered tags format's triggers must be non-empty strings")
	case len(tags) == 0:
		return nil, errors.New("Triggered tags format's tags must be non-empty")
	}
	if !t.spend(len(tags) * len(triggers)) {
		return nil, errTooMuch
	}
	used := map[string]bool{}
	for _, one := range tags {
		of := 0
		for _, trigger := range triggers {
			if strings.HasPrefix(one.begin, trigger) {
				of, used[trigger] = of+1, true
			}
		}
		switch of {
		case 0:
			return nil, errors.New("One tag does not match any trigger in a triggered tags format")
		case 1:
		default:
			return nil, errors.New("One tag matches multiple triggers in a triggered tags format")
		}
	}
	if len(used) < len(triggers) {
		return nil, errors.New("a trigger begins none of the tags")
	}
	return t.mixed(slices.Concat(excludes, triggers), tags, around, least, stop), nil
}

// mixed is any text with tags between: at least one at its beginning, or one at
// most, behind which it ends.
func (t *tagCompiler) mixed(excludes []string, tags []tag, around surroundings, least, stop bool) *node {
	bare, behind := make([]*node, len(tags)), make([]*node, len(tags))
	all := slices.Concat(excludes, around.ends)
	for i, one := range tags {
		bare[i] = one.node
		behind[i] = t.sequence(t.without(all, one.begin), one.node)
	}
	one, more, rest := t.either(bare...), t.either(behind...), t.without(all, around.next)
	switch {
	case least && stop:
		return one
	case stop:
		return t.either(more, more, more, rest) // mostly with one
	case least:
		return t.sequence(one, t.repeat(more, 0, -1), rest)
	}
	return t.sequence(t.repeat(more, 0, -1), rest)
}

func (t *tagCompiler) separated(v *value, depth int) (*node, error) {
	separator := v.get("separator")
	if !separator.is('"') {
		return nil, errors.New("Tags with separator format's separator field must be a string")
	}
	tags, err := t.tags(v, depth)
	if err != nil {
		return nil, err
	}
	least, err := v.flag("at_least_one", false)
	if err != nil {
		return nil, err
	}
	stop, err := v.flag("stop_after_first", false)
	if err != nil {
		return nil, err
	}
	kids := make([]*node, len(tags))
	for i, one := range tags {
		kids[i] = one.node
	}
	n := t.either(kids...)
	if !stop {
		n = t.sequence(n, t.repeat(t.sequence(t.literal(separator.text), n), 0, -1))
	}
	if !least {
		n = t.repeat(n, 0, 1)
	}
	return n, nil
}

func (t *tagCompiler) dispatch(v *value, kind string, around surroundings, depth int) (*node, error) {
	without, tokens := "excludes", kind == "token_dispatch"
	if tokens {
		without = "exclude_tokens"
	}
	excludes, err := t.texts(v, without, tokens)
	if err != nil {
		return nil, err
	}
	rules := v.get("rules").list()
	if len(rules) == 0 {
		return nil, errors.New("TagDispatch format rules must be non-empty")
	}
	var tags []tag
	for i, rule := range rules {
		pair := rule.list()
		if len(pair) != 2 || !tokens && !pair[0].is('"') {
			return nil, fmt.Errorf("rules[%d] must be a pattern and a format", i)
		}
		pattern := pair[0].text
		if tokens {
			n, err := t.tokenOf(pair[0])
			if err != nil {
				return nil, err
			}
			pattern = n.text
		}
		content, err := t.format(pair[1], surroundings{ends: around.ends}, depth)
		if err != nil {
			return nil, err
		}
		if excludes = append(excludes, pattern); pattern != "" {
			tags = append(tags, tag{pattern, t.sequence(t.literal(pattern), content)})
		}
	}
	loop, err := v.flag("loop", true)
	if err != nil || len(tags) == 0 {
		return t.free(around, excludes), err
	}
	return t.mixed(excludes, tags, around, false, !loop), nil
}
