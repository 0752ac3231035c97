package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// labelSelector keeps endpoints whose labels a Kubernetes selector matches; an
// empty selector matches all. Types label-selector-filter and, deprecated,
// by-label-selector.
type labelSelector struct {
	named
	picker.Selector
}

func newLabelSelector(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	var spec struct {
		Labels      map[string]string    `json:"matchLabels"`
		Expressions []picker.Requirement `json:"matchExpressions"`
	}
	if err := p.Decode(&spec); err != nil {
		return nil, err
	}
	for i := range spec.Expressions {
		if err := spec.Expressions[i].Check(); err != nil {
			return nil, p.At(fmt.Sprintf("matchExpressions[%d]", i)).Errorf("%v", err)
		}
	}
	return &labelSelector{named{}, append(picker.SelectLabels(spec.Labels), spec.Expressions...)}, nil
}

// Filter keeps matching endpoints.
func (f *labelSelector) Filter(c *picker.Cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool { return f.Matches(c.State(i).Labels) })
}

// keep compacts the candidates for which ok holds.
func keep(in []int32, ok func(i int32) bool) []int32 {
	out := in[:0]
	for _, i := range in {
		if ok(i) {
			out = append(out, i)
		}
	}
	return out
}

// byLabel keeps endpoints whose label has one of some values. Deprecated.
type byLabel struct {
	named
	Label         string   `json:"label"`
	ValidValues   []string `json:"validValues"`
	AllowsNoLabel bool     `json:"allowsNoLabel"`
}

// Configure implements picker.Configurer.
func (f *byLabel) Configure(_ *picker.Builder, name string, p picker.Params) error {
	if f.Label == "" {
		return p.At("label").Expected("the label's name")
	}
	if len(f.ValidValues) == 0 && !f.AllowsNoLabel {
		return p.At("validValues").Expected("at least one value, or allowsNoLabel: true")
	}
	return nil
}

// Filter keeps endpoints with a valid value, or without the label if allowed.
// The value of a label that is not there is "", which may be a valid one.
func (f *byLabel) Filter(c *picker.Cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool {
		v, ok := c.State(i).Labels[f.Label]
		return slices.Contains(f.ValidValues, v) || !ok && f.AllowsNoLabel
	})
}

// roleFilter keeps endpoints by their label llm-d.ai/role: decode-filter, prefill-filter, encode-filter.
type roleFilter struct{ byLabel }

// newRoleFilter makes a factory; unlabeled admits endpoints without the label.
func newRoleFilter(unlabeled bool, roles ...string) picker.Factory {
	return func(*picker.Builder, string, picker.Params) (picker.Plugin, error) {
		f := &roleFilter{byLabel{Label: picker.LabelRole, ValidValues: roles, AllowsNoLabel: unlabeled}}
		f.CallType("by-label")
		return f, nil
	}
}

// Why returns the endpoint's role and those that were wanted.
func (f *roleFilter) Why(d *picker.Decision, i int32) string {
	role, ok := d.View.States[i].Labels[picker.LabelRole]
	if !ok {
		return "has no label " + picker.LabelRole
	}
	return "its role is " + role
}

// Why names the first part of the selector that does not match.
func (f *labelSelector) Why(d *picker.Decision, i int32) string {
	labels := d.View.States[i].Labels
	if r := f.Unmet(labels); r != nil {
		return fmt.Sprintf("%s, wanted %s %s", labelText(labels, r.Key), r.Operator, strings.Join(r.Values, ", "))
	}
	return ""
}

// Why returns the label's value.
func (f *byLabel) Why(d *picker.Decision, i int32) string {
	return labelText(d.View.States[i].Labels, f.Label)
}

func labelText(labels map[string]string, key string) string {
	if v, ok := labels[key]; ok {
		return "its " + key + " is " + v
	}
	return "has no label " + key
}

// keepOr is keep, but returns all when none is left and fallback is set.
func keepOr(in []int32, ok func(i int32) bool, fallback bool) []int32 {
	if fallback && !slices.ContainsFunc(in, ok) {
		return in
	}
	return keep(in, ok)
}
