package envoy

import (
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/windtunnel/windtunnel/internal/files"
)

// WriteEndpoints writes a pool's endpoints (ip:port) to path, the Pool.EndpointsFile of a running Envoy. Envoy watches
// for the move that replaces the file, so it never reads half of it. An empty list is allowed: the pool then answers
// 503.
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
