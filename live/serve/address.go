package serve

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Advertised returns the host under which other parts reach a part that listens. It is the given host, or else the
// host that the part listens on. For a wildcard it is the environment's POD_IP, else the machine's first address
// outside loopback, else the loopback address.
func Advertised(listen, given string, env func(string) (string, bool)) (string, error) {
	if given != "" {
		if _, err := netip.ParseAddr(given); err != nil && !name.MatchString(given) {
			return "", fmt.Errorf("%q is not a host: expected a name or an address, without a port", given)
		}
		return given, nil
	}
	if !Wildcard(listen) {
		return listen, nil
	}
	if ip, ok := env("POD_IP"); ok && ip != "" {
		if _, err := netip.ParseAddr(ip); err != nil {
			return "", fmt.Errorf("POD_IP: %w", err)
		}
		return ip, nil
	}
	for _, a := range OwnAddresses() {
		if a.IsGlobalUnicast() {
			return a.String(), nil
		}
	}
	return "127.0.0.1", nil
}

// name matches a host's name, as in DNS.
var name = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// Wildcard reports whether a host stands for all addresses of the machine.
func Wildcard(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || host == "*" || err == nil && a.IsUnspecified()
}

// OwnAddresses returns the addresses of the machine's interfaces, IPv4 first.
func OwnAddresses() []netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil // then no address counts as its own
	}
	var v4, v6 []netip.Addr
	for _, x := range list {
		p, err := netip.ParsePrefix(x.String())
		switch {
		case err != nil:
		case p.Addr().Unmap().Is4():
			v4 = append(v4, p.Addr().Unmap())
		default:
			v6 = append(v6, p.Addr())
		}
	}
	return append(v4, v6...)
}

// PortOf returns the port in host:port, or in tcp:// and that; 0 without one.
func PortOf(address string) int {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(address, "tcp://"))
	n, _ := strconv.Atoi(port)
	return n
}
