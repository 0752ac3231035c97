package cluster

import (
	"net"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/internal/files"
)

// Endpoint is a pod's port in the file that the real EPP's file-discovery, and sidecars, read.
type Endpoint struct {
	Name    string            `json:"name"`
	Address string            `json:"address"`
	Port    string            `json:"port"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// NewEndpoint is the endpoint that listens at host:port.
func NewEndpoint(name, at string, labels map[string]string) (Endpoint, error) {
	host, port, err := net.SplitHostPort(at)
	return Endpoint{name, host, port, labels}, err
}

// WriteEndpoints writes the file: readers see the old or the new one, whole.
func WriteEndpoints(path string, list []Endpoint) error {
	text, err := yaml.Marshal(map[string]any{"endpoints": list})
	if err != nil {
		return err
	}
	return files.Replace(path, text)
}
