package gateway

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Model is document 003's InferenceModel (docs/documents.md): what its controller
// makes Deployments of.
type Model struct {
	objects.Meta
	Source struct {
		URI     string `json:"storageUri"`
		Hugging struct {
			ID       string `json:"modelId"`
			Revision inert  `json:"revision"`
			Token    inert  `json:"token"`
		} `json:"huggingFace"`
	} `json:"modelSource"`
	Format    strictyaml.Value `json:"modelFormat"`
	Resources strictyaml.Value `json:"resources"`
	Runtime   struct {
		Name    string           `json:"name"`
		Version string           `json:"version"`
		Config  strictyaml.Value `json:"config"`
	} `json:"runtime"`
	KV struct {
		Backend   string `json:"backend"`
		Size      string `json:"size"`
		BlockSize int    `json:"blockSize" min:"1" max:"4096"`
		Swap      string `json:"swapSpace"`
	} `json:"kvCache"`
	Params struct {
		MaxTokens   int   `json:"max_tokens" min:"1" max:"16777216"`
		Temperature inert `json:"temperature"`
		TopP        inert `json:"top_p"`
		TopK        inert `json:"top_k"`
		Stream      inert `json:"stream"`
	} `json:"inferenceParams"`
	Deployment struct {
		Type     string       `json:"type" oneof:"Unified,Disaggregated,MultiNode"`
		Replicas int          `json:"replicas" min:"0" max:"10000"`
		Prefill  *workersSpec `json:"prefillWorkers"`
		Decode   *workersSpec `json:"decodeWorkers"`
	} `json:"deployment"`

	At strictyaml.Value `json:"."`

	kind string   // LocalModel, or "" for InferenceModel
	more []string // flags
	env  []EnvVar
}

// LocalModel is document 003's: one model over several workers by tensor parallelism.
type LocalModel struct {
	objects.Meta
	ModelName string `json:"modelName"`
	Parallel  struct {
		Size int `json:"size" min:"1" max:"4096"`
	} `json:"tensorParallelism"`
	Resources struct {
		Limits   map[string]strictyaml.Value `json:"limits"`
		Requests map[string]strictyaml.Value `json:"requests"`
	} `json:"resources"`
	Replicas int `json:"replicas" min:"1" max:"10000"`
	Runtime  struct {
		Protocol string `json:"protocol"`
		Env      []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"env" max:"256"`
	} `json:"runtimeSpec"`

	At strictyaml.Value `json:"."`
}

func (l *LocalModel) check(v strictyaml.Value) {
	demand(v.Get("modelName"), "the model's name")
	if size := max(l.Parallel.Size, 1); l.Replicas%size != 0 {
		v.Get("replicas").Fail(fmt.Sprintf("found %d workers", l.Replicas),
			fmt.Sprintf("a multiple of tensorParallelism.size, %d", size), "")
	}
	if gpus := l.Resources.Limits["nvidia.com/gpu"]; gpus.Given() {
		gpus.Int(1, 64, 1)
	}
}

// model returns what makes the pods: a server for each group of workers, which lie on as
// many machines as their accelerators ask for.
func (l *LocalModel) model() Model {
	size, gpus := max(l.Parallel.Size, 1), 1
	if v := l.Resources.Limits["nvidia.com/gpu"]; v.Given() {
		gpus = int(v.Int(1, 64, 1))
	}
	m := Model{Meta: l.Meta, At: l.At, kind: "LocalModel",
		more: []string{fmt.Sprintf("--tensor-parallel-size=%d", size)}}
	if nodes := (size + gpus - 1) / gpus; nodes > 1 {
		m.more = append(m.more, fmt.Sprintf("--nnodes=%d", nodes))
	}
	m.Source.Hugging.ID = l.ModelName
	m.Deployment.Replicas = max(l.Replicas, size) / size
	for _, e := range l.Runtime.Env {
		m.env = append(m.env, EnvVar{Name: e.Name, Value: e.Value})
	}
	return m
}

type workersSpec struct {
	Replicas int               `json:"replicas" min:"0" max:"10000"`
	Labels   map[string]string `json:"labels"`
}

// ID is the model's name where it comes from.
func (m *Model) ID() string { return orElse(m.Source.Hugging.ID, path.Base(m.Source.URI)) }

func (m *Model) check(v strictyaml.Value) {
	if m.Source.URI == "" && m.Source.Hugging.ID == "" {
		v.Get("modelSource").Fail("there is none", "storageUri or huggingFace.modelId", "")
	}
	for _, p := range m.Runtime.Config.Mapping().Pairs() {
		if p.IsMapping() || p.IsList() {
			p.Fail(p.Found(), "a flag's value", "")
		}
	}
}

// serves says whether a pool is the model's: both name it, with or without where it
// comes from.
func (m *Model) serves(p *objects.Pool) bool {
	return p.Namespace == m.Namespace && p.KServe != nil &&
		strings.EqualFold(path.Base(p.KServe.ModelName), path.Base(m.ID()))
}

// flags are the server's: the runtime's configuration, and the cache's.
func (m *Model) flags(name string, port int) []string {
	out := append([]string{"--model=" + name, fmt.Sprintf("--port=%d", port)}, m.more...)
	for _, p := range m.Runtime.Config.Pairs() {
		flag := "--" + strings.ReplaceAll(p.Name, "_", "-")
		switch text := p.Scalar(); text {
		case "true":
			out = append(out, flag)
		case "false":
			out = append(out, strings.Replace(flag, "--", "--no-", 1))
		default:
			out = append(out, flag+"="+text)
		}
	}
	if n := m.Params.MaxTokens; n > 0 {
		out = append(out, fmt.Sprintf(`--override-generation-config={"max_new_tokens":%d}`, n))
	}
	if n := m.KV.BlockSize; n > 0 {
		out = append(out, fmt.Sprintf("--block-size=%d", n))
	}
	if gib, ok := strings.CutSuffix(m.KV.Swap, "Gi"); ok {
		out = append(out, "--swap-space="+gib)
	}
	return out
}

// expand makes the workloads that document 003's controller would make of models,
// once: for each pool of the model whose pods are nobody's yet.
func (b *builder) expand() {
	if b.expanded {
		return
	}
	b.expanded = true
	b.llmServices()
	b.environments()
	models := slices.Clone(b.Models)
	for i := range b.LocalModels {
		models = append(models, b.LocalModels[i].model())
	}
	for i := range models {
		m := &models[i]
		found := false
		for k := range b.Pools {
			p := &b.Pools[k]
			if !m.serves(p) {
				continue
			}
			found = true
			if have := b.Selected(p.Namespace, p.Selector); len(have) > 0 {
				b.note(m.At.Problem(fmt.Sprintf("InferencePool %s has pods of %s %s", p.Name, have[0].Kind,
					have[0].Name), "", "no others are made of the model").Error())
				continue
			}
			b.Workloads = append(b.Workloads, m.workers(p)...)
		}
		if !found {
			b.note(m.At.Problem("no InferencePool of the namespace has its modelName, "+m.ID(), "",
				"no pods are made of the model").Error())
		}
	}
	b.transfers()
	b.standalone()
}

// workers are the pods of a model for a pool: as its deployment says, with the
// labels by which the pool selects. Where the pool is disaggregated decode workers
// have a sidecar.
func (m *Model) workers(p *objects.Pool) (out []Workload) {
	port := p.Ports[0]
	add := func(suffix string, replicas int, labels map[string]string, sidecar bool) {
		pods := map[string]string{"app": m.Name + suffix}
		for _, r := range p.Selector {
			if r.Operator == "In" {
				pods[r.Key] = r.Values[0]
			}
		}
		maps.Copy(pods, labels)
		server := Container{Name: "vllm", Image: "vllm/vllm-openai", Args: m.flags(p.KServe.ModelName, port),
			Ports: []ContainerPort{{Number: port}}, Env: m.env, Mounts: map[string]string{}, At: m.At}
		w := Workload{Meta: m.Meta, Kind: orElse(m.kind, "InferenceModel"), Replicas: replicas,
			Selector: picker.SelectLabels(map[string]string{"app": m.Name + suffix}), Pods: pods,
			Volumes: map[string]Volume{}, At: m.At}
		w.Name = m.Name + suffix
		if sidecar {
			server.Args, server.Ports = m.flags(p.KServe.ModelName, port+1), []ContainerPort{{Number: port + 1}}
			w.Containers = []Container{
				{Name: "routing-sidecar", Image: "llm-d-routing-sidecar",
					Args: []string{fmt.Sprintf("--port=%d", port), fmt.Sprintf("--vllm-port=%d", port+1),
						"--connector=" + orElse(p.KServe.Disaggregation.Connector, "nixlv2"), "--secure-proxy=false"},
					Mounts: map[string]string{}, At: m.At}}
		}
		if p.KServe.Disaggregation.Enabled {
			server.Args = append(server.Args,
				`--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}`)
		}
		w.Containers = append(w.Containers, server)
		out = append(out, w)
	}
	d := &m.Deployment
	if d.Type != "Disaggregated" {
		add("", max(d.Replicas, 1), nil, false)
		return out
	}
	for suffix, x := range map[string]*workersSpec{"-decode": d.Decode, "-prefill": d.Prefill} {
		if x != nil {
			add(suffix, x.Replicas, x.Labels, suffix == "-decode" && p.KServe.Disaggregation.Enabled)
		}
	}
	slices.SortFunc(out, func(a, b Workload) int { return strings.Compare(a.Name, b.Name) })
	return out
}
