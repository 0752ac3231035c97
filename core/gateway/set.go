package gateway

import (
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
	name := kind + "." + group
	read = map[string]func(strictyaml.Value, objects.Meta){
		"GatewayClass." + Group:                            into(&s.Classes, (*Class).check),
		"Gateway." + Group:                                 into(&s.Gateways, (*Gateway).check),
		"HTTPRoute." + Group:                               into(&s.Routes, (*HTTPRoute).check),
		"ReferenceGrant." + Group:                          into(&s.Grants, (*Grant).check),
		"EnvoyExtensionPolicy." + GroupEnvoy:               into(&s.Extensions, (*ExtensionPolicy).check),
		"InferenceModel." + objects.GroupKServe:            into(&s.Models, (*Model).check),
		"LLMInferenceService." + objects.GroupKServe:       into(&s.LLMServices, (*llmservice.Service).Check),
		"LLMInferenceServiceConfig." + objects.GroupKServe: into(&s.LLMConfigs, nil),
		"LocalModel." + objects.GroupKServe:                into(&s.LocalModels, (*LocalModel).check),
		"BackendTrafficPolicy." + GroupEnvoy:               into(&s.TrafficPolicies, (*TrafficPolicy).check),
		"SecurityPolicy." + GroupEnvoy:                     into(&s.SecurityPolicies, (*SecurityPolicy).check),
		"EnvoyFilter." + GroupEnvoy:                        into(&s.HeaderPolicies, (*HeaderPolicy).check),
		"EnvoyFilter.networking.istio.io":                  readInto(&s.Insertions, readEnvoyFilter),
		"GCPRoutingExtension.networking.gke.io":            readInto(&s.Insertions, readRoutingExtension),
		"Deployment.apps":                                  readInto(&s.Workloads, readWorkload),
		"StatefulSet.apps":                                 readInto(&s.Workloads, readWorkload),
		"ReplicaSet.apps":                                  readInto(&s.Workloads, readWorkload),
		"Pod.":                                             readInto(&s.Workloads, readPod),
		"ScaledObject.keda.sh":                             readInto(&s.Scalers, readScaler),
		"HorizontalPodAutoscaler.autoscaling":              readInto(&s.Scalers, readScaler),
		"PrometheusRule.monitoring.coreos.com":             readInto(&s.Scalers, readScaler),
		"Service.":                                         readInto(&s.Services, readService),
		"EndpointSlice.discovery.k8s.io":                   readInto(&s.Slices, readSlice),
		"ConfigMap.":                                       readInto(&s.ConfigMaps, readConfigMap),
		"Secret.":                                          readInto(&s.Secrets, readSecret),
		"Namespace.":                                       readInto(&s.Namespaces, readNamespace),
	}[name]
	if read == nil {
		if s.Unread == nil {
			s.Unread = map[string]int{}
		}
		s.Unread[name]++
	}
	return read, name == "Namespace." || name == "GatewayClass."+Group
}

func readNamespace(_ strictyaml.Value, m objects.Meta) Namespace { return Namespace{m} }

func readInto[T any](to *[]T, read func(strictyaml.Value, objects.Meta) T) func(strictyaml.Value, objects.Meta) {
	return func(v strictyaml.Value, m objects.Meta) { *to = append(*to, read(v, m)) }
}

// object is the pointer to a type that embeds objects.Meta.
type object[T any] interface {
	*T
	Object() *objects.Meta
}

// into reads an object's spec by its tags, and then checks the rules that tags cannot express, if there are any.
func into[T any, P object[T]](to *[]T, check func(P, strictyaml.Value)) func(strictyaml.Value, objects.Meta) {
	return func(v strictyaml.Value, m objects.Meta) {
		var x T
		*P(&x).Object() = m
		v.Fields(map[string]func(strictyaml.Value){"apiVersion": skip, "kind": skip, "metadata": skip, "status": skip,
			"spec": skip})
		spec := v.Get("spec")
		if !spec.Given() {
			spec.Fail("missing", "a spec", "")
		}
		spec.Note(spec.Decode(&x))
		if check != nil {
			check(&x, spec)
		}
		*to = append(*to, x)
	}
}

func skip(strictyaml.Value) {}

// find returns the object with a namespace and a name, or nil.
func find[T any, P object[T]](list []T, namespace, name string) P {
	for i := range list {
		if m := P(&list[i]).Object(); m.Namespace == namespace && m.Name == name {
			return &list[i]
		}
	}
	return nil
}

// Service returns the Service with a namespace and a name, or nil.
func (s *Set) Service(namespace, name string) *Service { return find(s.Services, namespace, name) }

// ConfigMap returns the ConfigMap with a namespace and a name, or nil.
func (s *Set) ConfigMap(namespace, name string) *ConfigMap {
	return find(s.ConfigMaps, namespace, name)
}

// Secret returns the Secret with a namespace and a name, or nil.
func (s *Set) Secret(namespace, name string) *Secret { return find(s.Secrets, namespace, name) }

// Pool returns the InferencePool with a namespace and a name, or nil. Its group may differ from the reference's,
// because documents and guides differ in it.
func (s *Set) Pool(namespace, name string) *objects.Pool { return find(s.Pools, namespace, name) }
