package gateway

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

// Status holds a controller's report about one object.
type Status struct {
	Kind string
	objects.Meta
	Conditions []Condition
	Listeners  []ListenerStatus
	Parents    []ParentStatus
}

// ListenerStatus holds a controller's report about one listener.
type ListenerStatus struct {
	Name       string
	Attached   int
	Kinds      []string // the kinds of routes that may attach
	Conditions []Condition
}

// ParentStatus holds a controller's report about a route or a pool at one parent, or about a policy at one target.
type ParentStatus struct {
	Ref        *ParentRef // of a route
	Gateway    string     // of a pool: namespace/name
	Target     string     // of a policy: kind namespace/name
	Conditions []Condition
}

// Condition is one of an object's conditions.
type Condition struct {
	Type string
	// Status is True, False or Unknown. Reason is a word for programs, Message a sentence for people.
	Status, Reason, Message string
}

func yes(kind, reason, message string) Condition { return Condition{kind, "True", reason, message} }
func no(kind, reason, message string) Condition  { return Condition{kind, "False", reason, message} }

func (b *builder) classes() {
	for i := range b.Classes {
		if c := &b.Classes[i]; b.o.Controller == "" || c.Controller == b.o.Controller {
			b.p.Status = append(b.p.Status,
				Status{Kind: "GatewayClass", Meta: c.Meta,
					Conditions: []Condition{yes("Accepted", "Accepted", "its Gateways are served")}})
		}
	}
}

// serves reports whether this program's controller serves the Gateways of a class.
func (b *builder) serves(class string) bool {
	if b.o.Controller == "" {
		return true
	}
	c := find(b.Classes, "", class)
	return c != nil && c.Controller == b.o.Controller
}

// open prepares a Gateway for routes. It reports for each listener whether it can be served.
func (b *builder) open(g *Gateway) *attachable {
	a := &attachable{Gateway: g}
	for i := range g.Listeners {
		l := &listener{Listener: &g.Listeners[i]}
		l.status.Name = l.Name
		b.judge(g, l)
		a.listeners = append(a.listeners, l)
	}
	return a
}

func (b *builder) judge(g *Gateway, l *listener) {
	accepted, resolved := yes("Accepted", "Accepted", "it is served"),
		yes("ResolvedRefs", "ResolvedRefs", "every reference is resolved")
	conflicted := no("Conflicted", "NoConflicts", "no other listener is in its way")
	for i := range g.Listeners {
		o := &g.Listeners[i]
		if o == l.Listener || o.Port != l.Port {
			continue
		}
		switch {
		case o.Protocol != l.Protocol:
			conflicted = yes("Conflicted", "ProtocolConflict",
				fmt.Sprintf("listener %s has another protocol on port %d", o.Name, l.Port))
		case o.Hostname == l.Hostname:
			conflicted = yes("Conflicted", "HostnameConflict",
				fmt.Sprintf("listener %s has the same hostname on port %d", o.Name, l.Port))
		}
	}
	if l.Protocol != "HTTP" && l.Protocol != "HTTPS" {
		accepted = no("Accepted", "UnsupportedProtocol", "protocol "+l.Protocol+"; HTTP and HTTPS are served")
	}
	if l.kinds = accepted.Status == "True"; l.kinds {
		l.status.Kinds = []string{"HTTPRoute"}
	}
	if l.kinds && l.Allowed != nil && len(l.Allowed.Kinds) > 0 {
		l.kinds, l.status.Kinds = false, nil
		for _, k := range l.Allowed.Kinds {
			if (k.Group == nil || *k.Group == Group) && k.Kind == "HTTPRoute" {
				l.kinds, l.status.Kinds = true, []string{"HTTPRoute"}
			} else {
				resolved = no("ResolvedRefs", "InvalidRouteKinds", "kind "+k.Kind+"; HTTPRoutes are served")
			}
		}
	}
	if l.Protocol == "HTTPS" {
		if reason, why := b.certificates(g, l); reason != "" {
			resolved = no("ResolvedRefs", reason, why)
		}
	}
	l.good = b.parameters(g) == "" && accepted.Status == "True" && conflicted.Status == "False" &&
		(resolved.Status == "True" || resolved.Reason == "InvalidRouteKinds" && l.kinds)
	programmed := yes("Programmed", "Programmed", "it is served")
	if !l.good {
		programmed = no("Programmed", "Invalid", "see the other conditions")
		if conflicted.Status == "True" {
			accepted = no("Accepted", conflicted.Reason, conflicted.Message)
		}
		for _, c := range []Condition{accepted, resolved} {
			if c.Status == "False" {
				b.note(l.At.Problem("listener "+l.Name+": "+c.Message, "", "it serves nothing ("+c.Reason+")").Error())
			}
		}
	}
	l.status.Conditions = []Condition{accepted, programmed, resolved, conflicted}
}

// certificates resolves a listener's certificates, or returns why it cannot.
func (b *builder) certificates(g *Gateway, l *listener) (reason, why string) {
	for i := range l.TLS.Certificates {
		ref := &l.TLS.Certificates[i]
		namespace := cmp.Or(ref.Namespace, g.Namespace)
		what := "Secret " + namespace + "/" + ref.Name
		if ref.Group != nil && *ref.Group != "" || cmp.Or(ref.Kind, "Secret") != "Secret" {
			return "InvalidCertificateRef", "a certificate is a Secret, and no " + ref.Kind
		}
		if !b.granted(Group, "Gateway", g.Namespace, "", "Secret", namespace, ref.Name) {
			return "RefNotPermitted",
				"no ReferenceGrant of namespace " + namespace + " lets Gateways of " + g.Namespace + " refer to " + what
		}
		s := b.Secret(namespace, ref.Name)
		if s == nil {
			if b.o.Supply {
				b.note(ref.At.Problem("there is no "+what, "",
					"listener "+l.Name+" has a self-signed certificate").Error())
				continue
			}
			return "InvalidCertificateRef", "there is no " + what
		}
		cert, _ := s.Get("tls.crt")
		key, _ := s.Get("tls.key")
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			return "InvalidCertificateRef", what + " has no certificate and key in tls.crt and tls.key"
		}
		l.secrets = append(l.secrets, s)
	}
	return "", ""
}

// parameters returns why a Gateway is refused for its parametersRef: no kind of parameters is known here. Where the
// program supplies what is missing, parameters have no effect.
func (b *builder) parameters(g *Gateway) (why string) {
	ref := g.Infrastructure.Parameters
	if ref == nil {
		return ""
	}
	if b.o.Supply {
		b.note(ref.At.Problem("it has no effect here", "", "").Error())
		return ""
	}
	return "no parameters of kind " + ref.Kind + " are known"
}

func (b *builder) gatewayStatus(a *attachable, any bool) {
	s := Status{Kind: "Gateway", Meta: a.Meta}
	good := 0
	for _, l := range a.listeners {
		l.status.Attached = l.attached
		s.Listeners = append(s.Listeners, l.status)
		if l.good {
			good++
		}
	}
	switch why := b.parameters(a.Gateway); {
	case why != "":
		s.Conditions = []Condition{no("Accepted", "InvalidParameters", why), no("Programmed", "Invalid", why)}
	case !any:
		s.Conditions = []Condition{no("Accepted", "ListenersNotValid", "no listener can be served"),
			no("Programmed", "Invalid", "no listener can be served")}
	case good < len(a.listeners):
		s.Conditions = []Condition{yes("Accepted", "ListenersNotValid", "some listeners cannot be served"),
			yes("Programmed", "Programmed", "the others are served")}
	default:
		s.Conditions = []Condition{yes("Accepted", "Accepted", "it is served"),
			yes("Programmed", "Programmed", "it is served")}
	}
	b.p.Status = append(b.p.Status, s)
}

// pools reports the status of InferencePools at each Gateway whose requests reach them.
func (b *builder) pools() {
	parents := map[string][]string{}
	for _, g := range b.p.Gateways {
		for r := range g.routes {
			for _, s := range r.Shares {
				if name := g.Namespace + "/" + g.Name; s.Backend != nil && s.Backend.Pool != nil &&
					!slices.Contains(parents[s.Backend.Key], name) {
					parents[s.Backend.Key] = append(parents[s.Backend.Key], name)
				}
			}
		}
	}
	for i := range b.Pools {
		p := &b.Pools[i]
		if idle := p.KServe.Idle(); len(idle) > 0 {
			b.note(fmt.Sprintf("%s:%d: InferencePool %s/%s: %s: no effect here", p.File, p.Line, p.Namespace, p.Name,
				strings.Join(idle, ", ")))
		}
		resolved := yes("ResolvedRefs", "ResolvedRefs", "every reference is resolved")
		accepted := yes("Accepted", "Accepted", "it is served")
		var picker *PickerService
		if p.Picker != nil {
			picker = &PickerService{Namespace: p.Namespace, Name: p.Picker.Name}
		} else if x := b.backends["pool/"+p.Namespace+"/"+p.Name]; x != nil {
			picker = x.Picker
		}
		switch {
		case picker == nil && !b.o.Supply:
		case picker == nil:
			b.note(fmt.Sprintf("%s:%d: InferencePool %s/%s: no endpointPickerRef; it has an endpoint picker of "+
				"windtunnel's own", p.File, p.Line, p.Namespace, p.Name))
		case p.Picker != nil && p.Picker.Kind != "Service" || b.Service(picker.Namespace, picker.Name) == nil:
			if !b.o.Supply {
				resolved = no("ResolvedRefs", "InvalidExtensionRef",
					"there is no Service "+picker.Namespace+"/"+picker.Name)
			} else {
				b.note(fmt.Sprintf("%s:%d: InferencePool %s/%s: there is no Service %s among the objects; the pool "+
					"has an endpoint picker of windtunnel's own", p.File, p.Line, p.Namespace, p.Name, picker.Name))
			}
		}
		s := Status{Kind: "InferencePool", Meta: p.Meta}
		for _, g := range parents["pool/"+p.Namespace+"/"+p.Name] {
			s.Parents = append(s.Parents, ParentStatus{Gateway: g, Conditions: []Condition{accepted, resolved}})
		}
		b.p.Status = append(b.p.Status, s)
	}
}

// Tables returns all of a Gateway's tables.
func (g *Served) Tables() (out []*Table) {
	for _, p := range g.Ports {
		if p.Table != nil {
			out = append(out, p.Table)
		}
		for _, s := range p.Secure {
			out = append(out, s.Table)
		}
	}
	return out
}

// routes visits the routes of all tables.
func (g *Served) routes(yield func(*Route) bool) {
	for _, t := range g.Tables() {
		for _, h := range t.Hosts {
			for _, r := range h.Routes {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (b *builder) unread() {
	for i := range b.Scalers {
		switch x := &b.Scalers[i]; {
		case x.TargetName != "" && !slices.ContainsFunc(b.Workloads, func(w Workload) bool {
			return w.Namespace == x.Namespace && w.Kind == x.TargetKind && w.Name == x.TargetName
		}):
			b.note(fmt.Sprintf("%s:%d: %s %s/%s: there is no %s %s to scale", x.File, x.Line, x.Kind, x.Namespace,
				x.Name, x.TargetKind, x.TargetName))
		case x.TargetName != "":
			scales := func(y Scaler) bool {
				return y.Namespace == x.Namespace && y.TargetKind == x.TargetKind && y.TargetName == x.TargetName
			}
			if k := slices.IndexFunc(b.Scalers, scales); k < i {
				b.note(fmt.Sprintf("%s:%d: %s %s/%s: no effect: %s %s scales %s %s already", x.File, x.Line, x.Kind,
					x.Namespace, x.Name, b.Scalers[k].Kind, b.Scalers[k].Name, x.TargetKind, x.TargetName))
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(b.Unread)) {
		b.note(fmt.Sprintf("kind %s has no effect here (%d found)", strings.TrimSuffix(kind, "."), b.Unread[kind]))
	}
}
