package gateway

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// The rules of the CRDs' schemas that go beyond the fields' tags.

var (
	hostForm     = regexp.MustCompile(`^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	sectionForm  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	protocolForm = regexp.MustCompile(
		`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]+$`)
	headerForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+\\-.^_`|~]+$")
	pathForm   = regexp.MustCompile(`^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$`)
	ipForm     = regexp.MustCompile(`^[0-9.]+$`)
	domainForm = regexp.MustCompile(
		`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$`)
)

// form notes a mistake where a given text does not have the form.
func form(v strictyaml.Value, text string, f *regexp.Regexp, most int, want string) {
	if v.Given() && (!f.MatchString(text) || len(text) > most) {
		v.Fail(v.Found(), want, "")
	}
}

func demand(v strictyaml.Value, want string) {
	if !v.Given() || v.Scalar() == "" && !v.IsList() && !v.IsMapping() {
		v.Fail(v.Found(), want, "")
	}
}

func hostname(v strictyaml.Value, text string, wildcard bool) {
	if !v.Given() {
		return
	}
	want := "a DNS name such as example.com"
	if wildcard {
		want += " or *.example.com"
	}
	if len(text) > 253 || !hostForm.MatchString(text) || !wildcard && strings.HasPrefix(text, "*") ||
		ipForm.MatchString(text) {
		v.Fail(v.Found(), want, "")
	}
}

func (c *Class) check(v strictyaml.Value) {
	demand(v.Get("controllerName"), "the controller's name, such as example.com/gateway-controller")
	form(v.Get("controllerName"), c.Controller, domainForm, 253,
		"a domain and a path, such as example.com/gateway-controller")
}

func (g *Gateway) check(v strictyaml.Value) {
	demand(v.Get("gatewayClassName"), "the name of a GatewayClass")
	if len(g.Listeners) == 0 {
		v.Get("listeners").Fail("there are none", "1 to 64 listeners", "")
	}
	names, places := map[string]int{}, map[string]int{}
	for i := range g.Listeners {
		l := &g.Listeners[i]
		at := l.At
		demand(at.Get("name"), "the listener's name")
		form(at.Get("name"), l.Name, sectionForm, 253, "a name of lower-case letters, digits, - and .")
		demand(at.Get("port"), "a port from 1 to 65535")
		demand(at.Get("protocol"), "HTTP or HTTPS")
		form(at.Get("protocol"), l.Protocol, protocolForm, 255, "a protocol such as HTTP or HTTPS")
		hostname(at.Get("hostname"), l.Hostname, true)
		if first, twice := names[l.Name]; twice {
			at.Get("name").Fail(fmt.Sprintf("%q is given twice, first on line %d", l.Name, first),
				"each listener's name once", "")
		}
		names[l.Name] = at.Line()
		place := fmt.Sprintf("%d %s %s", l.Port, l.Protocol, l.Hostname)
		if first, twice := places[place]; twice {
			at.Fail(fmt.Sprintf("port, protocol and hostname are those of the listener on line %d", first),
				"listeners that differ in one of them", "")
		}
		places[place] = at.Line()
		l.checkTLS()
		if a := l.Allowed; a != nil && a.Namespaces != nil && a.Namespaces.From == "Selector" &&
			!a.Namespaces.Selector.Given() {
			at.Get("allowedRoutes").Get("namespaces").Fail("from: Selector without a selector", "a selector", "")
		}
	}
}

func (l *Listener) checkTLS() {
	v, t := l.At.Get("tls"), l.TLS
	secure := l.Protocol == "HTTPS" || l.Protocol == "TLS"
	switch {
	case t == nil && secure:
		v.Fail("missing", "tls, which the protocol "+l.Protocol+" needs", "")
	case t != nil && !secure && slices.Contains([]string{"HTTP", "TCP", "UDP"}, l.Protocol):
		v.Fail("tls is given", "none: the protocol is "+l.Protocol, "")
	case t != nil && l.Protocol == "HTTPS" && t.Mode == "Passthrough":
		v.Get("mode").Fail(v.Get("mode").Found(), "Terminate, which the protocol HTTPS needs", "")
	case t != nil && t.Mode != "Passthrough" && len(t.Certificates) == 0 && len(t.Options) == 0:
		v.Fail("there are no certificateRefs", "the Secret with the listener's certificate", "")
	}
}

func (g *Grant) check(v strictyaml.Value) {
	if len(g.From) == 0 {
		v.Get("from").Fail("there are none", "who may refer: group, kind and namespace", "")
	}
	if len(g.To) == 0 {
		v.Get("to").Fail("there are none", "what may be referred to: group and kind", "")
	}
	for _, f := range g.From {
		demand(f.At.Get("kind"), "a kind, such as HTTPRoute")
		demand(f.At.Get("namespace"), "a namespace")
	}
	for _, t := range g.To {
		demand(t.At.Get("kind"), "a kind, such as Service")
	}
}

func (r *HTTPRoute) check(v strictyaml.Value) {
	for i, h := range r.Hostnames {
		hostname(v.Get("hostnames").At(fmt.Sprintf("[%d]", i)), h, true)
	}
	parents := map[string][]*ParentRef{}
	for i := range r.Parents {
		p := &r.Parents[i]
		demand(p.At.Get("name"), "the name of a Gateway")
		key := p.group() + " " + p.kind() + " " + p.Namespace + "/" + p.Name
		for _, other := range parents[key] {
			if p.Section == other.Section && p.Port == other.Port || p.Section == "" && p.Port == 0 ||
				other.Section == "" && other.Port == 0 {
				p.At.Fail(fmt.Sprintf("the same parent as on line %d", other.At.Line()),
					"another sectionName or port in each", "")
			}
		}
		parents[key] = append(parents[key], p)
	}
	matches := 0
	names := map[string]bool{}
	for i := range r.Rules {
		rule := &r.Rules[i]
		if names[rule.Name] && rule.Name != "" {
			rule.At.Get("name").Fail(rule.At.Get("name").Found()+" again", "each rule's name once", "")
		}
		names[rule.Name] = true
		matches += len(rule.Matches)
		rule.check()
	}
	if v.Get("rules").IsList() && len(r.Rules) == 0 {
		v.Get("rules").Fail("there are none", "1 to 16 rules", "")
	}
	if matches > 128 {
		v.Get("rules").Fail(fmt.Sprintf("found %d matches", matches), "at most 128 in a route", "")
	}
}

func (p *ParentRef) group() string {
	if p.Group != nil {
		return *p.Group
	}
	return Group
}

func (p *ParentRef) kind() string { return cmp.Or(p.Kind, "Gateway") }

// prefixMatch returns a rule's only match, if it is by path prefix.
func (r *Rule) prefixMatch() bool {
	return len(r.Matches) == 1 && (r.Matches[0].Path == nil || r.Matches[0].Path.kind() == PathPrefix) ||
		len(r.Matches) == 0
}

func (p *PathMatch) kind() string { return cmp.Or(p.Type, PathPrefix) }

func (m *ValueMatch) kind() string { return cmp.Or(m.Type, Exact) }

func (r *Rule) check() {
	form(r.At.Get("name"), r.Name, sectionForm, 253, "a name of lower-case letters, digits, - and .")
	for i := range r.Matches {
		r.Matches[i].check()
	}
	checkFilters(r.Filters, r)
	redirects := slices.ContainsFunc(r.Filters, func(f Filter) bool { return f.Redirect != nil })
	if redirects && len(r.Backends) > 0 {
		r.At.Get("backendRefs").Fail("there are some beside a RequestRedirect", "none: the redirect is the answer", "")
	}
	for i := range r.Backends {
		b := &r.Backends[i]
		b.check()
		checkFilters(b.Filters, r)
	}
	if t := r.Timeouts; t != nil && t.Request != nil && t.Backend != nil && *t.Request > 0 && *t.Backend > *t.Request {
		t.At.Get("backendRequest").Fail(t.At.Get("backendRequest").Found(),
			"at most timeouts.request, "+t.At.Get("request").Scalar(), "")
	}
	if x := r.Retry; x != nil {
		for i, code := range x.Codes {
			if code < 400 || code > 599 {
				v := x.At.Get("codes").At(fmt.Sprintf("[%d]", i))
				v.Fail(v.Found(), "a status from 400 to 599", "")
			}
		}
	}
}

func (b *BackendRef) check() {
	demand(b.At.Get("name"), "the backend's name")
	if b.service() && b.Port == 0 && !b.At.Get("port").Given() {
		b.At.Get("port").Fail("missing", "the Service's port", "")
	}
}

func (b *BackendRef) group() string {
	if b.Group != nil {
		return *b.Group
	}
	return ""
}

func (b *BackendRef) kind() string  { return cmp.Or(b.Kind, "Service") }
func (b *BackendRef) service() bool { return b.group() == "" && b.kind() == "Service" }

func (m *Match) check() {
	if p := m.Path; p != nil {
		p.check()
	}
	for _, list := range []struct {
		field  string
		values []ValueMatch
	}{{"headers", m.Headers}, {"queryParams", m.Query}} {
		seen := map[string]int{}
		for i := range list.values {
			x := &list.values[i]
			demand(x.At.Get("name"), "a name")
			form(x.At.Get("name"), x.Name, headerForm, 256, "a name of letters, digits and signs such as - and _")
			demand(x.At.Get("value"), "a value")
			if len(x.Value) > 4096 {
				x.At.Get("value").Fail(fmt.Sprintf("found %d characters", len(x.Value)), "at most 4096", "")
			}
			if first := seen[x.Name]; first > 0 {
				x.At.Get("name").Fail(fmt.Sprintf("%q is given twice, first on line %d", x.Name, first),
					"each name once", "")
			}
			seen[x.Name] = x.At.Line()
			checkRegex(x.At.Get("value"), x.kind(), x.Value)
		}
	}
}

// checkRegex checks an expression. The API server has no such rule: expressions are the gateway's matter.
func checkRegex(v strictyaml.Value, kind, text string) {
	if kind != Regex {
		return
	}
	if _, err := regexp.Compile(text); err != nil {
		v.Fail(v.Found(), "a regular expression as RE2 has them", err.Error())
	}
}

func (p *PathMatch) check() {
	v := p.At.Get("value")
	if p.Value == "" && !v.Given() {
		p.Value = "/"
	}
	if len(p.Value) > 1024 {
		v.Fail(fmt.Sprintf("found %d characters", len(p.Value)), "at most 1024", "")
		return
	}
	if p.kind() == Regex {
		checkRegex(v, Regex, p.Value)
		return
	}
	for _, no := range []string{"//", "/./", "/../", "%2f", "%2F", "#"} {
		if strings.Contains(p.Value, no) {
			v.Fail(v.Found(), "a path without "+no, "")
			return
		}
	}
	switch {
	case !strings.HasPrefix(p.Value, "/"):
		v.Fail(v.Found(), "a path that begins with /", "")
	case strings.HasSuffix(p.Value, "/.."), strings.HasSuffix(p.Value, "/."):
		v.Fail(v.Found(), "a path that does not end in /. or /..", "")
	case !pathForm.MatchString(p.Value):
		v.Fail(v.Found(), "a path of letters, digits, signs and %XX", "")
	}
}

// once lists the filters that a rule may have only once.
var once = []string{"RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite", "CORS",
	"ExternalAuth"}

// checkFilters checks a rule's filters, or those of one of its backends.
func checkFilters(filters []Filter, r *Rule) {
	seen := map[string]int{}
	for i := range filters {
		f := &filters[i]
		v := f.At
		demand(v.Get("type"), "the filter's type")
		if first := seen[f.Type]; first > 0 && slices.Contains(once, f.Type) {
			v.Get("type").Fail(fmt.Sprintf("%s is given twice, first on line %d", f.Type, first), "it once", "")
		}
		seen[f.Type] = v.Line()
		f.checkUnion()
		for _, h := range []*HeaderModifier{f.RequestHeaders, f.ResponseHeaders} {
			if h != nil {
				h.check()
			}
		}
		if x := f.Redirect; x != nil {
			hostname(v.Get("requestRedirect").Get("hostname"), x.Hostname, false)
			if s := v.Get("requestRedirect").Get("statusCode"); s.Given() &&
				!slices.Contains([]int{301, 302, 303, 307, 308}, x.Status) {
				s.Fail(s.Found(), "301, 302, 303, 307 or 308", "")
			}
			x.Path.check(r)
		}
		if x := f.Rewrite; x != nil {
			hostname(v.Get("urlRewrite").Get("hostname"), x.Hostname, false)
			x.Path.check(r)
		}
		if m := f.Mirror; m != nil {
			m.Backend.check()
			switch n := m.Fraction; {
			case m.Percent != nil && n != nil:
				m.At.Fail("percent and fraction", "one of them", "")
			case n != nil && n.Numerator > n.denominator():
				m.At.Get("fraction").Fail(fmt.Sprintf("%d of %d", n.Numerator, n.denominator()), "at most all", "")
			}
		}
	}
	if seen["RequestRedirect"] > 0 && seen["URLRewrite"] > 0 {
		r.At.Get("filters").Fail("RequestRedirect and URLRewrite", "one of them", "")
	}
}

func (f *Fraction) denominator() int {
	return Or(f.Denominator, 100)
}

// Or returns an optional number, or what counts where it is not given.
func Or(v *int, otherwise int) int {
	if v == nil {
		return otherwise
	}
	return *v
}

// checkUnion checks that a filter has the field that belongs to its type.
func (f *Filter) checkUnion() {
	for _, x := range [][2]string{{"RequestHeaderModifier", "requestHeaderModifier"},
		{"ResponseHeaderModifier", "responseHeaderModifier"}, {"RequestMirror", "requestMirror"},
		{"RequestRedirect", "requestRedirect"}, {"URLRewrite", "urlRewrite"}, {"ExtensionRef", "extensionRef"},
		{"CORS", "cors"}, {"ExternalAuth", "externalAuth"}} {
		kind, v := x[0], f.At.Get(x[1])
		switch {
		case f.Type == kind && !v.Given():
			v.Fail("missing", x[1]+", which the type "+kind+" needs", "")
		case f.Type != kind && v.Given() && f.Type != "":
			v.Fail("given beside the type "+f.Type, "it with the type "+kind+" only", "")
		}
	}
}

// fixed lists headers that no modifier may change: Envoy refuses Host, and the others delimit a message.
var fixed = []string{"host", "transfer-encoding", "content-length"}

func (h *HeaderModifier) check() {
	name := func(at strictyaml.Value, name string) {
		form(at, name, headerForm, 256, "a header's name")
		if slices.Contains(fixed, strings.ToLower(name)) {
			at.Fail(fmt.Sprintf("found %q", name), "another header than Host, Transfer-Encoding and Content-Length",
				"URLRewrite changes the host")
		}
	}
	for _, list := range [][]HeaderValue{h.Set, h.Add} {
		seen := map[string]bool{}
		for _, x := range list {
			demand(x.At.Get("name"), "a header's name")
			name(x.At.Get("name"), x.Name)
			demand(x.At.Get("value"), "a value")
			if len(x.Value) > 4096 {
				x.At.Get("value").Fail(fmt.Sprintf("found %d bytes", len(x.Value)), "at most 4096", "")
			}
			if strings.ContainsAny(x.Value, "\r\n\x00") {
				x.At.Get("value").Fail("found a line break or a NUL", "one line of text", "")
			}
			if seen[x.Name] {
				x.At.Get("name").Fail(fmt.Sprintf("%q is given twice", x.Name), "each name once", "")
			}
			seen[x.Name] = true
		}
	}
	for _, x := range h.At.Get("remove").List() {
		name(x, x.Scalar())
	}
}

func (p *PathModifier) check(r *Rule) {
	if p == nil {
		return
	}
	demand(p.At.Get("type"), "ReplaceFullPath or ReplacePrefixMatch")
	switch {
	case p.Type == ReplaceFullPath && p.Full == nil:
		p.At.Get("replaceFullPath").Fail("missing", "the new path", "")
	case p.Type == ReplacePrefixMatch && p.Prefix == nil:
		p.At.Get("replacePrefixMatch").Fail("missing", "the new prefix", "")
	case p.Type != ReplaceFullPath && p.Full != nil:
		p.At.Get("replaceFullPath").Fail("given beside the type "+p.Type, "it with the type ReplaceFullPath only", "")
	case p.Type != ReplacePrefixMatch && p.Prefix != nil:
		p.At.Get("replacePrefixMatch").Fail("given beside the type "+p.Type, "it with the type ReplacePrefixMatch only",
			"")
	case p.Type == ReplacePrefixMatch && !r.prefixMatch():
		p.At.Fail("ReplacePrefixMatch", "one match of the rule, of type PathPrefix", "")
	}
	for field, text := range map[string]*string{"replaceFullPath": p.Full, "replacePrefixMatch": p.Prefix} {
		if text != nil && len(*text) > 1024 {
			p.At.Get(field).Fail(fmt.Sprintf("found %d characters", len(*text)), "at most 1024", "")
		}
	}
}
