package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// attach attaches a route to the Gateways that it names, and reports the result for each.
func (b *builder) attach(r *HTTPRoute) {
	status := Status{Kind: "HTTPRoute", Meta: r.Meta}
	made := b.routes(r)
	for i := range r.Parents {
		p := &r.Parents[i]
		a := b.gateways[cmp.Or(p.Namespace, r.Namespace)+"/"+p.Name]
		if p.group() != Group || p.kind() != "Gateway" || a == nil {
			if p.group() == Group && p.kind() == "Gateway" && b.o.Controller == "" {
				b.note(p.At.Problem(fmt.Sprintf("there is no Gateway %s/%s", cmp.Or(p.Namespace, r.Namespace), p.Name),
					"one among the objects", "the route serves nothing there").Error())
			}
			continue
		}
		reason := "NoMatchingParent"
		var why string
		better := func(to, text string) {
			order := []string{"NoMatchingParent", "NotAllowedByListeners", "NoMatchingListenerHostname", "Accepted"}
			if slices.Index(order, to) > slices.Index(order, reason) || why == "" {
				reason, why = to, text
			}
		}
		better(reason, "no listener has the sectionName and the port")
		for _, l := range a.listeners {
			if p.Section != "" && p.Section != l.Name || p.Port != 0 && p.Port != l.Port {
				continue
			}
			if !l.kinds || !b.allows(a.Gateway, l.Listener, r) {
				better("NotAllowedByListeners", "listener "+l.Name+" does not allow routes of namespace "+r.Namespace)
				continue
			}
			domains := shared(l.Hostname, r.Hostnames)
			if len(domains) == 0 {
				better("NoMatchingListenerHostname", "none of its hostnames is one of listener "+l.Name)
				continue
			}
			better("Accepted", "it is attached")
			l.attached++
			for _, d := range domains {
				for _, x := range made.routes {
					e := *x
					if !e.policed {
						b.traffic(b.policy("Gateway", &a.Meta, 1), &e)
					}
					b.secure(&e, "Gateway", &a.Meta, 1)
					e.Domain, e.Secure = d, l.Protocol == "HTTPS"
					l.entries = append(l.entries, &e)
				}
			}
		}
		accepted := yes("Accepted", reason, why)
		if reason != "Accepted" {
			accepted = no("Accepted", reason, why)
			b.note(p.At.Problem(why, "", "the route serves nothing there ("+reason+")").Error())
		} else if made.accepted.Type != "" {
			accepted = made.accepted
		}
		conditions := []Condition{accepted, made.resolved}
		status.Parents = append(status.Parents, ParentStatus{Ref: p, Conditions: conditions})
	}
	b.p.Status = append(b.p.Status, status)
}

// shared returns the hosts that both a listener and a route serve.
func shared(listener string, hostnames []string) (out []string) {
	if len(hostnames) == 0 {
		hostnames = []string{""}
	}
	for _, h := range hostnames {
		if d, ok := intersect(listener, h); ok && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// allows reports whether routes of a route's namespace may attach.
func (b *builder) allows(g *Gateway, l *Listener, r *HTTPRoute) bool {
	from := "Same"
	if l.Allowed != nil && l.Allowed.Namespaces != nil && l.Allowed.Namespaces.From != "" {
		from = l.Allowed.Namespaces.From
	}
	switch from {
	case "All":
		return true
	case "None":
		return false
	case "Selector":
		selector, labels := objects.ReadSelector(l.Allowed.Namespaces.Selector),
			map[string]string{"kubernetes.io/metadata.name": r.Namespace}
		if n := find(b.Namespaces, "", r.Namespace); n != nil {
			maps.Copy(labels, n.Labels)
		}
		return selector.Matches(labels)
	}
	return r.Namespace == g.Namespace
}

// granted reports whether an object in one namespace may refer to one in another.
func (b *builder) granted(group, kind, from string, toGroup, toKind, to, name string) bool {
	if from == to {
		return true
	}
	for i := range b.Grants {
		g := &b.Grants[i]
		if g.Namespace == to &&
			slices.ContainsFunc(g.From,
				func(x GrantFrom) bool { return x.Group == group && x.Kind == kind && x.Namespace == from }) &&
			slices.ContainsFunc(g.To, func(x GrantTo) bool {
				return x.Group == toGroup && x.Kind == toKind && (x.Name == "" || x.Name == name)
			}) {
			return true
		}
	}
	return false
}

// madeRoutes holds the routes made from an HTTPRoute's rules.
type madeRoutes struct {
	routes   []*Route
	resolved Condition
	// accepted is set where the route is not simply accepted.
	accepted Condition
}

// trouble reports a reference that does not resolve. The condition keeps the first reason.
func (b *builder) trouble(m *madeRoutes, v strictyaml.Value, reason, why, effect string) {
	b.note(v.Problem(why, "", effect).Error())
	if m.resolved.Reason == "ResolvedRefs" {
		m.resolved = no("ResolvedRefs", reason, why)
	}
}

func (b *builder) routes(r *HTTPRoute) *madeRoutes {
	m := &madeRoutes{resolved: yes("ResolvedRefs", "ResolvedRefs", "every reference is resolved")}
	rules := r.Rules
	if len(rules) == 0 {
		rules = []Rule{{At: r.At}}
	}
	for i := range rules {
		rule := &rules[i]
		base := Route{From: r, Rule: rule, rule: i}
		b.extend(r, &base)
		b.filters(m, r, rule, &base)
		b.headers(r, &base)
		if base.Redirect == nil {
			for k := range rule.Backends {
				if share := b.share(m, r, &rule.Backends[k]); share.Weight > 0 {
					base.Shares = append(base.Shares, share)
				}
			}
		}
		for k := range base.Shares {
			if x := base.Shares[k].Backend; x != nil && x.Pool != nil && x.Picker == nil {
				x.Picker = base.picker
			}
			if x := base.Shares[k].Backend; x != nil && base.Asking != nil {
				x.FailOpen = x.FailOpen || base.Asking.FailOpen
			}
		}
		if t := rule.Timeouts; t != nil {
			base.Timeout, base.Try = t.Request, t.Backend
		}
		if rule.Retry != nil {
			base.Retrying = rule.Retry.retrying()
		}
		if own := b.policy("HTTPRoute", &r.Meta, b.named(r.Name)); own != nil {
			b.traffic(own, &base)
			base.policed = true
		}
		for k := range base.Shares {
			if x := base.Shares[k].Backend; x != nil && x.policy != nil && !base.policed {
				b.traffic(x.policy, &base)
			}
		}
		b.secure(&base, "HTTPRoute", &r.Meta, b.named(r.Name))
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []Match{{}}
		}
		for k := range matches {
			x := base
			x.Match, x.match = &matches[k], k
			x.Path = PathMatch{Type: PathPrefix, Value: "/"}
			if p := matches[k].Path; p != nil {
				x.Path = *p
			}
			x.Name = fmt.Sprintf("%s/%s/%d/%d", r.Namespace, r.Name, i, k)
			m.routes = append(m.routes, &x)
		}
	}
	return m
}

func (b *builder) filters(m *madeRoutes, r *HTTPRoute, rule *Rule, to *Route) {
	for i := range rule.Filters {
		f := &rule.Filters[i]
		switch f.Type {
		case "RequestHeaderModifier":
			to.RequestHeaders = f.RequestHeaders
		case "ResponseHeaderModifier":
			to.ResponseHeaders = f.ResponseHeaders
		case "RequestRedirect":
			to.Redirect = f.Redirect
		case "URLRewrite":
			to.Rewrite = f.Rewrite
		case "RequestMirror":
			x := MirrorTo{Backend: b.backend(m, r, &f.Mirror.Backend, "requests are not mirrored there"),
				Numerator: Or(f.Mirror.Percent, 100), Denominator: 100}
			if n := f.Mirror.Fraction; n != nil {
				x.Numerator, x.Denominator = n.Numerator, n.denominator()
			}
			if x.Backend != nil && x.Numerator > 0 {
				to.Mirrors = append(to.Mirrors, x)
			}
		case "ExtensionRef":
			if x := b.extension(r.Namespace, f.Extension.Name); x != nil && f.Extension.Kind == "EnvoyExtensionPolicy" {
				b.asks(x, to)
				continue
			}
			b.trouble(m, f.At, "InvalidKind",
				"filter ExtensionRef to "+f.Extension.Kind+" "+f.Extension.Name+" has no meaning here",
				"the rule's requests are answered with 500")
			to.Shares = append(to.Shares, Share{Weight: 1})
		default:
			b.note(f.At.Problem("filter "+f.Type+" is not known here", "",
				"the rule's requests are answered with 500").Error())
			m.accepted = no("Accepted", "UnsupportedValue", "filter "+f.Type)
			to.Shares = append(to.Shares, Share{Weight: 1})
		}
	}
}

// share resolves a backend of a rule.
func (b *builder) share(m *madeRoutes, r *HTTPRoute, ref *BackendRef) Share {
	s := Share{Weight: Or(ref.Weight, 1)}
	for i := range ref.Filters {
		switch f := &ref.Filters[i]; {
		case f.RequestHeaders != nil:
			s.RequestHeaders = f.RequestHeaders
		case f.ResponseHeaders != nil:
			s.ResponseHeaders = f.ResponseHeaders
		case f.Rewrite != nil && f.Rewrite.Path == nil:
			s.Hostname = f.Rewrite.Hostname
		default:
			b.note(f.At.Problem("filter "+f.Type+" of one backend alone cannot be served", "it at the rule",
				"the backend's requests are answered with 500").Error())
			m.accepted = no("Accepted", "UnsupportedValue", "filter "+f.Type+" of a backend")
			return s
		}
	}
	s.Backend = b.backend(m, r, ref, "its share of the requests is answered with 500")
	return s
}

// backend resolves a reference to a Service or an InferencePool. It returns nil where it cannot.
func (b *builder) backend(m *madeRoutes, r *HTTPRoute, ref *BackendRef, effect string) *Backend {
	namespace := cmp.Or(ref.Namespace, r.Namespace)
	what := fmt.Sprintf("%s %s/%s", ref.kind(), namespace, ref.Name)
	fail := func(reason, why string) *Backend {
		b.trouble(m, ref.At, reason, why, effect)
		return nil
	}
	pool := ref.kind() == "InferencePool" &&
		slices.Contains([]string{objects.GroupV1, objects.GroupX, objects.GroupKServe}, ref.group())
	switch {
	case !pool && !ref.service():
		return fail("InvalidKind",
			what+" is of a kind that no route can lead to; expected a Service or an InferencePool")
	case !b.granted(Group, "HTTPRoute", r.Namespace, ref.group(), ref.kind(), namespace, ref.Name):
		return fail("RefNotPermitted",
			"no ReferenceGrant of namespace "+namespace+" lets HTTPRoutes of "+r.Namespace+" refer to "+what)
	}
	x := &Backend{Namespace: namespace, Name: ref.Name, Supplied: b.o.Supply}
	if pool {
		if x.Pool = b.Pool(namespace, ref.Name); x.Pool == nil {
			return fail("BackendNotFound", "there is no "+what)
		}
		x.Key = "pool/" + namespace + "/" + ref.Name
		x.FailOpen = x.Pool.Picker != nil && x.Pool.Picker.FailOpen
		if p := x.Pool.Picker; p != nil {
			x.Picker = &PickerService{namespace, p.Name, p.Port}
		}
		x.HTTP2 = x.Pool.AppProtocol == "kubernetes.io/h2c"
		if k := x.Pool.KServe; k != nil && k.Health.Enabled {
			x.Health = &k.Health
		}
		if p := ref.Picker; p != nil {
			b.note(p.At.Problem("extensionRef of a backend is document 002's alone", "",
				"it acts as the pool's own endpointPickerRef").Error())
			x.FailOpen = p.Failure == "FailOpen"
			x.Picker = &PickerService{Namespace: cmp.Or(p.Namespace, namespace), Name: p.Name}
		}
	} else {
		if x.Service = b.Service(namespace, ref.Name); x.Service == nil {
			return fail("BackendNotFound", "there is no "+what)
		}
		var found bool
		if x.Port, found = x.Service.Port(ref.Port); !found {
			return fail("BackendNotFound", fmt.Sprintf("%s has no port %d", what, ref.Port))
		}
		switch x.Port.AppProtocol {
		case "", "http", "kubernetes.io/ws":
		case "kubernetes.io/h2c", "grpc":
			x.HTTP2 = true
		default:
			if !strings.Contains(x.Port.AppProtocol, "/") {
				break
			}
			return fail("UnsupportedProtocol", fmt.Sprintf("%s speaks %s", what, x.Port.AppProtocol))
		}
		x.Key = fmt.Sprintf("service/%s/%s/%d", namespace, ref.Name, ref.Port)
	}
	if first := b.backends[x.Key]; first != nil {
		return first
	}
	b.ofBackends(x)
	b.backends[x.Key] = x
	return x
}
