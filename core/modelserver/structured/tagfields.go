package structured

import (
	"slices"
	"strconv"
)

// formatType returns the type of a format: its explicit type, or else the type that its members imply.
func (v *value) formatType() string {
	if kind := v.get("type"); kind != nil {
		return kind.text
	}
	for _, known := range []struct{ member, kind string }{{"value", "const_string"}, {"json_schema", "json_schema"},
		{"pattern", "regex"}, {"grammar", "grammar"},
		{"begin", "tag"}, {"triggers", "triggered_tags"}, {"separator", "tags_with_separator"}} {
		if v.get(known.member) != nil {
			return known.kind
		}
	}
	return ""
}

// times returns the number of repetitions of a repeating format.
func (v *value) times(kind string) (least, most int) {
	switch kind {
	case "optional":
		return 0, 1
	case "plus":
		return 1, -1
	case "star":
		return 0, -1
	}
	for _, f := range []struct {
		name string
		into *int
	}{{"min", &least}, {"max", &most}} {
		n := v.get(f.name)
		if !n.is('0') {
			panic(refusal("Repeat format must have a %s field (number)", f.name))
		}
		var err error
		if *f.into, err = strconv.Atoi(n.lit); err != nil || *f.into > endless {
			panic(refusal("Repeat %s must be a whole number, got %s", f.name, n.lit))
		}
	}
	switch {
	case least < 0:
		panic(refusal("Repeat min must be >= 0"))
	case most < -1:
		panic(refusal("Repeat max must be -1 (unbounded) or >= 0"))
	case most >= 0 && least > most:
		panic(refusal("Repeat min must be <= max"))
	}
	return least, most
}

// unlimited reports whether a format does not define its own end.
func (v *value) unlimited() bool {
	all := func(v *value) bool { return slices.ContainsFunc(v.vals, (*value).unlimited) }
	switch v.formatType() {
	case "any_text", "any_tokens", "triggered_tags", "token_triggered_tags", "tags_with_separator", "dispatch",
		"token_dispatch", "star", "plus":
		return true
	case "sequence", "or":
		return all(v.get("elements"))
	case "optional":
		return v.get("content").unlimited()
	case "repeat":
		_, most := v.times("repeat")
		return most < 0 || v.get("content").unlimited()
	}
	return false
}

// flag returns a boolean member.
func (v *value) flag(name string, otherwise bool) bool {
	switch f := v.get(name); {
	case f == nil:
		return otherwise
	case f.is('t'), f.is('f'):
		return f.is('t')
	}
	panic(refusal("%s must be a boolean", name))
}

// strings returns a member that is a list of strings.
func (v *value) strings(name string) []string {
	list := v.get(name)
	if list == nil {
		return nil
	}
	out := make([]string, len(list.vals))
	for i, s := range list.vals {
		out[i] = s.text
	}
	if !list.is('[') || slices.ContainsFunc(list.vals, func(s *value) bool { return !s.is('"') }) {
		panic(refusal("%s must be an array of strings", name))
	}
	return out
}

// list returns the elements of an array; none for any other value.
func (v *value) list() []*value {
	if !v.is('[') {
		return nil
	}
	return v.vals
}

// texts returns the texts of a list of strings, or of tokens if tokens is set.
func (t *tagCompiler) texts(v *value, name string, tokens bool) []string {
	if !tokens {
		return v.strings(name)
	}
	list := v.get(name)
	if list == nil {
		return nil
	}
	if !list.is('[') {
		panic(refusal("%s must be an array of token ids", name))
	}
	out := make([]string, len(list.vals))
	for i, one := range list.vals {
		out[i] = t.tokenOf(one).text
	}
	return out
}

// tokenOf returns the text of a token.
func (t *tagCompiler) tokenOf(v *value) *node {
	if v.is('"') {
		panic(refusal("Token string resolution requires tokenizer_info"))
	}
	if v == nil {
		panic(refusal("Token format must have a token field"))
	}
	id, err := strconv.ParseUint(v.lit, 10, 32)
	if err == nil {
		if text, known := t.token(uint32(id)); known {
			return t.literal(text)
		}
	}
	panic(refusal("Token id %s is not in the vocabulary", v.lit))
}
