package discovery

import (
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	list, err := Read("endpoints.yaml", []byte("endpoints:\n- {name: w1, address: 127.0.0.1, port: \"8000\", labels: {a: b}, other: 1}\n- {namespace: m, address: 10.0.0.1, port: '1'}\n"), "")
	if err != nil || len(list) != 2 || list[0].ID() != "default/w1" || list[0].HostPort() != "127.0.0.1:8000" || list[1].ID() != "m/" {
		t.Fatalf("got %v %v", list, err)
	}
	for text, want := range map[string]string{
		"endpoints:\n- {namespace: n, address: 127.0.0.1}": "line 2: endpoints[0].namespace: cannot read boolean", // YAML 1.1, as in Kubernetes
		"endpoints: [a": "did not find expected",
		"- a":           "expected a mapping",
		"endpoints:\n- {address: host, port: \"1\"}":         "line 2: endpoints[0].address: \"host\" is not an IPv4 address",
		"endpoints: [{address: '::1', port: \"1\"}]":         "not an IPv4 address",
		"endpoints: [{address: 127.0.0.1, port: \"0\"}]":     "\"0\" is not a port",
		"endpoints: [{address: 127.0.0.1, port: \"70000\"}]": "is not a port",
		"endpoints: [{address: 127.0.0.1, port: 8000}]":      "the port must be a string: write \"8000\"",
	} {
		if _, err := Read("endpoints.yaml", []byte(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("endpoints:\n- {name: w1, address: 127.0.0.1, port: \"8000\", labels: {a: b}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) { _, _ = Read("endpoints.yaml", data, "") })
}
