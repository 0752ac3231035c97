package gateway

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Request holds the parts of a request that a table compares, as they arrive at the listener.
type Request struct {
	Method string
	// Host is the host as the client wrote it, with or without a port.
	Host string
	// Target is the path with the query.
	Target  string
	Headers header.List
}

// Verdict is a table's decision about a request.
type Verdict struct {
	// Route is nil where none matched.
	Route *Route
	// Status, if not 0, answers at once, with Location for a redirect. Otherwise the request goes to a backend.
	Status   int
	Location string
	// Share is the backend of the route that gets the request.
	Share *Share
	// Host, Target and Headers are the request's as the backend gets it.
	Host, Target string
	Headers      header.List
}

// StatusNoKey answers a request without an API key where a route asks for one.
const StatusNoKey = 401

// StatusNoRoute answers a request that no route matches.
const StatusNoRoute = 404

// Decide decides about a request that arrived at a port. draw chooses among a route's backends: it returns a number
// from 0 to below the sum of their weights.
func (t *Table) Decide(r Request, port int, draw func(weights int) int) Verdict {
	r.Target = Normalize(r.Target)
	route := t.Find(r)
	if route == nil {
		return Verdict{Status: StatusNoRoute}
	}
	v := Verdict{Route: route, Host: r.Host, Target: r.Target}
	if !route.Keys.Allow(r) {
		v.Status = StatusNoKey
		return v
	}
	if x := route.Redirect; x != nil {
		v.Status, v.Location = x.Code(), route.location(r, port)
		return v
	}
	total := 0
	for i := range route.Shares {
		total += route.Shares[i].Weight
	}
	if total == 0 {
		v.Status = StatusUnusable
		return v
	}
	n := draw(total)
	for i := range route.Shares {
		if n -= route.Shares[i].Weight; n < 0 {
			v.Share = &route.Shares[i]
			break
		}
	}
	if v.Share.Backend == nil {
		v.Status = StatusUnusable
		return v
	}
	v.Headers = slices.Clone(r.Headers)
	for _, m := range []*HeaderModifier{v.Share.RequestHeaders, route.RequestHeaders} {
		v.Headers = m.Apply(v.Headers)
	}
	if x := route.Rewrite; x != nil {
		v.Host = cmp.Or(x.Hostname, v.Host)
		v.Target = x.Path.apply(route, r.Target)
	}
	v.Host = cmp.Or(v.Share.Hostname, v.Host)
	return v
}

// Find returns the first route that matches, or nil.
func (t *Table) Find(r Request) *Route {
	h := t.host(r.Host)
	if h == nil {
		return nil
	}
	for _, x := range h.Routes {
		if x.matches(r) {
			return x
		}
	}
	return nil
}

// host returns the entry with the narrowest hostname that matches a request's host.
func (t *Table) host(host string) *Host {
	host = hostOnly(strings.ToLower(host))
	for _, h := range t.Hosts { // sorted by narrowness
		if covers(h.Domain, host) {
			return h
		}
	}
	return nil
}

func (r *Route) matches(q Request) bool {
	path, query, _ := strings.Cut(q.Target, "?")
	if m := r.Match.Method; m != "" && m != q.Method || !r.Path.matches(path) {
		return false
	}
	for i := range r.Match.Headers {
		x := &r.Match.Headers[i]
		// Several lines of one name are one value, joined by commas (RFC 9110).
		var values []string
		for _, h := range q.Headers {
			if strings.EqualFold(h.Name, x.Name) {
				values = append(values, h.Value)
			}
		}
		if len(values) == 0 || !x.matches(strings.Join(values, ",")) {
			return false
		}
	}
	for i := range r.Match.Query {
		x := &r.Match.Query[i]
		value, given := first(query, x.Name)
		if !given || !x.matches(value) {
			return false
		}
	}
	return true
}

// first returns the first value of a query parameter as written, since Envoy compares it without decoding.
func first(query, name string) (string, bool) {
	for _, pair := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if key == name && pair != "" {
			return value, true
		}
	}
	return "", false
}

func (p *PathMatch) matches(path string) bool {
	switch p.kind() {
	case Exact:
		return path == p.Value
	case Regex:
		return whole(p.Value, path)
	}
	rest, begins := strings.CutPrefix(path, p.prefix())
	return begins && (rest == "" || rest[0] == '/')
}

func (m *ValueMatch) matches(value string) bool {
	if m.kind() == Regex {
		return whole(m.Value, value)
	}
	return m.Value == value
}

// whole reports whether an expression matches a whole text.
func whole(expression, text string) bool {
	re, err := regexp.Compile("^(?:" + expression + ")$")
	return err == nil && re.MatchString(text)
}

// apply returns the target with its path replaced. The query stays.
func (p *PathModifier) apply(r *Route, target string) string {
	if p == nil {
		return target
	}
	path, query, has := strings.Cut(target, "?")
	if p.Type == ReplaceFullPath {
		path = *p.Full
	} else {
		rest := strings.TrimLeft(strings.TrimPrefix(path, r.Prefix()), "/")
		switch to := strings.TrimRight(*p.Prefix, "/"); {
		case rest == "" && !strings.HasSuffix(path, "/"):
			path = cmp.Or(to, "/")
		default:
			path = to + "/" + rest
		}
	}
	if has {
		path += "?" + query
	}
	return path
}

// Apply sets, adds and removes headers; a nil modifier changes nothing.
func (m *HeaderModifier) Apply(l header.List) header.List {
	if m == nil {
		return l
	}
	drop := func(name string) {
		l = slices.DeleteFunc(l, func(h header.Header) bool { return strings.EqualFold(h.Name, name) })
	}
	for _, name := range m.Remove {
		drop(name)
	}
	for _, h := range m.Set {
		drop(h.Name)
		l = append(l, header.Header{Name: strings.ToLower(h.Name), Value: h.Value})
	}
	for _, h := range m.Add {
		l = append(l, header.Header{Name: strings.ToLower(h.Name), Value: h.Value})
	}
	return l
}

// location returns the URL of a redirect. It includes the scheme's default port only where the client wrote a port.
func (r *Route) location(q Request, port int) string {
	x := r.Redirect
	host := x.Hostname
	ported := false
	if host == "" {
		if host = q.Host; host != hostOnly(host) {
			host, ported = hostOnly(host), true
		}
	}
	if ported || !x.Usual(port, r.Secure) {
		host += ":" + itoa(x.PortOf(port))
	}
	return x.scheme(r.Secure) + "://" + host + x.Path.apply(r, q.Target)
}

// hostOnly returns a host without its port.
func hostOnly(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i]
	}
	return host
}

// Normalize returns a request's target as Envoy compares it: without dot segments in the path (RFC 3986, section 6) and
// with repeated slashes merged.
func Normalize(target string) string {
	path, query, has := strings.Cut(target, "?")
	var out []string
	parts := strings.Split(path, "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "." || part == "..":
			if part == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		case part == "" && i > 0 && !last:
		case part == "" && last && len(out) > 0 && out[len(out)-1] == "" && len(out) > 1:
		default:
			out = append(out, part)
		}
	}
	path = strings.Join(out, "/")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if has {
		path += "?" + query
	}
	return path
}
