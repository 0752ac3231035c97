package controller

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
)

// managedBy and name label every object that the controller makes.
const (
	managedBy = "app.kubernetes.io/managed-by"
	name      = "windtunnel-controller"
)

// asked is the annotation of a Deployment with the replicas for which its model asks. A pool may have an autoscaler,
// which changes the Deployment's own number.
const asked = "windtunnel/replicas"

// Images are the images of the made pods. Server and Sidecar replace windtunnel's own, which Own holds.
type Images struct{ Own, Server, Sidecar string }

// ownFlags are flags of windtunnel's model server that vLLM does not have.
var ownFlags = []string{"--memory-limit", "--kv-transfer-compression"}

// dict is a JSON object.
type dict = map[string]any

// made holds the workloads, Services and budgets that the objects of one namespace need.
type made struct {
	set     *gateway.Set
	objects []*unstructured.Unstructured
}

// read reads the objects of one namespace. The error has every mistake, with object and field.
func read(list []*unstructured.Unstructured) (*gateway.Set, error) {
	s := &gateway.Set{}
	var errs []error
	for _, x := range list {
		text, err := json.Marshal(x.Object)
		if err == nil {
			err = s.Add(placeOf(x), text)
		}
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

// placeOf names an object in errors, and its workloads' origin.
func placeOf(x *unstructured.Unstructured) string { return x.GetKind() + " " + x.GetName() }

// makeObjects returns the Deployments, Services and PodDisruptionBudgets of a namespace's LocalModels, InferenceModels
// and InferencePools. list also has the Deployments and Services of others: a pool that has pods gets no further ones.
// The rules are windtunnel up's.
func makeObjects(list []*unstructured.Unstructured, images Images) (*made, error) {
	s, err := read(list)
	if err != nil {
		return nil, err
	}
	services := len(s.Services)
	gateway.Build(s, gateway.Options{}) // adds what models and pools stand for
	m := &made{set: s}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		owner := owner(list, w)
		if owner == nil {
			continue
		}
		x := &maker{images, w, owner, poolOf(s, w)}
		m.add(x.deployment())
		if w.Replicas > 1 {
			m.add(x.budget())
		}
	}
	for i := range s.Services[services:] {
		v := &s.Services[services+i]
		for k := range s.Workloads {
			if w := &s.Workloads[k]; w.Name == v.Name {
				x := &maker{images, w, owner(list, w), nil}
				m.add(x.service(v))
			}
		}
	}
	return m, nil
}

func (m *made) add(x dict) { m.objects = append(m.objects, &unstructured.Unstructured{Object: x}) }

// owner returns the model that a workload belongs to, or nil.
func owner(list []*unstructured.Unstructured, w *gateway.Workload) *unstructured.Unstructured {
	if w.Kind != kindModel && w.Kind != kindLocal {
		return nil
	}
	i := slices.IndexFunc(list, func(x *unstructured.Unstructured) bool { return placeOf(x) == w.File })
	if i < 0 {
		return nil
	}
	return list[i]
}

// poolOf returns the pool that selects a workload's pods, or nil.
func poolOf(s *gateway.Set, w *gateway.Workload) *objects.Pool {
	i := slices.IndexFunc(s.Pools, func(p objects.Pool) bool {
		return p.KServe != nil && p.Namespace == w.Namespace && p.Selector.Matches(w.Pods)
	})
	if i < 0 {
		return nil
	}
	return &s.Pools[i]
}

// maker makes the objects of one workload.
type maker struct {
	images Images
	w      *gateway.Workload
	owner  *unstructured.Unstructured
	pool   *objects.Pool
}

func (m *maker) metadata(called string) dict {
	return dict{"name": called, "namespace": m.w.Namespace, "labels": dict{managedBy: name},
		"ownerReferences": []any{dict{"apiVersion": m.owner.GetAPIVersion(), "kind": m.owner.GetKind(),
			"name": m.owner.GetName(), "uid": string(m.owner.GetUID()), "controller": true,
			"blockOwnerDeletion": true}}}
}

func (m *maker) deployment() dict {
	var containers []any
	for i := range m.w.Containers {
		containers = append(containers, m.container(&m.w.Containers[i]))
	}
	pod := dict{"automountServiceAccountToken": false, "terminationGracePeriodSeconds": int64(60),
		"containers": containers}
	if m.images.Server == "" {
		pod["securityContext"] = dict{"runAsNonRoot": true, "runAsUser": int64(65532), "runAsGroup": int64(65532),
			"seccompProfile": dict{"type": "RuntimeDefault"}}
	}
	metadata := m.metadata(m.w.Name)
	metadata["annotations"] = dict{asked: strconv.Itoa(m.w.Replicas)}
	return dict{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": dict{
		"replicas": int64(m.w.Replicas), "selector": dict{"matchLabels": matchLabels(m.w.Selector)},
		"template": dict{"metadata": dict{"labels": texts(m.w.Pods)}, "spec": pod}}}
}

// container returns a container with its image: a real one with the flags of the model, or windtunnel's own with the
// command before them.
func (m *maker) container(c *gateway.Container) dict {
	server := c.Role() == gateway.RoleServer
	image, args := cmp.Or(m.images.Sidecar, m.images.Own), []any{}
	if server {
		image = cmp.Or(m.images.Server, m.images.Own)
	}
	own := image == m.images.Own
	switch {
	case own && server:
		args = append(args, "modelserver", "--", "vllm", "serve", "--host=0.0.0.0", "--kv-peers=any")
	case own:
		args = append(args, "sidecar", "--listen=0.0.0.0")
	case server:
		args = append(args, "--host=0.0.0.0")
	}
	for _, arg := range c.Line() {
		if flag, _, _ := strings.Cut(arg, "="); own || !slices.Contains(ownFlags, flag) {
			args = append(args, arg)
		}
	}
	env := []any{dict{"name": "POD_IP", "valueFrom": dict{"fieldRef": dict{"fieldPath": "status.podIP"}}},
		dict{"name": "POD_NAME", "valueFrom": dict{"fieldRef": dict{"fieldPath": "metadata.name"}}}}
	for _, e := range c.Env {
		env = append(env, dict{"name": e.Name, "value": e.Value})
	}
	out := dict{"name": c.Name, "image": image, "args": args, "env": env}
	for _, p := range c.Ports {
		out["ports"] = []any{dict{"containerPort": int64(p.Number)}}
		if server {
			out["readinessProbe"] = m.probe(p.Number)
		}
	}
	switch resources, _, _ := unstructured.NestedMap(m.owner.Object, "spec", "resources"); {
	case own:
		out["securityContext"] = dict{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"runAsNonRoot": true, "capabilities": dict{"drop": []any{"ALL"}}}
	case server && resources != nil:
		out["resources"] = resources
	}
	return out
}

// probe returns the readiness probe of the pool's healthCheck.
func (m *maker) probe(port int) dict {
	get := func(path string) dict { return dict{"path": path, "port": int64(port)} }
	if m.pool == nil || !m.pool.KServe.Health.Enabled {
		return dict{"httpGet": get("/health"), "periodSeconds": int64(2)}
	}
	h := m.pool.KServe.Health
	return dict{"httpGet": get(h.Endpoint), "periodSeconds": max(1, int64(h.Interval.Seconds())),
		"timeoutSeconds": max(1, int64(h.Timeout.Seconds())), "failureThreshold": h.UnhealthyThreshold,
		"successThreshold": h.HealthyThreshold}
}

func (m *maker) budget() dict {
	return dict{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": m.metadata(m.w.Name),
		"spec": dict{"maxUnavailable": int64(1), "selector": dict{"matchLabels": matchLabels(m.w.Selector)}}}
}

func (m *maker) service(v *gateway.Service) dict {
	var ports []any
	for _, p := range v.Ports {
		ports = append(ports, dict{"port": int64(p.Number), "targetPort": int64(p.TargetNumber)})
	}
	return dict{"apiVersion": "v1", "kind": "Service", "metadata": m.metadata(v.Name),
		"spec": dict{"selector": matchLabels(v.Selector), "ports": ports}}
}

// matchLabels returns the matchLabels of a selector that picker.SelectLabels made.
func matchLabels(s picker.Selector) dict {
	out := dict{}
	for _, r := range s {
		out[r.Key] = r.Values[0]
	}
	return out
}

func texts(m map[string]string) dict {
	out := dict{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out[k] = m[k]
	}
	return out
}
