// Package discovery reads the endpoints file of the plug-in file-discovery:
//
//	endpoints:
//	- {name: w1, address: 127.0.0.1, port: "8000", labels: {llm-d.ai/role: decode}}
//
// Addresses are IPv4 literals and ports are strings, as the real EPP wants
// them. Unknown fields, duplicates and an empty file are accepted, since files
// written for the real one may have them; whatever is wrong is told with its
// line, where the real one exits without a word.
package discovery

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/strict"
)

// Limits of an endpoints file.
const (
	MaxFileBytes = 1 << 20
	MaxEndpoints = 20_000
)

// DefaultNamespace is that of endpoints whose entry names none.
const DefaultNamespace = "default"

// Read parses an endpoints file.
func Read(data []byte, namespace string) ([]*picker.Endpoint, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("the endpoints file has %d bytes; at most %d are read", len(data), MaxFileBytes)
	}
	root, err := strict.Parse(data)
	if err != nil || root == nil {
		return nil, err
	}
	if root.Kind != yaml.MappingNode {
		return nil, strict.At(root, "", "expected a mapping with the key endpoints")
	}
	if namespace == "" {
		namespace = DefaultNamespace
	}
	var out []*picker.Endpoint
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != "endpoints" {
			continue
		}
		list := root.Content[i+1]
		if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
			continue
		}
		if list.Kind != yaml.SequenceNode {
			return nil, strict.At(list, "endpoints", "expected a list")
		}
		if len(list.Content) > MaxEndpoints {
			return nil, strict.At(list, "endpoints", "%d entries are more than the %d allowed", len(list.Content), MaxEndpoints)
		}
		for j, n := range list.Content {
			e, err := entry(n, fmt.Sprintf("endpoints[%d]", j), namespace)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
	}
	return out, nil
}

func entry(n *yaml.Node, field, namespace string) (*picker.Endpoint, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return nil, strict.At(n, field, "expected a mapping with name, address and port")
	}
	var name, own, address, port string
	labels := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, v := n.Content[i].Value, n.Content[i+1]
		var err error
		switch key {
		case "name":
			err = strict.Decode(v, field+".name", &name)
		case "namespace":
			err = strict.Decode(v, field+".namespace", &own)
		case "address":
			err = strict.Decode(v, field+".address", &address)
		case "port":
			if v.Kind == yaml.ScalarNode && v.Tag == "!!int" {
				err = strict.At(v, field+".port", "the port must be a string: write %q", v.Value)
			} else {
				err = strict.Decode(v, field+".port", &port)
			}
		case "labels":
			err = strict.Decode(v, field+".labels", &labels)
		}
		if err != nil {
			return nil, err
		}
	}
	if !ipv4(address) {
		return nil, strict.At(n, field+".address", "%q is not an IPv4 address; host names and IPv6 are not accepted here", address)
	}
	if p, err := strconv.Atoi(port); err != nil || p < 1 || p > 65535 || port[0] == '+' {
		return nil, strict.At(n, field+".port", "%q is not a port; expected a string such as \"8000\"", port)
	}
	if own == "" {
		own = namespace
	}
	return picker.NewEndpoint(own, name, address, port, labels), nil
}

func ipv4(s string) bool {
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return false
	}
	for _, p := range parts {
		if n, err := strconv.Atoi(p); err != nil || n < 0 || n > 255 || strconv.Itoa(n) != p {
			return false
		}
	}
	return true
}
