package gateway

import (
	"reflect"
	"testing"

	core "github.com/windtunnel/windtunnel/core/gateway"
)

const controllerName = "windtunnel.dev/gateway-controller"

// A status keeps the parents of other controllers and the times of conditions that have not changed. It drops the
// controller's own parents that are gone, and leaves an object alone that is no object of the controller.
func TestStatusOf(t *testing.T) {
	s := &server{controller: controllerName}
	parent := func(gateway, controller, status, time string) any {
		return dict{"controllerName": controller,
			"parentRef": dict{"group": core.Group, "kind": "Gateway", "namespace": "llm", "name": gateway},
			"conditions": []any{dict{"type": "Accepted", "status": status, "reason": "r", "message": "m",
				"lastTransitionTime": time, "observedGeneration": 3.0}}}
	}
	const then = "2026-01-01T00:00:00Z"
	pool := func(status string, gateways ...string) *core.Status {
		x := &core.Status{Kind: "InferencePool"}
		for _, g := range gateways {
			x.Parents = append(x.Parents, core.ParentStatus{Gateway: "llm/" + g,
				Conditions: []core.Condition{{Type: "Accepted", Status: status, Reason: "r", Message: "m"}}})
		}
		return x
	}
	theirs := parent("other", "istio.io/gateway-controller", "True", then)
	before := dict{"parents": []any{parent("a", controllerName, "True", then), theirs}}
	if got := s.statusOf(pool("True", "a"), before, 3); !reflect.DeepEqual(got, before) {
		t.Errorf("nothing has changed: %v", got)
	}
	got := s.statusOf(pool("False", "a"), before, 3)
	list := got["parents"].([]any)
	if c := field(list[0], "conditions").([]any)[0]; len(list) != 2 || field(c, "lastTransitionTime") == then {
		t.Errorf("a new status has the old time: %v", got)
	}
	if got := s.statusOf(pool(""), before, 3); !reflect.DeepEqual(got, dict{"parents": []any{theirs}}) {
		t.Errorf("without a parent: %v", got)
	}
	fresh := dict{"parents": []any{dict{"parentRef": dict{"kind": "Status", "name": "default"}}}}
	if got := s.statusOf(pool(""), fresh, 3); !reflect.DeepEqual(got, fresh) {
		t.Errorf("of no controller: %v", got)
	}
	if got := s.statusOf(pool("True", "a"), fresh, 3)["parents"].([]any); len(got) != 1 {
		t.Errorf("with the default parent: %v", got)
	}
	foreign := dict{"parents": []any{theirs}, "more": "x"}
	if got := s.statusOf(pool(""), foreign, 3); !reflect.DeepEqual(got, foreign) {
		t.Errorf("of another controller: %v", got)
	}
}
