package epp

import (
	"cmp"
	"context"
	"net"
)

// dialer connects to the address that hosts returns for a name, if any: a name in a cluster has an address in a run.
func dialer(hosts func(string) string) func(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if hosts != nil {
			address = cmp.Or(hosts(address), address)
		}
		return d.DialContext(ctx, network, address)
	}
}
