package objects

import (
	"fmt"
	"slices"
	"strings"
)

// Selector is a label selector: all of its requirements must hold. Without
// any it selects nothing, as in an InferencePool.
type Selector struct{ Requirements []Requirement }

// Requirement is one condition on one label.
type Requirement struct {
	Key      string
	Operator string // In, NotIn, Exists, DoesNotExist
	Values   []string
}

// Matches says whether labels fulfil the selector.
func (s Selector) Matches(labels map[string]string) bool {
	for _, r := range s.Requirements {
		v, has := labels[r.Key]
		ok := has
		switch r.Operator {
		case "In":
			ok = has && slices.Contains(r.Values, v)
		case "NotIn":
			ok = !has || !slices.Contains(r.Values, v)
		case "DoesNotExist":
			ok = !has
		}
		if !ok {
			return false
		}
	}
	return len(s.Requirements) > 0
}

// readSelector reads matchLabels and matchExpressions; flat is the shape of
// v1alpha2, where the selector is the labels themselves.
func readSelector(v value, flat bool) (s Selector) {
	labels := func(v value) {
		for _, p := range v.pairs() {
			s.Requirements = append(s.Requirements, Requirement{p.key, "In", []string{p.text()}})
		}
	}
	if flat && !v.get("matchLabels").given() && !v.get("matchExpressions").given() {
		labels(v)
		return s
	}
	v.fields(map[string]func(value){
		"matchLabels": labels,
		"matchExpressions": func(v value) {
			for _, e := range v.list() {
				var r Requirement
				e.fields(map[string]func(value){
					"key":      func(v value) { r.Key = v.text() },
					"operator": func(v value) { r.Operator = v.oneOf("In", "NotIn", "Exists", "DoesNotExist") },
					"values":   func(v value) { r.Values = v.textList() },
				})
				switch {
				case r.Key == "" || r.Operator == "":
					e.fail("key and operator are both needed")
				case (r.Operator == "In" || r.Operator == "NotIn") != (len(r.Values) > 0):
					e.fail("operator %s and values do not fit: In and NotIn need some, the others none", r.Operator)
				}
				s.Requirements = append(s.Requirements, r)
			}
		},
	})
	return s
}

// ParseSelector reads the flag --endpoint-selector: "app=sim,tier!=x",
// "zone in (a, b)", "zone notin (c)", "gpu", "!gpu".
func ParseSelector(text string) (s Selector, err error) {
	for rest := strings.TrimSpace(text); rest != ""; {
		end := strings.IndexByte(rest, ',')
		if open := strings.IndexByte(rest, '('); open >= 0 && (end < 0 || open < end) {
			shut := strings.IndexByte(rest, ')')
			if shut < open {
				return Selector{}, fmt.Errorf("selector %q: a closing parenthesis is missing", text)
			}
			if end = strings.IndexByte(rest[shut:], ','); end >= 0 {
				end += shut
			}
		}
		term := rest
		if end >= 0 {
			term, rest = rest[:end], strings.TrimSpace(rest[end+1:])
			if rest == "" {
				return Selector{}, fmt.Errorf("selector %q ends with a comma", text)
			}
		} else {
			rest = ""
		}
		r, ok := parseRequirement(strings.TrimSpace(term))
		if !ok {
			return Selector{}, fmt.Errorf("selector %q: cannot read %q; expected key=value, key!=value, key in (a,b), key notin (a,b), key or !key", text, term)
		}
		s.Requirements = append(s.Requirements, r)
	}
	if len(s.Requirements) == 0 {
		return s, fmt.Errorf("the selector is empty and would select nothing")
	}
	return s, nil
}

func parseRequirement(term string) (Requirement, bool) {
	set := func(operator, key, list string) (Requirement, bool) {
		list = strings.TrimSpace(list)
		if !strings.HasPrefix(list, "(") || !strings.HasSuffix(list, ")") {
			return Requirement{}, false
		}
		var values []string
		for _, v := range strings.Split(list[1:len(list)-1], ",") {
			values = append(values, strings.TrimSpace(v))
		}
		return Requirement{key, operator, values}, isKey(key)
	}
	words := strings.Fields(term)
	switch {
	case len(words) > 1 && strings.HasPrefix(words[1], "notin"):
		return set("NotIn", words[0], strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(term, words[0])), "notin"))
	case len(words) > 1 && strings.HasPrefix(words[1], "in"):
		return set("In", words[0], strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(term, words[0])), "in"))
	case strings.HasPrefix(term, "!"):
		key := strings.TrimSpace(term[1:])
		return Requirement{Key: key, Operator: "DoesNotExist"}, isKey(key)
	}
	if key, v, ok := strings.Cut(term, "!="); ok {
		return one("NotIn", key, v)
	}
	if key, v, ok := strings.Cut(term, "="); ok {
		return one("In", key, strings.TrimPrefix(v, "="))
	}
	return Requirement{Key: term, Operator: "Exists"}, isKey(term)
}

func one(operator, key, v string) (Requirement, bool) {
	key, v = strings.TrimSpace(key), strings.TrimSpace(v)
	return Requirement{key, operator, []string{v}}, isKey(key) && (v == "" || isKey(v))
}

// isKey says whether a word has only the characters of label keys and values.
func isKey(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == ""
}
