package envoy

import (
	"fmt"
	"os"
	"path/filepath"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
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
	// The new file comes from beside the old one, or the move would be a copy.
	// Envoy reads YAML by the ending of the name.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".endpoints-*.yaml")
	if err != nil {
		return fmt.Errorf("endpoints of pool %s: %w", pool, err)
	}
	_, err = tmp.Write(text)
	if closing := tmp.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("endpoints of pool %s: %w", pool, err)
	}
	return nil
}
