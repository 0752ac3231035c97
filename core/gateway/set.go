package gateway

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway/llmservice"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Set holds the objects of any number of files.
type Set struct {
	// Set has InferencePools and the other objects that an endpoint picker uses.
	objects.Set

	Classes    []Class
	Gateways   []Gateway
	Routes     []HTTPRoute
	Grants     []Grant
	Workloads  []Workload
	Services   []Service
	Slices     []EndpointSlice
	ConfigMaps []ConfigMap
	Secrets    []Secret
	Namespaces []Namespace

	Extensions       []ExtensionPolicy
	HeaderPolicies   []HeaderPolicy
	TrafficPolicies  []TrafficPolicy
	SecurityPolicies []SecurityPolicy
	Models           []Model
	LocalModels      []LocalModel
	// LLMServices are LLMInferenceServices, and LLMConfigs the LLMInferenceServiceConfigs to which they may refer.
	LLMServices, LLMConfigs []llmservice.Service
	Insertions              []Insertion
	Scalers                 []Scaler

	// Unread counts the objects of each kind that has no effect here.
	Unread map[string]int

	expanded bool // Workloads includes those made from Models
}

// Add reads a file of any number of YAML documents. The error has every mistake in the file. After an error, the Set
// may have some of the file's objects, so the caller must discard it.
func (s *Set) Add(file string, data []byte) error {
	s.Others = s.others
	return s.Set.Add(file, data)
}

func (s *Set) others(kind, group string) (read func(strictyaml.Value, objects.Meta), cluster bool) {
	switch kind + "." + group {
	case "GatewayClass." + Group:
		return into(&s.Classes, func(x *Class, m objects.Meta) { x.Meta = m }, (*Class).check), true
	case "Gateway." + Group:
		return into(&s.Gateways, func(x *Gateway, m objects.Meta) { x.Meta = m }, (*Gateway).check), false
	case "HTTPRoute." + Group:
		return into(&s.Routes, func(x *HTTPRoute, m objects.Meta) { x.Meta = m }, (*HTTPRoute).check), false
	case "ReferenceGrant." + Group:
		return into(&s.Grants, func(x *Grant, m objects.Meta) { x.Meta = m }, (*Grant).check), false
	case "EnvoyExtensionPolicy." + GroupEnvoy:
		return into(&s.Extensions, func(x *ExtensionPolicy, m objects.Meta) { x.Meta = m }, (*ExtensionPolicy).check),
			false
	case "InferenceModel." + objects.GroupKServe:
		return into(&s.Models, func(x *Model, m objects.Meta) { x.Meta = m }, (*Model).check), false
	case "LLMInferenceService." + objects.GroupKServe:
		return into(&s.LLMServices, func(x *llmservice.Service, m objects.Meta) { x.Meta = m },
			(*llmservice.Service).Check), false
	case "LLMInferenceServiceConfig." + objects.GroupKServe:
		return into(&s.LLMConfigs, func(x *llmservice.Service, m objects.Meta) { x.Meta = m },
			func(*llmservice.Service, strictyaml.Value) {}), false
	case "LocalModel." + objects.GroupKServe:
		return into(&s.LocalModels, func(x *LocalModel, m objects.Meta) { x.Meta = m }, (*LocalModel).check), false
	case "BackendTrafficPolicy." + GroupEnvoy:
		return into(&s.TrafficPolicies, func(x *TrafficPolicy, m objects.Meta) { x.Meta = m }, (*TrafficPolicy).check),
			false
	case "SecurityPolicy." + GroupEnvoy:
		return into(&s.SecurityPolicies, func(x *SecurityPolicy, m objects.Meta) { x.Meta = m },
			(*SecurityPolicy).check), false
	case "EnvoyFilter." + GroupEnvoy:
		return into(&s.HeaderPolicies, func(x *HeaderPolicy, m objects.Meta) { x.Meta = m }, (*HeaderPolicy).check),
			false
	case "EnvoyFilter.networking.istio.io":
		return readInto(&s.Insertions, readEnvoyFilter), false
	case "GCPRoutingExtension.networking.gke.io":
		return readInto(&s.Insertions, readRoutingExtension), false
	case "Deployment.apps", "StatefulSet.apps", "ReplicaSet.apps":
		return readInto(&s.Workloads, readWorkload), false
	case "Pod.":
		return readInto(&s.Workloads, readPod), false
	case "ScaledObject.keda.sh", "HorizontalPodAutoscaler.autoscaling", "PrometheusRule.monitoring.coreos.com":
		return readInto(&s.Scalers, readScaler), false
	case "Service.":
		return readInto(&s.Services, readService), false
	case "EndpointSlice.discovery.k8s.io":
		return readInto(&s.Slices, readSlice), false
	case "ConfigMap.":
		return readInto(&s.ConfigMaps, readConfigMap), false
	case "Secret.":
		return readInto(&s.Secrets, readSecret), false
	case "Namespace.":
		return readInto(&s.Namespaces, func(_ strictyaml.Value, m objects.Meta) Namespace { return Namespace{m} }), true
	}
	if s.Unread == nil {
		s.Unread = map[string]int{}
	}
	s.Unread[kind+"."+group]++
	return nil, false
}

func readInto[T any](to *[]T, read func(strictyaml.Value, objects.Meta) T) func(strictyaml.Value, objects.Meta) {
	return func(v strictyaml.Value, m objects.Meta) { *to = append(*to, read(v, m)) }
}

// into reads an object's spec by its tags, and then checks the rules that tags cannot express.
func into[T any](to *[]T, name func(*T, objects.Meta), check func(*T, strictyaml.Value)) func(strictyaml.Value,
	objects.Meta) {
	return func(v strictyaml.Value, m objects.Meta) {
		var x T
		name(&x, m)
		v.Fields(map[string]func(strictyaml.Value){"apiVersion": skip, "kind": skip, "metadata": skip, "status": skip,
			"spec": skip})
		spec := v.Get("spec")
		if !spec.Given() {
			spec.Fail("missing", "a spec", "")
		}
		spec.Note(spec.Decode(&x))
		check(&x, spec)
		*to = append(*to, x)
	}
}

func skip(strictyaml.Value) {}

// find returns the object with a namespace and a name, or nil.
func find[T any](list []T, meta func(*T) *objects.Meta, namespace, name string) *T {
	i := slices.IndexFunc(list, func(x T) bool { m := meta(&x); return m.Namespace == namespace && m.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// Service returns the Service with a namespace and a name, or nil.
func (s *Set) Service(namespace, name string) *Service {
	return find(s.Services, func(x *Service) *objects.Meta { return &x.Meta }, namespace, name)
}

// ConfigMap returns the ConfigMap with a namespace and a name, or nil.
func (s *Set) ConfigMap(namespace, name string) *ConfigMap {
	return find(s.ConfigMaps, func(x *ConfigMap) *objects.Meta { return &x.Meta }, namespace, name)
}

// Secret returns the Secret with a namespace and a name, or nil.
func (s *Set) Secret(namespace, name string) *Secret {
	return find(s.Secrets, func(x *Secret) *objects.Meta { return &x.Meta }, namespace, name)
}

// Pool returns the InferencePool with a namespace and a name, or nil. Its group may differ from the reference's,
// because documents and guides differ in it.
func (s *Set) Pool(namespace, name string) *objects.Pool {
	return find(s.Pools, func(x *objects.Pool) *objects.Meta { return &x.Meta }, namespace, name)
}
