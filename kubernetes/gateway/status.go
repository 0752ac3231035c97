package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	core "github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/up"
)

type (
	object  = unstructured.Unstructured
	clients = dynamic.Interface
	dict    = map[string]any
)

// The resources whose status the Gateway writes.
var (
	classes  = schema.GroupVersionResource{Group: core.Group, Version: "v1", Resource: "gatewayclasses"}
	gateways = schema.GroupVersionResource{Group: core.Group, Version: "v1", Resource: "gateways"}
	routes   = schema.GroupVersionResource{Group: core.Group, Version: "v1", Resource: "httproutes"}
	pools    = schema.GroupVersionResource{Group: objects.GroupV1, Version: "v1", Resource: "inferencepools"}
)

// written maps the kinds whose status the Gateway writes to their resources. The status of an InferencePool of
// serving.kserve.io is its controller's.
var written = map[string]schema.GroupVersionResource{"GatewayClass": classes, "Gateway": gateways, "HTTPRoute": routes,
	"InferencePool": pools}

// find adds the objects of a file of the mirror that have a status which the Gateway writes.
func find(data []byte, to map[string]*object) {
	for line := range bytes.Lines(data) {
		x := &object{}
		if json.Unmarshal(line, &x.Object) != nil || x.Object == nil {
			continue // between two objects
		}
		if r, ok := written[x.GetKind()]; ok && x.GroupVersionKind().GroupVersion() == r.GroupVersion() {
			to[x.GetKind()+" "+x.GetNamespace()+"/"+x.GetName()] = x
		}
	}
}

// writeStatus writes the status of each object where it differs.
func (s *server) writeStatus(ctx context.Context, p *core.Program, found map[string]*object) error {
	var errs []error
	for i := range p.Status {
		x := &p.Status[i]
		have := found[x.Kind+" "+x.Namespace+"/"+x.Name]
		if have == nil {
			continue
		}
		before, _ := have.Object["status"].(dict)
		status := s.statusOf(x, before, have.GetGeneration())
		if reflect.DeepEqual(before, status) || len(before)+len(status) == 0 {
			continue
		}
		next := have.DeepCopy()
		next.Object["status"] = status
		_, err := s.client.Resource(written[x.Kind]).Namespace(x.Namespace).UpdateStatus(ctx, next,
			metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // those events follow
			errs = append(errs, fmt.Errorf("%s %s/%s: status: %w", x.Kind, x.Namespace, x.Name, err))
		}
	}
	return errors.Join(errs...)
}

// statusOf returns an object's status. It keeps the fields and the parents of others, and the times of conditions that
// have not changed.
func (s *server) statusOf(x *core.Status, before dict, generation int64) dict {
	at := time.Now().UTC().Format(time.RFC3339)
	status := up.StatusFields(x, s.controller, func(_ string, list []core.Condition) []any {
		out := []any{}
		for _, c := range list {
			out = append(out, dict{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
				"lastTransitionTime": at, "observedGeneration": float64(generation)})
		}
		return out
	})
	if x.Kind == "Gateway" && s.up != nil {
		kind := "IPAddress"
		if _, err := netip.ParseAddr(s.address); err != nil {
			kind = "Hostname"
		}
		status["addresses"] = []any{dict{"type": kind, "value": s.address}}
	}
	status = plain(status)
	ours := len(status) > 0
	parents, _ := status["parents"].([]any)
	old, _ := before["parents"].([]any)
	for _, p := range old {
		name, _ := field(p, "controllerName").(string)
		if ours = ours || name == s.controller; name != s.controller && name != "" {
			parents = append(parents, p)
		}
	}
	if !ours {
		return before
	}
	for k, v := range before {
		if _, mine := status[k]; !mine {
			status[k] = v
		}
	}
	if status["parents"] = any(parents); x.Kind == "Gateway" || x.Kind == "GatewayClass" {
		delete(status, "parents")
	} else if parents == nil {
		status["parents"] = []any{}
	}
	keepTimes(before, status)
	return status
}

// plain returns a value as JSON has it.
func plain(x dict) (out dict) {
	text, err := json.Marshal(x)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err) // a status has only values that JSON can represent
	}
	return out
}

func field(x any, name string) any {
	d, _ := x.(dict)
	return d[name]
}

// keepTimes sets the times of the conditions in now that are in before with the same status.
func keepTimes(before, now any) {
	switch now := now.(type) {
	case dict:
		before, _ := before.(dict)
		if t, ok := before["lastTransitionTime"]; ok && before["status"] == now["status"] {
			now["lastTransitionTime"] = t
		}
		for k, v := range now {
			keepTimes(before[k], v)
		}
	case []any:
		before, _ := before.([]any)
		for _, x := range now {
			for _, y := range before {
				if same(x, y, "type") && same(x, y, "name") && same(x, y, "parentRef") && same(x, y, "controllerName") {
					keepTimes(y, x)
				}
			}
		}
	}
}

// same reports whether two elements have equal fields of a name.
func same(x, y any, name string) bool { return reflect.DeepEqual(field(x, name), field(y, name)) }
