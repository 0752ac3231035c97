package header

import (
	"net/netip"
	"strings"
)

// Loopback reports whether a request's Host or :authority, with or without a port, names the loopback address of the
// machine that it reaches. An attacker's DNS may resolve any other name to that address (DNS rebinding).
func Loopback(host string) bool {
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().Unmap().IsLoopback()
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}
