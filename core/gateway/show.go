package gateway

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// String returns the route in one line, for people: its conditions, and what happens to a request.
func (r *Route) String() string {
	var b strings.Builder
	switch r.Path.kind() {
	case Exact:
		b.WriteString("= " + r.Path.Value)
	case Regex:
		b.WriteString("~ " + r.Path.Value)
	default:
		b.WriteString(cmp.Or(r.Prefix(), "/"))
	}
	if r.Match.Method != "" {
		b.WriteString(" " + r.Match.Method)
	}
	values := func(what string, list []ValueMatch) {
		for _, x := range list {
			sign := "="
			if x.kind() == Regex {
				sign = "~"
			}
			fmt.Fprintf(&b, " %s %s%s%q", what, x.Name, sign, x.Value)
		}
	}
	values("header", r.Match.Headers)
	values("query", r.Match.Query)
	b.WriteString(" → ")
	switch {
	case r.Redirect != nil:
		fmt.Fprintf(&b, "redirect %d", r.Redirect.Code())
	case len(r.Shares) == 0:
		fmt.Fprintf(&b, "%d: no backend", StatusUnusable)
	}
	for i := range r.Shares {
		if i > 0 {
			b.WriteString(" | ")
		}
		s := &r.Shares[i]
		if len(r.Shares) > 1 {
			fmt.Fprintf(&b, "%d × ", s.Weight)
		}
		if s.Backend == nil {
			fmt.Fprint(&b, StatusUnusable)
		} else {
			b.WriteString(s.Backend.Key)
		}
	}
	if x := r.Rewrite; x != nil {
		if x.Path != nil && x.Path.Full != nil {
			b.WriteString(", path " + *x.Path.Full)
		}
		if x.Path != nil && x.Path.Prefix != nil {
			b.WriteString(", prefix " + cmp.Or(*x.Path.Prefix, "/"))
		}
		if x.Hostname != "" {
			b.WriteString(", host " + x.Hostname)
		}
	}
	if r.Timeout != nil {
		b.WriteString(", timeout " + time.Duration(*r.Timeout).String())
	}
	if x := r.RateLimit; x != nil {
		fmt.Fprintf(&b, ", at most %d requests a %s", x.Requests, strings.ToLower(x.Unit))
	}
	if r.Try != nil {
		b.WriteString(", per try " + time.Duration(*r.Try).String())
	}
	if x := r.Retrying; x != nil {
		fmt.Fprintf(&b, ", %d retries on %s", x.Retries, strings.Join(x.On, ","))
		if len(x.Codes) > 0 {
			fmt.Fprintf(&b, " %d", x.Codes)
		}
		if x.Try > 0 {
			fmt.Fprintf(&b, " of %s each", time.Duration(x.Try))
		}
	}
	if r.Keys != nil {
		b.WriteString(", with an API key")
	}
	for _, m := range r.Mirrors {
		fmt.Fprintf(&b, ", %d/%d mirrored to %s", m.Numerator, m.Denominator, m.Backend.Key)
	}
	fmt.Fprintf(&b, "  (%s)", r.Name)
	return b.String()
}

// String returns an object's status, with a line for each condition.
func (s Status) String() string {
	var b strings.Builder
	name := s.Namespace + "/" + s.Name
	if s.Namespace == "" {
		name = s.Name
	}
	list := func(where string, conditions []Condition) {
		for _, c := range conditions {
			fmt.Fprintf(&b, "%s %s%s: %s %s %s\n", s.Kind, name, where, c.Type, c.Status, c.Reason)
		}
	}
	list("", s.Conditions)
	for _, l := range s.Listeners {
		list(fmt.Sprintf(" listener %s (%d routes)", l.Name, l.Attached), l.Conditions)
	}
	for _, p := range s.Parents {
		at := cmp.Or(p.Gateway, p.Target)
		if p.Ref != nil {
			at = cmp.Or(p.Ref.Namespace, s.Namespace) + "/" + p.Ref.Name
			if p.Ref.Section != "" {
				at += " " + p.Ref.Section
			}
		}
		list(" at "+at, p.Conditions)
	}
	return b.String()
}
