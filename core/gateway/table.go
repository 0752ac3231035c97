package gateway

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

func itoa(n int) string { return strconv.Itoa(n) }

// covers reports whether the hostname of a listener or route matches every name that domain matches. "" matches all
// names. *.example.com matches all names that end in .example.com.
func covers(hostname, domain string) bool {
	if hostname == "" || hostname == domain {
		return true
	}
	suffix, wild := strings.CutPrefix(hostname, "*")
	return wild && domain != "" && strings.HasSuffix(strings.TrimPrefix(domain, "*"), suffix)
}

// intersect returns the names that both a listener and a route match.
func intersect(listener, route string) (string, bool) {
	switch {
	case covers(listener, route):
		return route, true
	case covers(route, listener):
		return listener, true
	}
	return "", false
}

// narrower orders hostnames, those that match fewer names first: names before wildcards, and longer ones before shorter
// ones.
func narrower(a, b string) int {
	exact := func(h string) int {
		if h == "" || strings.HasPrefix(h, "*") {
			return 0
		}
		return len(h)
	}
	return cmp.Or(exact(b)-exact(a), len(b)-len(a), strings.Compare(a, b))
}

// table makes the table of listeners that share a port. A request belongs to the listener with the narrowest hostname
// for its host, and only that listener's routes apply. Envoy looks a host up once and never falls back to a wider one.
// Therefore every host has the routes of the wider hostnames after its own.
func table(name string, on []*listener) *Table {
	owner := func(domain string) *listener {
		var best *listener
		for _, l := range on {
			if covers(l.Hostname, domain) && (best == nil || narrower(l.Hostname, best.Hostname) < 0) {
				best = l
			}
		}
		return best
	}
	var domains []string
	add := func(domain string, l *listener) {
		if owner(domain) == l && !slices.Contains(domains, domain) {
			domains = append(domains, domain)
		}
	}
	for _, l := range on {
		add(l.Hostname, l)
		for _, e := range l.entries {
			add(e.Domain, l)
		}
	}
	machine.SortFunc(domains, narrower)
	t := &Table{Name: name}
	for _, d := range domains {
		h := &Host{Domain: d}
		for _, e := range owner(d).entries {
			if covers(e.Domain, d) {
				h.Routes = append(h.Routes, e)
			}
		}
		machine.SortStableFunc(h.Routes, precedence)
		// A route with several hostnames may be in the list more than once.
		h.Routes = slices.CompactFunc(h.Routes, func(a, b *Route) bool { return a.Name == b.Name })
		t.Hosts = append(t.Hosts, h)
	}
	return t
}

// precedence orders routes for matching (HTTPRouteRule.matches): narrower hostnames, exact paths, regular expressions
// (which the API leaves open), longer prefixes, a method, more headers, more query parameters. The sort is stable, and
// its input has older routes first, in the order of their rules.
func precedence(a, b *Route) int {
	rank := func(r *Route) int {
		switch r.Path.kind() {
		case Exact:
			return 0
		case Regex:
			return 1
		}
		return 2
	}
	method := func(r *Route) int {
		if r.Match.Method != "" {
			return 0
		}
		return 1
	}
	return cmp.Or(narrower(a.Domain, b.Domain), rank(a)-rank(b), len(b.Path.prefix())-len(a.Path.prefix()),
		method(a)-method(b),
		len(b.Match.Headers)-len(a.Match.Headers), len(b.Match.Query)-len(a.Match.Query))
}

// prefix returns the path without a slash at its end, which makes no difference to a prefix. "" is every path.
func (p *PathMatch) prefix() string {
	if p.kind() != PathPrefix {
		return p.Value
	}
	return strings.TrimRight(p.Value, "/")
}
