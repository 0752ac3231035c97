package objects

import (
	"math"

	"github.com/windtunnel/windtunnel/core/picker"
)

// Ref is a poolRef: the pool that an object is about, in its own namespace.
// Without a group every pool of the name is meant.
type Ref struct{ Group, Kind, Name string }

func readRef(v value) Ref {
	ref := Ref{Kind: "InferencePool"}
	v.fields(map[string]func(value){
		"group": func(v value) { ref.Group = v.text() },
		"kind":  func(v value) { ref.Kind = v.text() },
		"name":  func(v value) { ref.Name = v.text() },
	})
	if ref.Name == "" {
		v.get("name").fail("the name of the pool is needed")
	}
	return ref
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
		v.fields(map[string]func(value){
			"priority": func(v value) { o.Priority = int(v.number(math.MinInt32, math.MaxInt32, 0)) },
			"poolRef":  func(v value) { o.Pool = readRef(v) },
		})
	}
	v.fields(body)
	if o.Pool.Name == "" && !v.get("spec").get("poolRef").given() {
		v.get("spec").get("poolRef").fail("poolRef is needed: it says whose objective this is")
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
		v.fields(map[string]func(value){
			"poolRef": func(v value) { w.Pool = readRef(v) },
			"rules": func(v value) {
				for _, e := range v.list() {
					w.Rules = append(w.Rules, readRule(e))
				}
			},
		})
	}
	v.fields(body)
	if w.Pool.Name == "" && !v.get("spec").get("poolRef").given() {
		v.get("spec").get("poolRef").fail("poolRef is needed: it says whose rewrite this is")
	}
	return w
}

func readRule(v value) (r picker.RewriteRule) {
	v.fields(map[string]func(value){
		"matches": func(v value) {
			for _, e := range v.list() {
				e.fields(map[string]func(value){"model": func(v value) {
					model := v.get("value").text()
					v.fields(map[string]func(value){"type": func(v value) { v.oneOf("Exact") }, "value": func(value) {}})
					if model == "" {
						v.get("value").fail("the model's name is needed")
					}
					r.Models = append(r.Models, model)
				}})
				if !e.get("model").given() {
					e.fail("a match needs a model; a rule for every model has no matches at all")
				}
			}
		},
		"targets": func(v value) {
			for _, e := range v.list() {
				var t picker.RewriteTarget
				e.fields(map[string]func(value){
					"modelRewrite": func(v value) { t.Model = v.text() },
					"weight": func(v value) {
						w := int32(v.number(0, 1000000, 0))
						t.Weight = &w
					},
				})
				r.Targets = append(r.Targets, t)
			}
		},
	})
	if len(r.Targets) == 0 {
		v.get("targets").fail("a rule needs at least one target")
	}
	return r
}
