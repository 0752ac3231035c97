package objects

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// Ref is a poolRef: the pool in its own namespace that an object belongs to. Without a group it matches pools of any
// group.
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
	if v.IsMapping() {
		demand(v.Get("name"), "the name of the pool")
	}
	return ref
}

// The forms that the CRDs' schemas require of texts.
var (
	nameForm  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	spaceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	labelForm = regexp.MustCompile(`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`)
	groupForm = regexp.MustCompile(`^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	kindForm  = regexp.MustCompile(`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)
)

const aLabel = "letters, digits, -, _ and . with a letter or digit at both ends"

// schemaText reads text of a form, with at most so many characters. Without a form it must not be empty.
func schemaText(v value, form *regexp.Regexp, most int, want string) string {
	text := v.Text()
	if v.Given() && v.IsText() {
		checkText(v, text, form, most, want)
	}
	return text
}

func checkText(v value, text string, form *regexp.Regexp, most int, want string) {
	switch n := utf8.RuneCountInString(text); {
	case n > most:
		v.Fail(fmt.Sprintf("found %d characters", n), fmt.Sprintf("%s, at most %d characters", want, most), "")
	case form == nil && text == "", form != nil && !form.MatchString(text):
		v.Fail(v.Found(), want, "")
	}
}

// checkKeys checks the keys of labels, or of annotations, in which the API server ignores case.
func checkKeys(m value, form func(string) string) {
	for _, p := range m.Pairs() {
		prefix, name, qualified := strings.Cut(form(p.Name), "/")
		if !qualified {
			prefix, name = "a", prefix
		}
		if len(prefix) > 253 || len(name) > 63 || name == "" || !nameForm.MatchString(prefix) ||
			!labelForm.MatchString(name) {
			p.Key.Fail(p.Key.Found(), "a key such as app or llm-d.ai/role", "")
		}
	}
}

// demand fails if a required field is absent. null is absent: the API server prunes it.
func demand(v value, want string) {
	if !v.Given() {
		v.Fail("missing", want, "")
	}
}

func (r Ref) means(p *Pool) bool {
	return r.Name == p.Name && r.Kind == "InferencePool" && (r.Group == "" || r.Group == p.Group)
}

// Objective is an InferenceObjective. Its default priority is 0.
type Objective struct {
	Meta
	Priority int
	Pool     Ref
}

func readObjective(v value, body map[string]func(value), meta Meta) Objective {
	o := Objective{Meta: meta}
	readSpec(v, body, map[string]func(value){
		"priority": func(v value) { o.Priority = int(v.Int(math.MinInt32, math.MaxInt32, 0)) },
		"poolRef":  func(v value) { o.Pool = readRef(v) },
	})
	ofPool(v.Get("spec"), "objective")
	return o
}

// readSpec reads an object whose spec has these fields.
func readSpec(v value, body, spec map[string]func(value)) {
	body["spec"] = func(v value) { v.Fields(spec) }
	v.Fields(body)
}

// ofPool requires a spec's poolRef. It returns false if there is no spec: the schemas do not require one, and the
// object then belongs to no pool.
func ofPool(spec value, what string) bool {
	if !spec.Given() {
		spec.Warn("missing", "", "the "+what+" is of no pool")
		return false
	}
	demand(spec.Get("poolRef"), "a poolRef: it says whose "+what+" this is")
	return true
}

// Model is an InferenceModel of the inference extension before v1: a priority for all requests for a model, and the
// models that serve it.
type Model struct {
	Meta
	Name     string
	Priority int
	Targets  []picker.RewriteTarget
	Pool     Ref
}

// criticalities are the priorities that replaced the criticalities.
var criticalities = map[string]int{"Critical": 10, "Standard": 0, "Sheddable": -10}

func readModel(v value, body map[string]func(value), meta Meta) Model {
	m := Model{Meta: meta}
	readSpec(v, body, map[string]func(value){
		"modelName":   func(v value) { m.Name = schemaText(v, nil, 256, "the model that clients ask for") },
		"criticality": func(v value) { m.Priority = criticalities[v.OneOf("Critical", "Standard", "Sheddable")] },
		"poolRef":     func(v value) { m.Pool = readRef(v) },
		"targetModels": func(v value) {
			if n := len(v.List()); n > 10 {
				v.Fail(fmt.Sprintf("found %d models", n), "at most 10", "")
			}
			m.Targets = rewriteTargets(v, "name")
			weighted := len(slices.DeleteFunc(slices.Clone(m.Targets),
				func(t picker.RewriteTarget) bool { return t.Weight == nil }))
			if weighted > 0 && weighted < len(m.Targets) {
				v.Fail(fmt.Sprintf("%d of %d models have a weight", weighted, len(m.Targets)),
					"a weight for all, or for none", "")
			}
		},
	})
	if ofPool(v.Get("spec"), "model") {
		demand(v.Get("spec").Get("modelName"), "the model that clients ask for")
	}
	return m
}

// rewriteTargets reads models and their weights; name is the field of a model's name.
func rewriteTargets(v value, name string) (out []picker.RewriteTarget) {
	for _, e := range v.List() {
		var t picker.RewriteTarget
		e.Fields(map[string]func(value){
			name:     func(v value) { t.Model = v.Text() },
			"weight": func(v value) { t.Weight = new(int32(v.Int(1, 1000000, 1))) },
		})
		demand(e.Get(name), "the model's name")
		out = append(out, t)
	}
	return out
}

type Rewrite struct {
	Meta
	Pool  Ref
	Rules []picker.RewriteRule
}

func readRewrite(v value, body map[string]func(value), meta Meta) Rewrite {
	w := Rewrite{Meta: meta}
	readSpec(v, body, map[string]func(value){
		"poolRef": func(v value) { w.Pool = readRef(v) },
		"rules": func(v value) {
			for _, e := range v.List() {
				w.Rules = append(w.Rules, readRule(e))
			}
		},
	})
	if ofPool(v.Get("spec"), "rewrite") {
		demand(v.Get("spec").Get("rules"), "rules; [] is none")
	}
	return w
}

func readRule(v value) (r picker.RewriteRule) {
	v.Fields(map[string]func(value){
		"matches": func(v value) {
			for _, e := range v.List() {
				e.Fields(map[string]func(value){"model": func(v value) {
					model := v.Get("value").Text()
					v.Fields(map[string]func(value){"type": func(v value) { v.OneOf("Exact") },
						"value": func(value) {}})
					if v.Get("value").IsText() && model == "" || !v.Get("value").Given() {
						v.Get("value").Fail(v.Get("value").Found(), "the model's name", "")
					}
					r.Models = append(r.Models, model)
				}})
				if !e.Get("model").Given() {
					e.Fail("there is no model", "one: a rule for every model has no matches at all", "")
				}
			}
		},
		"targets": func(v value) { r.Targets = rewriteTargets(v, "modelRewrite") },
	})
	switch t := v.Get("targets"); {
	case !v.Given():
		v.Fail(v.Found(), "a rule", "")
	case t.IsList() && len(r.Targets) == 0:
		t.Fail("there are none", "at least one target", "")
	case !t.Given():
		v.Warn("there are no targets", "", "every request that the rule matches is answered with 400")
	}
	return r
}
