package plugins

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/picker"
)

// Filters say why they took an endpoint out (picker.Reasoner). The words are
// for the tables of explain and preview; nothing depends on them.

// Why tells the endpoint's role and those that were wanted.
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

// Why tells the label's value.
func (f *byLabel) Why(d *picker.Decision, i int32) string {
	return labelText(d.View.States[i].Labels, f.Label)
}

func labelText(labels map[string]string, key string) string {
	if v, ok := labels[key]; ok {
		return "its " + key + " is " + v
	}
	return "has no label " + key
}

// Why says that the endpoint is not ready.
func (f *readyFilter) Why(*picker.Decision, int32) string { return "is not ready" }

// Why names what the session is bound to.
func (f *sessionFilter) Why(*picker.Decision, int32) string {
	return "the session belongs to another endpoint"
}
