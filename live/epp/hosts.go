package epp

import (
	"context"
	"net"
)

// dialer connects to an address of the map where it has one: what has a name
// in a cluster has an address in a run.
func dialer(hosts map[string]string) func(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if to, ok := hosts[address]; ok {
			address = to
		}
		return d.DialContext(ctx, network, address)
	}
}
