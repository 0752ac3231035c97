package disagg

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// MaxTargets limits the servers that one header may name.
const MaxTargets = 16

// Target is a server that a header names.
type Target struct {
	// An https:// in front sets TLS, and an http:// sets Plain. With neither, the sidecar's own configuration decides.
	TLS, Plain bool
	// Host is a name or an address. Port is the text after the colon, or the scheme's port.
	Host string
	Port int
	// Addr is Host's resolved address. The zero Addr means unknown.
	Addr netip.Addr
	// Bad says why there is no address; the sidecar then calls no server. NoURL is true where the text is not even the
	// host of a URL, which the sidecar knows before any leg.
	Bad   string
	NoURL bool
}

// String returns host:port.
func (t Target) String() string { return connector.Address(t.Host, t.Port) }

// Literal fills in Addr where Host is an address, and reports whether it is.
func (t *Target) Literal() bool {
	a, err := netip.ParseAddr(t.Host)
	if err != nil {
		return false
	}
	t.Addr = a.Unmap()
	return true
}

// ParseTargets parses a header's list: comma separated, each entry with or without a scheme, a name or an address. It
// drops surrounding spaces, empty entries, and all entries beyond MaxTargets. An entry that names no server has Bad
// set: it counts as a prefiller that cannot be reached.
func ParseTargets(list string) []Target {
	var out []Target
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		t, err := ParseTarget(entry)
		if err != nil {
			var noURL *url.Error
			t.Bad, t.NoURL = err.Error(), errors.As(err, &noURL)
			t.Host = cmp.Or(t.Host, "?")
		}
		if out = append(out, t); len(out) == MaxTargets {
			break
		}
	}
	return out
}

// ParseTarget parses HOST:PORT or http[s]://HOST[:PORT]. Beside an error it returns a target with the host, where the
// text has a readable one.
func ParseTarget(text string) (Target, error) {
	fail := func(why string) (Target, error) {
		return Target{}, fmt.Errorf("%.100q: %s; expected HOST:PORT such as 10.0.0.5:8000", text, why)
	}
	var t Target
	full := text
	switch {
	case strings.HasPrefix(text, "http://"):
		t.Plain, t.Port = true, 80
	case strings.HasPrefix(text, "https://"):
		t.TLS, t.Port = true, 443
	case strings.Contains(text, "://"):
		return fail("the scheme is neither http nor https")
	default:
		full, t.Port = "http://"+text, 80
	}
	u, err := url.Parse(full)
	if err != nil {
		return Target{}, err // err has the real sidecar's words
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return fail("there is more than a server's address in it")
	}
	t.Host = u.Hostname()
	if t.Host == "" || len(t.Host) > 253 {
		return fail("there is no host in it")
	}
	if p := u.Port(); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > 65535 {
			_, err := fail("the port is not between 1 and 65535")
			return t, err
		}
		t.Port = n
	}
	t.Literal()
	return t, nil
}

// ParseSource parses x-kv-cache-source-host-port, which must be HOST:PORT. For any other value it returns nil: the
// header is advice, and the sidecar ignores advice that it cannot parse.
func ParseSource(text string) *Target {
	text = strings.TrimSpace(text)
	host, port, found := strings.Cut(text, ":")
	if ip, rest, bracketed := strings.Cut(text, "]:"); bracketed && strings.HasPrefix(ip, "[") {
		host, port = ip[1:], rest
	}
	if !found || host == "" || strings.Contains(port, ":") {
		return nil
	}
	t, err := ParseTarget(text)
	if err != nil {
		return nil
	}
	return &t
}

// Allowlist holds the servers that a request may name as prefiller: the pool's addresses (document 003, SSRF
// protection). A port counts only on a loopback address, which many servers share. A new Allowlist allows no server.
type Allowlist struct{ by map[netip.Addr]map[int]bool }

// Set replaces the pool's endpoints.
func (a *Allowlist) Set(endpoints []netip.AddrPort) {
	a.by = map[netip.Addr]map[int]bool{}
	for _, e := range endpoints {
		addr := e.Addr().Unmap()
		if a.by[addr] == nil {
			a.by[addr] = map[int]bool{}
		}
		a.by[addr][int(e.Port())] = true
	}
}

// Size returns the number of addresses.
func (a *Allowlist) Size() int {
	if a == nil {
		return 0
	}
	return len(a.by)
}

// Allows reports whether the sidecar may call a target. Only the target's resolved address counts, never its name.
func (a *Allowlist) Allows(t *Target) bool {
	if a == nil {
		return true
	}
	ports, ok := a.by[t.Addr.Unmap()]
	return ok && t.Addr.IsValid() && (!t.Addr.IsLoopback() || ports[t.Port])
}

// Blocked is the body of the 403 for a target that is not allowed.
const Blocked = "Forbidden: prefill target not allowed by SSRF protection"
