package picker_test

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// All requirements must hold, and a selector without any holds for all labels,
// as in Kubernetes.
func TestSelector(t *testing.T) {
	labels := map[string]string{"app": "sim", "gpu": ""}
	for text, want := range map[string]bool{
		"app=sim": true, "app==sim,gpu": true, "app!=sim": false, "tier!=x": true, "app in (a, sim)": true,
		"app in (a),gpu":  false,
		"app notin (a,b)": true, "tier notin (a)": true, "tier in (a)": false, "!gpu": false, "!tier": true,
		"tier": false, "gpu=": true,
	} {
		s, err := picker.ParseSelector(text)
		if err != nil || s.Matches(labels) != want {
			t.Errorf("%s: %v (%v), expected %v", text, s.Matches(labels), err, want)
		}
	}
	if !(picker.Selector{}).Matches(labels) || !picker.SelectLabels(map[string]string{"app": "sim"}).Matches(labels) {
		t.Error("an empty selector, or the pod's own label, does not match")
	}
	for _, text := range []string{"", " ", "a=b,", "a in (b", "a in b", "a=b=c", "!", "(a)", "a b", "!a=b",
		"!a in (b)"} {
		if s, err := picker.ParseSelector(text); err == nil {
			t.Errorf("%q is %v, should be refused", text, s)
		}
	}
	for want, r := range map[string]picker.Requirement{
		"key and operator": {Operator: "Exists"}, "is not a label selector operator": {Key: "a", Operator: "in"},
		"do not fit":      {Key: "a", Operator: "In"},
		"operator Exists": {Key: "a", Operator: "Exists", Values: []string{"b"}},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", r, err, want)
		}
	}
}

func FuzzParseSelector(f *testing.F) {
	for _, s := range []string{"app=sim", "a in (b, c),!d", "x notin (y)", "a!=b,c==d", "in in (in)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := picker.ParseSelector(text)
		if (err == nil) != (len(s) > 0) {
			t.Fatalf("%q gives %v and %v", text, s, err)
		}
		labels := map[string]string{"app": "sim"}
		for i := range s {
			r := &s[i]
			if err := r.Check(); err != nil {
				t.Errorf("%q has %+v: %v", text, r, err)
			}
			opposite := map[string]string{"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist",
				"DoesNotExist": "Exists"}[r.Operator]
			if other := (picker.Selector{{Key: r.Key, Operator: opposite, Values: r.Values}}); other.Matches(
				labels) == (picker.Selector{*r}).Matches(labels) {
				t.Errorf("%q: %+v and its opposite both match, or neither does", text, r)
			}
		}
	})
}
