// Package llmservice reads KServe's LLMInferenceService and writes the objects that KServe's controller makes of it
// with its presets for llm-d: Deployments, Services, an InferencePool with its endpoint picker, an HTTPRoute.
//
// Service holds the fields read. Service.Objects returns the objects as several YAML documents.
package llmservice

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Service is an LLMInferenceService with the features of its llm-d presets: a pool of model servers with or without
// prefill servers, its endpoint picker, and routes.
type Service struct {
	objects.Meta
	Model struct {
		URI         string           `json:"uri"`
		Name        string           `json:"name"`
		Criticality strictyaml.Inert `json:"criticality"`
		LoRA        struct {
			Adapters []struct {
				URI  string `json:"uri"`
				Name string `json:"name"`
			} `json:"adapters" max:"256"`
			MaxRank   strictyaml.Inert `json:"maxRank"`
			Max       int              `json:"maxAdapters" min:"1"`
			MaxCached strictyaml.Inert `json:"maxCpuAdapters"`
		} `json:"lora"`
	} `json:"model"`
	Servers
	Prefill *Servers `json:"prefill"`
	Router  *struct {
		Route *struct {
			HTTP struct {
				Refs []ref            `json:"refs" max:"16"`
				Spec strictyaml.Value `json:"spec"`
			} `json:"http"`
			Group  strictyaml.Inert `json:"group"`
			Weight strictyaml.Inert `json:"weight"`
		} `json:"route"`
		Gateway struct {
			Refs []ref `json:"refs" max:"16"`
		} `json:"gateway"`
		Ingress   strictyaml.Inert `json:"ingress"`
		Scheduler *scheduler       `json:"scheduler"`
	} `json:"router"`
	Storage strictyaml.Inert `json:"storageInitializer"`
	Tracing strictyaml.Inert `json:"tracing"`
	// Bases name the LLMInferenceServiceConfigs with defaults for the service. Later ones take precedence.
	Bases      []ref            `json:"baseRefs" max:"16"`
	Offloading strictyaml.Inert `json:"kvCacheOffloading"`

	At strictyaml.Value `json:"."`
}

// Servers are the model servers of one role.
type Servers struct {
	Replicas    *int             `json:"replicas" min:"0" max:"10000"`
	Scaling     strictyaml.Inert `json:"scaling"`
	Parallelism struct {
		Tensor   int              `json:"tensor" min:"1" max:"4096"`
		Pipeline int              `json:"pipeline" min:"1" max:"4096"`
		Data     strictyaml.Inert `json:"data"`
		Local    strictyaml.Inert `json:"dataLocal"`
		RPCPort  strictyaml.Inert `json:"dataRPCPort"`
		Expert   strictyaml.Inert `json:"expert"`
	} `json:"parallelism"`
	PodLabels      map[string]string `json:"labels"`
	PodAnnotations map[string]string `json:"annotations"`
	Template       strictyaml.Value  `json:"template"`
	Worker         strictyaml.Inert  `json:"worker"`
	Rollout        strictyaml.Inert  `json:"rolloutStrategy"`
}

// scheduler configures the endpoint picker.
type scheduler struct {
	Pool struct {
		Spec strictyaml.Value `json:"spec"`
		Ref  *ref             `json:"ref"`
	} `json:"pool"`
	Labels      strictyaml.Inert `json:"labels"`
	Annotations strictyaml.Inert `json:"annotations"`
	Template    strictyaml.Value `json:"template"`
	Config      struct {
		Inline strictyaml.Value `json:"inline"`
		Ref    *struct {
			Name     string           `json:"name"`
			Key      string           `json:"key"`
			Optional strictyaml.Inert `json:"optional"`
		} `json:"ref"`
	} `json:"config"`
	Replicas  *int             `json:"replicas" min:"0" max:"64"`
	Tokenizer strictyaml.Inert `json:"tokenizer"`
}

// Check reports mistakes that the fields' tags cannot describe.
func (x *Service) Check(v strictyaml.Value) {
	if at := v.Get("model").Get("uri"); x.Model.URI == "" && x.Bases == nil {
		at.Fail(at.Found(), "the model's URI, such as hf://Qwen/Qwen3-0.6B", "")
	}
}

// ref names another object.
type ref struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

const gatewayAPI = "gateway.networking.k8s.io/v1"

// dict is a JSON object.
type dict = map[string]any

// Resolve returns the service with the missing fields from its Bases. config returns the spec of the
// LLMInferenceServiceConfig with a name in the service's namespace, or a value that is not given, which note reports.
func (x *Service) Resolve(config func(name string) strictyaml.Value, note func(text string)) (*Service, error) {
	if len(x.Bases) == 0 {
		return x, nil
	}
	var spec any = dict{}
	for _, b := range x.Bases {
		base := config(b.Name)
		if !base.Given() {
			note(x.At.Get("baseRefs").Problem(fmt.Sprintf("there is no LLMInferenceServiceConfig %s/%s", x.Namespace,
				b.Name), "one among the objects", "the service is read without it").Error())
			continue
		}
		spec = merged(spec, base.Any())
	}
	raw, err := json.Marshal(merged(spec, x.At.Any()))
	if err != nil {
		return nil, err
	}
	doc, err := strictyaml.Parse(raw, strictyaml.Options{File: x.File, Kubernetes: true, WarnUnknown: true})
	if err != nil {
		return nil, err
	}
	out := &Service{Meta: x.Meta}
	if err := doc.Root().Decode(out).Err(); err != nil {
		return nil, err
	}
	if out.Model.URI == "" {
		return nil, x.At.Get("model").Problem("no uri, also in the LLMInferenceServiceConfigs", "the model's URI", "")
	}
	return out, nil
}

// merged returns a value with another one merged over it, as Kubernetes merges pods: field by field, and lists of named
// objects by their names.
func merged(under, over any) any {
	switch o := over.(type) {
	case nil:
		return under
	case dict:
		u, _ := under.(dict)
		out := maps.Clone(u)
		if out == nil {
			out = dict{}
		}
		for field, v := range o {
			out[field] = merged(out[field], v)
		}
		return out
	case []any:
		u, _ := under.([]any)
		out := slices.Clone(u)
		for _, v := range o {
			named, _ := v.(dict)
			i := slices.IndexFunc(out, func(x any) bool {
				d, _ := x.(dict)
				return d != nil && named["name"] != nil && d["name"] == named["name"]
			})
			switch {
			case named["name"] == nil:
				return over // a list of another kind
			case i >= 0:
				out[i] = merged(out[i], v)
			default:
				out = append(out, v)
			}
		}
		return out
	}
	return over
}

// Objects returns the objects of the service, as YAML. A route attaches to the Gateway DefaultGateway in
// DefaultNamespace where the service names no Gateway; gatewayThere says that this Gateway exists.
func (x *Service) Objects(gatewayThere bool) ([]byte, error) {
	var text strings.Builder
	for _, o := range x.objects(gatewayThere) {
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		text.Write(raw)
		text.WriteString("\n---\n")
	}
	return []byte(x.filled(text.String())), nil
}

// Routed reports whether the service has a router, without which no route leads to it.
func (x *Service) Routed() bool { return x.Router != nil }

// DefaultGateway and DefaultNamespace name the Gateway of a service that names none.
const (
	DefaultGateway   = "kserve-ingress-gateway"
	DefaultNamespace = "kserve"
)

// The presets: ports of a model server, alone and behind a sidecar, and the script that adds VLLM_ADDITIONAL_ARGS.
const (
	enginePort, enginePortBehind = 8000, 8001

	script = `eval "set -- \"\$@\" ${VLLM_ADDITIONAL_ARGS}"; exec vllm serve "$@"`
)

func (x *Service) modelName() string { return cmp.Or(x.Model.Name, x.Name) }

// object returns an object of the service's namespace.
func (x *Service) object(api, kind, name string, body dict) dict {
	o := dict{"apiVersion": api, "kind": kind, "metadata": dict{"name": name, "namespace": x.Namespace}}
	maps.Copy(o, body)
	return o
}

// workload returns a Deployment.
func (x *Service) workload(name string, replicas *int, labels map[string]string, pod dict) dict {
	n := 1
	if replicas != nil {
		n = *replicas
	}
	return x.object("apps/v1", "Deployment", name, dict{"spec": dict{"replicas": n,
		"selector": dict{"matchLabels": labels}, "template": dict{"metadata": dict{"labels": labels}, "spec": pod}}})
}

// objects returns the objects that KServe's controller makes of the service.
func (x *Service) objects(gatewayThere bool) (out []dict) {
	labels := map[string]string{"app.kubernetes.io/name": x.Name, "app.kubernetes.io/part-of": "llminferenceservice",
		"kserve.io/component": "workload"}
	servers := func(suffix, role string, s *Servers, port int) {
		own := maps.Clone(labels)
		own["llm-d.ai/role"] = role
		maps.Copy(own, s.PodLabels)
		out = append(out, x.workload(x.Name+suffix, s.Replicas, own, x.pod(s, port)))
	}
	serving := maps.Clone(labels)
	if x.Prefill == nil {
		servers("-kserve", "both", &x.Servers, enginePort)
	} else {
		servers("-kserve", "decode", &x.Servers, enginePortBehind)
		servers("-kserve-prefill", "prefill", x.Prefill, enginePort)
		serving["llm-d.ai/role"] = "decode"
	}
	service, pool := x.Name+"-kserve-workload-svc", x.Name+"-inference-pool"
	out = append(out, x.object("v1", "Service", service,
		dict{"spec": dict{"selector": serving, "ports": []dict{{"port": enginePort}}}}))
	if x.Router == nil {
		return out
	}
	whole := dict{"kind": "Service", "name": service, "port": enginePort}
	lead := whole
	if s := x.Router.Scheduler; s != nil {
		if s.Pool.Ref != nil {
			pool = s.Pool.Ref.Name
		} else {
			spec := given(s.Pool.Spec)
			fill(spec, "selector", dict{"matchLabels": labels})
			fill(spec, "targetPorts", []dict{{"number": enginePort}})
			spec["endpointPickerRef"] = merged(dict{"name": x.Name + "-epp-service", "port": dict{"number": 9002},
				"failureMode": "FailOpen"}, spec["endpointPickerRef"])
			out = append(out, x.object(objects.GroupV1+"/v1", "InferencePool", pool, dict{"spec": spec}))
			out = append(out, x.scheduler(s, pool)...)
		}
		lead = dict{"group": objects.GroupV1, "kind": "InferencePool", "name": pool}
	}
	route := x.Router.Route
	if route == nil || len(route.HTTP.Refs) > 0 {
		return out
	}
	var parents []dict
	for _, ref := range x.Router.Gateway.Refs {
		parents = append(parents, dict{"name": ref.Name, "namespace": cmp.Or(ref.Namespace, x.Namespace)})
	}
	if parents == nil {
		parents = []dict{{"name": DefaultGateway, "namespace": DefaultNamespace}}
		if !gatewayThere {
			out = append(out, dict{"apiVersion": gatewayAPI, "kind": "Gateway",
				"metadata": dict{"name": DefaultGateway, "namespace": DefaultNamespace},
				"spec": dict{"gatewayClassName": "kserve", "listeners": []dict{{"name": "http", "port": 80,
					"protocol": "HTTP", "allowedRoutes": dict{"namespaces": dict{"from": "All"}}}}}})
		}
	}
	spec := given(route.HTTP.Spec)
	fill(spec, "parentRefs", parents)
	fill(spec, "rules", x.rules(lead, whole))
	return append(out, x.object(gatewayAPI, "HTTPRoute", x.Name+"-kserve-route", dict{"spec": spec}))
}

// rules returns the route's rules where the service has none. The inference endpoints below the service's path lead to
// the pool, and all other paths to its model servers.
func (x *Service) rules(pool, whole dict) (out []dict) {
	for _, base := range []string{"/" + x.Namespace + "/" + x.Name,
		"/publishers/" + x.Namespace + "/models/" + x.modelName()} {
		for _, end := range []string{"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/"} {
			to, prefix := pool, base+end
			if end == "/" {
				to, prefix = whole, base
			}
			path := dict{"type": "ReplacePrefixMatch", "replacePrefixMatch": end}
			out = append(out, dict{"backendRefs": []dict{to},
				"matches":  []dict{{"path": dict{"type": "PathPrefix", "value": prefix}}},
				"filters":  []dict{{"type": "URLRewrite", "urlRewrite": dict{"path": path}}},
				"timeouts": dict{"request": "0s", "backendRequest": "0s"}})
		}
	}
	return out
}

// given returns a field's object as a dict of its own.
func given(v strictyaml.Value) dict {
	o, _ := v.Any().(dict)
	if o == nil {
		return dict{}
	}
	return maps.Clone(o)
}

// fill sets a field that is missing.
func fill(o dict, field string, value any) {
	if o[field] == nil {
		o[field] = value
	}
}

// container returns the container with a name in a pod. It adds the container if the pod has none.
func container(pod dict, list, name string) dict {
	all, _ := pod[list].([]any)
	for _, c := range all {
		if o, ok := c.(dict); ok && o["name"] == name {
			return o
		}
	}
	o := dict{"name": name}
	pod[list] = append(slices.Clone(all), o)
	return o
}

// pod returns a model server's pod: its template, with missing parts from the preset.
func (x *Service) pod(s *Servers, port int) dict {
	pod := given(s.Template)
	main := container(pod, "containers", "main")
	fill(main, "image", "ghcr.io/llm-d/llm-d-cuda")
	fill(main, "ports", []dict{{"containerPort": port}})
	if main["command"] == nil {
		model := "/mnt/models"
		if id, ok := strings.CutPrefix(x.Model.URI, "hf://"); ok {
			model = id
		}
		args := []any{"--", model, "--served-model-name", x.modelName(),
			"publishers/" + x.Namespace + "/models/" + x.modelName(), "--port", fmt.Sprint(port)}
		for i, n := range []int{s.Parallelism.Tensor, s.Parallelism.Pipeline, x.Model.LoRA.Max} {
			if n > 0 {
				flag := []string{"--tensor-parallel-size", "--pipeline-parallel-size", "--max-loras"}[i]
				args = append(args, flag, fmt.Sprint(n))
			}
		}
		if len(x.Model.LoRA.Adapters) > 0 {
			args = append(args, "--enable-lora", "--lora-modules")
			for _, a := range x.Model.LoRA.Adapters {
				args = append(args, a.Name+"="+strings.TrimPrefix(a.URI, "hf://"))
			}
		}
		own, _ := main["args"].([]any)
		main["command"], main["args"] = []string{"/bin/sh", "-c", script}, slices.Concat(args, own)
	}
	if port == enginePortBehind {
		sidecar := container(pod, "initContainers", "llm-d-routing-sidecar")
		fill(sidecar, "restartPolicy", "Always")
		fill(sidecar, "image", "ghcr.io/llm-d/llm-d-router-disagg-sidecar")
		fill(sidecar, "command", []string{"/app/pd-sidecar", fmt.Sprintf("--port=%d", enginePort),
			fmt.Sprintf("--model-server-port=%d", enginePortBehind), "--kv-connector=nixlv2", "--secure-proxy=false"})
	}
	return pod
}

// scheduler returns the pool's endpoint picker with its Service and configuration.
func (x *Service) scheduler(s *scheduler, pool string) []dict {
	name, labels := x.Name+"-kserve-router-scheduler", map[string]string{"app.kubernetes.io/name": x.Name,
		"app.kubernetes.io/part-of": "llminferenceservice", "app.kubernetes.io/component": "router-scheduler"}
	config, key := name, "config.yaml"
	text := unified
	switch c := &s.Config; {
	case c.Ref != nil:
		config, key = c.Ref.Name, cmp.Or(c.Ref.Key, key)
	case c.Inline.IsText():
		text = c.Inline.Text()
	case c.Inline.Given():
		raw, _ := json.Marshal(c.Inline.Any()) // YAML's only values that JSON lacks are numbers such as .inf
		text = string(raw)
	case x.Prefill != nil:
		text = disaggregated
	}
	pod := given(s.Template)
	main := container(pod, "containers", "main")
	fill(main, "image", "ghcr.io/llm-d/llm-d-router-endpoint-picker")
	fill(main, "command", []string{"/app/epp", "--pool-name", pool, "--pool-namespace", x.Namespace})
	args, _ := main["args"].([]any)
	if !slices.ContainsFunc(args, func(a any) bool { return strings.Contains(fmt.Sprint(a), "-config") }) {
		main["args"] = slices.Concat(args, []any{"--config-file=/etc/epp/" + key})
		mounts, _ := main["volumeMounts"].([]any)
		main["volumeMounts"] = append(slices.Clone(mounts), dict{"name": "epp-config", "mountPath": "/etc/epp"})
		volumes, _ := pod["volumes"].([]any)
		pod["volumes"] = append(slices.Clone(volumes), dict{"name": "epp-config", "configMap": dict{"name": config}})
	}
	out := []dict{x.workload(name, s.Replicas, labels, pod), x.object("v1", "Service", x.Name+"-epp-service",
		dict{"spec": dict{"selector": labels, "ports": []dict{{"name": "grpc", "port": 9002},
			{"name": "metrics", "port": 9090}, {"name": "zmq", "port": 5557}}}})}
	if s.Config.Ref == nil {
		out = append(out, x.object("v1", "ConfigMap", config, dict{"data": dict{key: text}}))
	}
	return out
}

// The configurations of endpoint pickers for services without one.
const (
	unified = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer},
  {type: no-hit-lru-scorer}, {type: max-score-picker}]
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer, weight: 2},
    {pluginRef: prefix-cache-scorer, weight: 3}, {pluginRef: no-hit-lru-scorer, weight: 2},
    {pluginRef: max-score-picker}]
`
	disaggregated = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: disagg-headers-handler}, {type: prefill-filter}, {type: decode-filter}, {type: queue-scorer},
  {type: kv-cache-utilization-scorer}, {type: active-request-scorer}, {type: prefix-cache-scorer},
  {type: max-score-picker}, {type: always-disagg-pd-decider},
  {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}]
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: prefix-cache-scorer, weight: 3},
    {pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer, weight: 2},
    {pluginRef: max-score-picker}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: active-request-scorer, weight: 2},
    {pluginRef: prefix-cache-scorer, weight: 3}, {pluginRef: max-score-picker}]
`
)

// placeholder is a template's expression in a JSON text.
var placeholder = regexp.MustCompile("\\{\\{-? *(?:(ChildName) )?\\.(Spec\\.Model\\.Name|ObjectMeta\\.Name|" +
	"ObjectMeta\\.Namespace)(?: [`](-[a-z-]+)[`])? *-?\\}\\}")

// filled returns a JSON text in which the service's names replace the expressions of KServe's templates.
func (x *Service) filled(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		name := map[string]string{"Spec.Model.Name": x.modelName(), "ObjectMeta.Name": x.Name,
			"ObjectMeta.Namespace": x.Namespace}[parts[2]]
		raw, _ := json.Marshal(name + parts[3]) // every text has a JSON form
		return strings.Trim(string(raw), `"`)
	})
}
