package structured

import (
	"slices"
	"strings"
)

func (t *tagCompiler) triggeredTags(v *value, kind string, around surroundings, depth int) *node {
	of, without, tokens := "triggers", "excludes", kind == "token_triggered_tags"
	if tokens {
		of, without = "trigger_tokens", "exclude_tokens"
	}
	triggers := t.texts(v, of, tokens)
	excludes := t.texts(v, without, tokens)
	if slices.Contains(excludes, "") {
		panic(refusal("Triggered tags format's excluded_strs must be non-empty strings"))
	}
	for _, one := range v.get("tags").list() {
		if tokens != one.get("begin").is('{') {
			panic(refusal("Tags in %s must have a begin of the other kind, string or token", kind))
		}
	}
	tags, least, stop := t.tagsAndCounts(v, depth)
	return t.triggered(triggers, tags, excludes, around, least, stop)
}

// tagsAndCounts returns a format's tags, and whether there is at least one tag and at most one.
func (t *tagCompiler) tagsAndCounts(v *value, depth int) (tags []tag, least, stop bool) {
	return t.tags(v, depth), v.flag("at_least_one", false), v.flag("stop_after_first", false)
}

// triggered returns any text in which each trigger begins one of its tags.
func (t *tagCompiler) triggered(triggers []string, tags []tag, excludes []string, around surroundings, least,
	stop bool) *node {
	switch {
	case len(triggers) == 0:
		panic(refusal("Triggered tags format's triggers must be non-empty"))
	case slices.Contains(triggers, ""):
		panic(refusal("Triggered tags format's triggers must be non-empty strings"))
	case len(tags) == 0:
		panic(refusal("Triggered tags format's tags must be non-empty"))
	}
	t.spend(4 * len(tags) * len(triggers))
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
			panic(refusal("One tag does not match any trigger in a triggered tags format"))
		case 1:
		default:
			panic(refusal("One tag matches multiple triggers in a triggered tags format"))
		}
	}
	if len(used) < len(triggers) {
		panic(refusal("a trigger begins none of the tags"))
	}
	return t.mixed(slices.Concat(excludes, triggers), tags, around, least, stop)
}

// mixed returns any text with tags in between: with at least one tag at the beginning, or with at most one, after which
// the text ends.
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
		return t.either(more, more, more, rest) // mostly with one more
	case least:
		return t.sequence(one, t.repeat(more, 0, -1), rest)
	}
	return t.sequence(t.repeat(more, 0, -1), rest)
}

func (t *tagCompiler) separated(v *value, depth int) *node {
	separator := v.get("separator")
	if !separator.is('"') {
		panic(refusal("Tags with separator format's separator field must be a string"))
	}
	tags, least, stop := t.tagsAndCounts(v, depth)
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
	return n
}

func (t *tagCompiler) dispatch(v *value, kind string, around surroundings, depth int) *node {
	without, tokens := "excludes", kind == "token_dispatch"
	if tokens {
		without = "exclude_tokens"
	}
	excludes := t.texts(v, without, tokens)
	rules := v.get("rules").list()
	if len(rules) == 0 {
		panic(refusal("TagDispatch format rules must be non-empty"))
	}
	var tags []tag
	for i, rule := range rules {
		pair := rule.list()
		if len(pair) != 2 || !tokens && !pair[0].is('"') {
			panic(refusal("rules[%d] must be a pattern and a format", i))
		}
		pattern := pair[0].text
		if tokens {
			pattern = t.tokenOf(pair[0]).text
		}
		content := t.format(pair[1], surroundings{ends: around.ends}, depth)
		if excludes = append(excludes, pattern); pattern != "" {
			tags = append(tags, tag{pattern, t.sequence(t.literal(pattern), content)})
		}
	}
	loop := v.flag("loop", true)
	if len(tags) == 0 {
		return t.free(around, excludes)
	}
	return t.mixed(excludes, tags, around, false, !loop)
}
