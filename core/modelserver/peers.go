package modelserver

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
)

// A request names the server from which to fetch its cache. The operator decides which servers a request may name,
// whatever client sent it.

// Peers are the servers from which KV caches may be fetched. The zero value is
// LocalPeers.
type Peers struct {
	any, local bool
	networks   []netip.Prefix
	names      []string
}

// Words that ParsePeers accepts beside addresses.
const (
	LocalPeers = "local" // the addresses of this machine, the loopback among them
	AnyPeers   = "any"   // any server that a request names
)

// ParsePeers parses addresses, networks such as 10.244.0.0/16, names, and the words local and any. It compares names as
// they are written: the operator is responsible for what they resolve to.
func ParsePeers(list []string) (Peers, error) {
	var p Peers
	for _, text := range list {
		if network, err := netip.ParsePrefix(text); err == nil {
			p.networks = append(p.networks, network.Masked())
			continue
		}
		if a, err := netip.ParseAddr(text); err == nil {
			p.networks = append(p.networks, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		switch {
		case text == LocalPeers:
			p.local = true
		case text == AnyPeers:
			p.any = true
		case !hostName.MatchString(text):
			return p, fmt.Errorf("%q: expected an address, a network such as 10.244.0.0/16, a name, %s or %s", text,
				LocalPeers, AnyPeers)
		default:
			p.names = append(p.names, text)
		}
	}
	return p, nil
}

// hostName matches a DNS host name.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// allow reports whether the server may connect to a host. own reports this machine's addresses other than the loopback.
// allow never resolves a name.
func (p *Peers) allow(host string, own func(netip.Addr) bool) bool {
	if p.any || slices.Contains(p.names, host) {
		return true
	}
	local := p.local || len(p.networks)+len(p.names) == 0
	if host == "localhost" {
		return local
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	a = a.Unmap()
	return slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(a) }) ||
		local && (a.IsLoopback() || own(a))
}
