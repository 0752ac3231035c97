package discovery

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	list, err := Read("endpoints.yaml",
		[]byte("endpoints:\n- {name: w1, address: 127.0.0.1, port: \"8000\", labels: {a: b}, other: 1}\n- "+
			"{namespace: m, address: 10.0.0.1, port: '1'}\n"), "")
	if err != nil || len(list) != 2 || list[0].ID() != "default/w1" || list[0].HostPort() != "127.0.0.1:8000" ||
		list[1].ID() != "m/" {
		t.Fatalf("got %v %v", list, err)
	}
	for text, want := range map[string]string{
		// YAML 1.1, as in Kubernetes
		"endpoints:\n- {namespace: n, address: 127.0.0.1}": "endpoints.yaml:2:15: endpoints[0].namespace: found the " +
			"truth value n; expected text",
		"endpoints: [a": "did not find expected",
		"- a":           "expected a mapping",
		"endpoints:\n- {address: host, port: \"1\"}": "endpoints.yaml:2:13: endpoints[0].address: found " +
			"\"host\"; expected an IPv4 address",
		"endpoints: [{address: '::1', port: \"1\"}]":         "expected an IPv4 address",
		"endpoints: [{address: 127.0.0.1, port: \"0\"}]":     "found \"0\"; expected a port",
		"endpoints: [{address: 127.0.0.1, port: \"70000\"}]": "expected a port",
		"endpoints: [{address: 127.0.0.1, port: 8000}]":      "found the number 8000; expected a text; write \"8000\"",
	} {
		if _, err := Read("endpoints.yaml", []byte(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("endpoints:\n- {name: w1, address: 127.0.0.1, port: \"8000\", labels: {a: b}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Read("endpoints.yaml", data, "")
		if err != nil {
			return
		}
		for _, e := range list {
			at, err := netip.ParseAddrPort(e.HostPort())
			if err != nil || !at.Addr().Is4() || at.Port() == 0 || e.Namespace == "" {
				t.Errorf("%q gives %+v (%v)", data, e, err)
			}
		}
	})
}
