// Package discovery reads the endpoints file of the plug-in file-discovery:
//
//	endpoints:
//	- {name: w1, address: 127.0.0.1, port: "8000", labels: {llm-d.ai/role: decode}}
//
// Like the real EPP, it requires addresses to be IPv4 literals and ports to be strings. It accepts unknown fields,
// duplicates and an empty file, since files written for the real EPP may have them. It reports mistakes with their
// line, where the real EPP exits silently.
package discovery

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Limits of an endpoints file.
const (
	MaxFileBytes = 1 << 20
	MaxEndpoints = 20_000
)

// DefaultNamespace is the namespace of endpoints without one.
const DefaultNamespace = "default"

// Read parses an endpoints file; file is its name in messages. The error has every mistake in it.
func Read(file string, data []byte, namespace string) ([]*picker.Endpoint, error) {
	doc, err := strictyaml.Parse(data, strictyaml.Options{File: file, Kubernetes: true, MaxBytes: MaxFileBytes})
	if err != nil {
		return nil, err
	}
	namespace = cmp.Or(namespace, DefaultNamespace)
	root := doc.Root()
	if root.Given() && !root.IsMapping() {
		root.Fail(root.Found(), "a mapping with the key endpoints", "")
	}
	list := root.Get("endpoints").List()
	if len(list) > MaxEndpoints {
		root.Get("endpoints").Fail(fmt.Sprintf("found %d entries", len(list)), fmt.Sprintf("at most %d", MaxEndpoints),
			"")
		list = nil
	}
	var out []*picker.Endpoint
	for _, v := range list {
		if !v.IsMapping() {
			v.Fail(v.Found(), "a mapping with name, address and port", "")
			continue
		}
		out = append(out, entry(v, namespace))
	}
	return out, doc.Problems().Err()
}

func entry(v strictyaml.Value, namespace string) *picker.Endpoint {
	address, port := v.Get("address"), v.Get("port")
	if !ipv4(address.Scalar()) {
		address.Fail(address.Found(), "an IPv4 address", "host names and IPv6 are not accepted here")
	}
	switch p, err := strconv.Atoi(port.Scalar()); {
	case err != nil || p < 1 || p > 65535 || port.Scalar()[0] == '+':
		port.Fail(port.Found(), `a port in quotes, such as "8000"`, "")
	case !port.IsText():
		port.Fail(port.Found(), "a text", fmt.Sprintf("write %q", port.Scalar()))
	}
	own := cmp.Or(v.Get("namespace").Text(), namespace)
	labels := v.Get("labels").Texts()
	if labels == nil {
		labels = map[string]string{}
	}
	return picker.NewEndpoint(own, v.Get("name").Text(), address.Scalar(), port.Scalar(), labels)
}

func ipv4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}
