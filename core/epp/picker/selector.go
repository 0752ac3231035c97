package picker

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Selector is a Kubernetes label selector: all of its requirements must hold. An empty one selects everything; its
// meaning to an InferencePool is decided elsewhere.
type Selector []Requirement

// Requirement is one condition on one label.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"` // In, NotIn, Exists, DoesNotExist
	Values   []string `json:"values"`
}

// SelectLabels returns the selector of objects that have all of these labels (matchLabels).
func SelectLabels(labels map[string]string) Selector {
	var s Selector
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		s = append(s, Requirement{key, "In", []string{labels[key]}})
	}
	return s
}

// Check returns an error if a requirement (matchExpressions) is invalid.
func (r *Requirement) Check() error {
	switch {
	case r.Key == "" || r.Operator == "":
		return errors.New("key and operator are both needed")
	case !slices.Contains([]string{"In", "NotIn", "Exists", "DoesNotExist"}, r.Operator):
		return fmt.Errorf("%q is not a label selector operator; expected In, NotIn, Exists or DoesNotExist", r.Operator)
	case (r.Operator == "In" || r.Operator == "NotIn") != (len(r.Values) > 0):
		return fmt.Errorf("operator %s and values do not fit: In and NotIn need some, the others none", r.Operator)
	}
	return nil
}

func (r *Requirement) matches(labels map[string]string) bool {
	v, has := labels[r.Key]
	switch r.Operator {
	case "In":
		return has && slices.Contains(r.Values, v)
	case "NotIn":
		return !has || !slices.Contains(r.Values, v)
	case "Exists":
		return has
	}
	return !has // DoesNotExist
}

// Unmet returns the first requirement that the labels do not meet, nil if there is none.
func (s Selector) Unmet(labels map[string]string) *Requirement {
	for i := range s {
		if !s[i].matches(labels) {
			return &s[i]
		}
	}
	return nil
}

// Matches reports whether the labels meet the selector.
func (s Selector) Matches(labels map[string]string) bool { return s.Unmet(labels) == nil }

// ParseSelector reads the flag --endpoint-selector: "app=sim,tier!=x",
// "zone in (a, b)", "zone notin (c)", "gpu", "!gpu".
func ParseSelector(text string) (s Selector, err error) {
	for rest := strings.TrimSpace(text); rest != ""; {
		end := strings.IndexByte(rest, ',')
		if open := strings.IndexByte(rest, '('); open >= 0 && (end < 0 || open < end) {
			shut := strings.IndexByte(rest, ')')
			if shut < open {
				return nil, fmt.Errorf("selector %q: a closing parenthesis is missing", text)
			}
			if end = strings.IndexByte(rest[shut:], ','); end >= 0 {
				end += shut
			}
		}
		term := rest
		if end >= 0 {
			term, rest = rest[:end], strings.TrimSpace(rest[end+1:])
			if rest == "" {
				return nil, fmt.Errorf("selector %q ends with a comma", text)
			}
		} else {
			rest = ""
		}
		r, ok := parseRequirement(strings.TrimSpace(term))
		if !ok {
			return nil, fmt.Errorf("selector %q: cannot read %q; expected key=value, key!=value, key in (a,b), key "+
				"notin (a,b), key or !key", text, term)
		}
		s = append(s, r)
	}
	if len(s) == 0 {
		return nil, errors.New("the selector is empty and would select everything")
	}
	return s, nil
}

// requirement matches one condition: "!key", "key", "key = value", "key != value", "key in (a, b)".
var requirement = regexp.MustCompile(`(?s)^(!?)\s*([-\w./]+)(?:\s*(==?|!=)\s*([-\w./]*)|\s+(in|notin)\s*\((.*)\))?$`)

var operators = map[string]string{"": "Exists", "!": "DoesNotExist", "=": "In", "==": "In", "!=": "NotIn", "in": "In",
	"notin": "NotIn"}

func parseRequirement(term string) (r Requirement, ok bool) {
	m := requirement.FindStringSubmatch(term)
	if m == nil || m[1] != "" && m[3] != "" {
		return r, false
	}
	r.Key, r.Operator = m[2], operators[m[1]+m[3]+m[5]]
	if m[3] != "" {
		r.Values = []string{m[4]}
	}
	if m[5] != "" {
		for v := range strings.SplitSeq(m[6], ",") {
			r.Values = append(r.Values, strings.TrimSpace(v))
		}
	}
	return r, r.Operator != ""
}
