package cluster

import (
	"net"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/internal/files"
)

// NewEndpoint returns the endpoint that listens at host:port, the address of a listener.
func NewEndpoint(namespace, name, at string, labels map[string]string) *picker.Endpoint {
	host, port, _ := net.SplitHostPort(at) // a listener's address has both
	return picker.NewEndpoint(namespace, name, host, port, labels)
}

// WriteEndpoints writes the file that the real EPP's file-discovery, and sidecars, read. Readers see the old or the new
// one, whole.
func WriteEndpoints(path string, list []*picker.Endpoint) error {
	all := []map[string]any{}
	for _, e := range list {
		x := map[string]any{"name": e.Name, "address": e.Address, "port": e.Port}
		if len(e.Labels) > 0 {
			x["labels"] = e.Labels
		}
		all = append(all, x)
	}
	text, err := yaml.Marshal(map[string]any{"endpoints": all})
	if err != nil {
		return err
	}
	return files.Replace(path, text)
}
