package objects

import (
	"fmt"
	"math"
	"regexp"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/picker"
)

// Ref is a poolRef: the pool that an object is about, in its own namespace.
// Without a group every pool of the name is meant.
type Ref struct{ Group, Kind, Name string }

func readRef(v value) Ref {
	ref := Ref{Kind: "InferencePool"}
	v.Fields(map[string]func(value){
		"group": func(v value) {
			ref.Group = schemaText(v, groupForm, 253, "a group, such as inference.networking.k8s.io")
		},
		"kind": func(v value) { ref.Kind = schemaText(v, kindForm, 63, "a kind, such as InferencePool") },
		"name": func(v value) { ref.Name = schemaText(v, nil, 253, "the name of the pool") },
	})
	if !v.Get("name").Given() {
		v.Get("name").Fail("missing", "the name of the pool", "")
	}
	return ref
}

// What the API server demands of references, by the schemas of the CRDs.
var (
	groupForm = regexp.MustCompile(`^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	kindForm  = regexp.MustCompile(`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)
)

// schemaText reads text of at most so many characters and of a form. Without a
// form it must not be empty.
func schemaText(v value, form *regexp.Regexp, most int, want string) string {
	text := v.Text()
	switch n := utf8.RuneCountInString(text); {
	case !v.Given():
	case n > most:
		v.Fail(fmt.Sprintf("found %d characters", n), fmt.Sprintf("%s of at most %d", want, most), "")
	case form == nil && text == "", form != nil && !form.MatchString(text):
		v.Fail(v.Found(), want, "")
	}
	return text
}

func (r Ref) means(p *Pool) bool {
	return r.Name == p.Name && r.Kind == "InferencePool" && (r.Group == "" || r.Group == p.Group)
}

// Objective is an InferenceObjective. Without a priority it is 0.
type Objective struct {
	Meta
	Priority int
	Pool     Ref
}

func readObjective(v value, body map[string]func(value), meta Meta) Objective {
	o := Objective{Meta: meta}
	body["spec"] = func(v value) {
		v.Fields(map[string]func(value){
			"priority": func(v value) { o.Priority = int(v.Int(math.MinInt32, math.MaxInt32, 0)) },
			"poolRef":  func(v value) { o.Pool = readRef(v) },
		})
	}
	v.Fields(body)
	if o.Pool.Name == "" && !v.Get("spec").Get("poolRef").Given() {
		v.Get("spec").Get("poolRef").Fail("missing", "a poolRef: it says whose objective this is", "")
	}
	return o
}

// Rewrite is an InferenceModelRewrite.
type Rewrite struct {
	Meta
	Pool  Ref
	Rules []picker.RewriteRule
}

func readRewrite(v value, body map[string]func(value), meta Meta) Rewrite {
	w := Rewrite{Meta: meta}
	body["spec"] = func(v value) {
		v.Fields(map[string]func(value){
			"poolRef": func(v value) { w.Pool = readRef(v) },
			"rules": func(v value) {
				for _, e := range v.List() {
					w.Rules = append(w.Rules, readRule(e))
				}
			},
		})
	}
	v.Fields(body)
	if w.Pool.Name == "" && !v.Get("spec").Get("poolRef").Given() {
		v.Get("spec").Get("poolRef").Fail("missing", "a poolRef: it says whose rewrite this is", "")
	}
	if !v.Get("spec").Get("rules").Given() {
		v.Get("spec").Get("rules").Fail("missing", "rules; [] is none", "")
	}
	return w
}

func readRule(v value) (r picker.RewriteRule) {
	v.Fields(map[string]func(value){
		"matches": func(v value) {
			for _, e := range v.List() {
				e.Fields(map[string]func(value){"model": func(v value) {
					model := v.Get("value").Text()
					v.Fields(map[string]func(value){"type": func(v value) { v.OneOf("Exact") }, "value": func(value) {}})
					if model == "" {
						v.Get("value").Fail(v.Get("value").Found(), "the model's name", "")
					}
					r.Models = append(r.Models, model)
				}})
				if !e.Get("model").Given() {
					e.Fail("there is no model", "one: a rule for every model has no matches at all", "")
				}
			}
		},
		"targets": func(v value) {
			for _, e := range v.List() {
				var t picker.RewriteTarget
				e.Fields(map[string]func(value){
					"modelRewrite": func(v value) { t.Model = v.Text() },
					"weight": func(v value) {
						w := int32(v.Int(1, 1000000, 1))
						t.Weight = &w
					},
				})
				if !e.Get("modelRewrite").Given() {
					e.Get("modelRewrite").Fail("missing", "the model's name", "")
				}
				r.Targets = append(r.Targets, t)
			}
		},
	})
	if len(r.Targets) == 0 {
		v.Get("targets").Fail("there are none", "at least one target", "")
	}
	return r
}
