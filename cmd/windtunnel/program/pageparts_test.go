package program

import (
	"strings"
	"testing"
)

// The page shows the parts of Envoy's configuration that say how requests are treated, without their types.
func TestInForce(t *testing.T) {
	text, err := inForce([]byte(`{"configs": [
		{"@type": "ListenersConfigDump", "static_listeners": [{"listener": {"@type": "Listener", "name": "a"}}, {}],
			"dynamic_listeners": [{"active_state": {"listener": {"name": "b"}}}, {"warming_state": {}}]},
		{"dynamic_route_configs": [{"route_config": {"name": "r", "virtual_hosts": [{"@type": "x", "domains": ["*"]}]}}]},
		{"static_clusters": [{"cluster": {"name": "c"}}], "dynamic_active_clusters": [{"cluster": {"name": "d"}}]},
		{"bootstrap": {"admin": {}}}]}`))
	want := `clusters:
- name: c
- name: d
listeners:
- name: a
- name: b
routes:
- name: r
  virtual_hosts:
  - domains:
    - '*'
`
	if err != nil || text != want {
		t.Errorf("%v; found\n%s\nexpected\n%s", err, text, want)
	}
	if _, err := inForce([]byte("no JSON")); err == nil || !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("found %v", err)
	}
}
