package gateway

import "cmp"

// StatusUnusable answers requests whose rule has no usable backend.
const StatusUnusable = 500

// Code returns the redirect's status, 302 by default.
func (x *Redirect) Code() int { return cmp.Or(x.Status, 302) }

// PortOf returns the redirect's port: its own, otherwise its scheme's, otherwise the listener's.
func (x *Redirect) PortOf(listener int) int {
	switch {
	case x.Port != 0:
		return x.Port
	case x.Scheme == "https":
		return 443
	case x.Scheme == "http":
		return 80
	}
	return listener
}

// scheme returns the redirect's scheme, for a listener with or without TLS.
func (x *Redirect) scheme(secure bool) string {
	switch {
	case x.Scheme != "":
		return x.Scheme
	case secure:
		return "https"
	}
	return "http"
}

// Usual reports whether the redirect's port is its scheme's default port.
func (x *Redirect) Usual(listener int, secure bool) bool {
	return x.PortOf(listener) == map[string]int{"http": 80, "https": 443}[x.scheme(secure)]
}

// Prefix returns the path prefix that a route matches, without a slash at its end. "" is every path.
func (r *Route) Prefix() string { return r.Path.prefix() }
