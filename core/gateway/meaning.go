package gateway

// StatusUnusable answers what a rule has no usable backend for.
const StatusUnusable = 500

// Code is the redirect's status, 302 where none is said.
func (x *Redirect) Code() int {
	if x.Status == 0 {
		return 302
	}
	return x.Status
}

// PortOf is the port that the redirect names: its own, else its scheme's, else the
// listener's.
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

// scheme is the scheme that a redirect names, for a listener with or without TLS.
func (x *Redirect) scheme(secure bool) string {
	switch {
	case x.Scheme != "":
		return x.Scheme
	case secure:
		return "https"
	}
	return "http"
}

// Usual says whether the redirect's port is the one that its scheme has anyway.
func (x *Redirect) Usual(listener int, secure bool) bool {
	return x.PortOf(listener) == map[string]int{"http": 80, "https": 443}[x.scheme(secure)]
}

// Prefix is the path prefix that a route matches, without the slash at its end;
// "" is every path.
func (r *Route) Prefix() string { return r.Path.prefix() }
