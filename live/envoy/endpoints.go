package envoy

import (
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/windtunnel/windtunnel/internal/files"
)

// WriteEndpoints puts a pool's endpoints (ip:port) where a running Envoy with
// Pool.EndpointsFile set to path sees them. Envoy watches for the move that
// makes the new file appear, so a reader never sees half of it. No endpoints
// are allowed: then the pool answers 503.
func WriteEndpoints(path, pool string, endpoints []string) error {
	w := &writer{}
	resource := w.pack(w.assignment(PoolCluster(pool), endpoints))
	if w.err != nil {
		return w.err
	}
	text, err := toYAML(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{resource}})
	if err != nil {
		return err
	}
	if err := files.Replace(path, text); err != nil {
		return fmt.Errorf("endpoints of pool %s: %w", pool, err)
	}
	return nil
}
