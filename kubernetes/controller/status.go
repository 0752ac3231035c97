package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/up"
)

// status writes the status of a pool or model. wrong is the mistake for which it has no effect, or nil.
func (c *Controller) status(ctx context.Context, x *unstructured.Unstructured, m *made, s *space, wrong error) error {
	before, _, _ := unstructured.NestedMap(x.Object, "status")
	var status dict
	switch p := m.set.Pool(x.GetNamespace(), x.GetName()); {
	case wrong != nil: // what was counted before stays
		status = dict{}
		maps.Copy(status, before)
		status["conditions"] = c.dated(before, gateway.Condition{Type: "Ready", Status: "False", Reason: "Invalid",
			Message: wrong.Error()})
	case x.GetKind() == kindPool && p != nil:
		status = c.pool(ctx, p, s.pods, before)
	default:
		status = c.model(x, m, s.ours, before)
	}
	if reflect.DeepEqual(before, status) {
		return nil
	}
	next := x.DeepCopy()
	next.Object["status"] = status
	resource := map[string]schema.GroupVersionResource{kindPool: pools, kindModel: models, kindLocal: localModels}
	_, err := c.o.Client.Resource(resource[x.GetKind()]).Namespace(x.GetNamespace()).UpdateStatus(ctx, next,
		metav1.UpdateOptions{})
	return c.done(next, err)
}

// dated returns the list of one condition, with the time of its last transition.
func (c *Controller) dated(before dict, x gateway.Condition) []any {
	at := time.Now().UTC().Format(time.RFC3339)
	list, _, _ := unstructured.NestedSlice(before, "conditions")
	for _, old := range list {
		if old, ok := old.(dict); ok && old["type"] == x.Type && old["status"] == x.Status {
			at = fmt.Sprint(old["lastTransitionTime"])
		}
	}
	return []any{dict{"type": x.Type, "status": x.Status, "reason": x.Reason, "message": x.Message,
		"lastTransitionTime": at}}
}

// pool returns the counts of a pool's pods, and the metrics that they report.
func (c *Controller) pool(ctx context.Context, p *objects.Pool, all []*unstructured.Unstructured, before dict) dict {
	var endpoints []string
	for _, x := range all {
		if !p.Selector.Matches(x.GetLabels()) || x.GetDeletionTimestamp() != nil {
			continue
		}
		at := ""
		if ip, _, _ := unstructured.NestedString(x.Object, "status", "podIP"); ip != "" && ready(x) {
			at = fmt.Sprintf("%s:%d", ip, p.Ports[0])
		}
		endpoints = append(endpoints, at)
	}
	status, is := c.pools.Status(ctx, p, endpoints, nil)
	status["conditions"] = c.dated(before, is)
	if found := status["metrics"]; found != nil {
		var metrics dict
		text, _ := json.Marshal(found) // four numbers
		_ = json.Unmarshal(text, &metrics)
		status["metrics"] = metrics
	}
	return status
}

// ready reports whether a pod's condition Ready is true.
func ready(x *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(x.Object, "status", "conditions")
	return slices.ContainsFunc(list, func(c any) bool {
		d, ok := c.(dict)
		return ok && d["type"] == "Ready" && d["status"] == "True"
	})
}

// model returns document 003's status of a model, from the Deployments that are made of it.
func (c *Controller) model(x *unstructured.Unstructured, m *made, ours []*unstructured.Unstructured, before dict) dict {
	state, total, with, of := "Pending", int64(0), map[string]int64{}, dict{}
	for _, d := range ours {
		if d.GetKind() != "Deployment" || !metav1.IsControlledBy(d, x) {
			continue
		}
		replicas, _, _ := unstructured.NestedInt64(d.Object, "status", "replicas")
		loaded, _, _ := unstructured.NestedInt64(d.Object, "status", "readyReplicas")
		total += replicas
		with[strings.TrimPrefix(d.GetName(), x.GetName())] = loaded
		if loaded > 0 {
			state = "Loaded"
		}
	}
	of["totalPods"] = total
	if kind, _, _ := unstructured.NestedString(x.Object, "spec", "deployment", "type"); kind == "Disaggregated" {
		of["prefillWorkersReady"], of["decodeWorkersReady"] = with["-prefill"], with["-decode"]
	}
	status := dict{"loadingState": state, "deploymentStatus": of}
	if state == "Loaded" {
		at, _ := before["lastLoadTime"].(string)
		if at == "" || before["loadingState"] != state {
			at = time.Now().UTC().Format(time.RFC3339)
		}
		status["lastLoadTime"] = at
	}
	for i := range m.set.Models {
		if k := &m.set.Models[i]; x.GetKind() == kindModel && k.Name == x.GetName() {
			if info := up.ModelInfo(k.ID()); info != nil {
				status["modelInfo"] = info
			}
		}
	}
	return status
}
