package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

// unserved reports routes that no request reaches, because other routes always come first, and backends that select no
// pods.
func (b *builder) unserved() {
	for _, g := range b.p.Gateways {
		for _, t := range g.Tables() {
			for _, h := range t.Hosts {
				b.hidden(h)
			}
		}
	}
	if b.o.Scenario || !b.o.Supply {
		return // scenarios place servers themselves, and clusters have pods of other manifests
	}
	for _, x := range b.p.Backends {
		switch {
		case x.Pool != nil && len(b.Selected(x.Namespace, x.Pool.Selector)) == 0 &&
			len(b.Select(x.Namespace, x.Name).Endpoints) == 0:
			b.note(fmt.Sprintf("%s:%d: InferencePool %s/%s selects the pods of no Deployment; expected one whose "+
				"pods have the selector's labels; requests are answered with 503", x.Pool.File, x.Pool.Line,
				x.Namespace, x.Name))
		case x.Service != nil && len(x.Service.Selector) > 0 && len(b.Selected(x.Namespace, x.Service.Selector)) == 0 &&
			len(b.Sliced(x.Service, x.Port)) == 0 &&
			!slices.ContainsFunc(b.Pods, func(p objects.Pod) bool {
				return p.Namespace == x.Namespace && x.Service.Selector.Matches(p.Labels)
			}):
			b.note(x.Service.At.Get("spec").Get("selector").Problem("it selects the pods of no Deployment",
				"one whose pods have these labels", "requests are answered with 503").Error())
		}
	}
}

// hidden reports the routes of a host that have the same match as an older or earlier one.
func (b *builder) hidden(h *Host) {
	first := map[string]*Route{}
	for _, r := range h.Routes {
		key := r.Domain + " " + r.condition()
		if was := first[key]; was == nil {
			first[key] = r
		} else if was.From != r.From || was.rule != r.rule {
			b.note(r.Rule.At.Problem(
				fmt.Sprintf("matches[%d] is that of HTTPRoute %s/%s, rules[%d], on line %d, too", r.match,
					was.From.Namespace, was.From.Name, was.rule, was.Rule.At.Line()), "",
				"that one is taken, this one serves nothing there").Error())
		}
	}
}

// condition returns a text for the route's match. Routes with equal matches have equal texts.
func (r *Route) condition() string {
	list := func(values []ValueMatch, fold bool) string {
		var out []string
		for _, v := range values {
			name := v.Name
			if fold {
				name = strings.ToLower(name)
			}
			out = append(out, fmt.Sprintf("%s %q %q", v.kind(), name, v.Value))
		}
		slices.Sort(out)
		return strings.Join(out, ",")
	}
	value := r.Path.Value
	if r.Path.kind() == PathPrefix {
		value = r.Prefix()
	}
	return fmt.Sprintf("%s %q %s [%s] [%s]", r.Path.kind(), value, r.Match.Method, list(r.Match.Headers, true),
		list(r.Match.Query, false))
}
