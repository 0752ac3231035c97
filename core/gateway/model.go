package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Model is document 003's InferenceModel (docs/documents.md), from which its controller makes Deployments.
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
	Format    inert     `json:"modelFormat"`
	Resources resources `json:"resources"`
	Runtime   struct {
		Name    string           `json:"name"`
		Version inert            `json:"version"`
		Config  strictyaml.Value `json:"config"`
	} `json:"runtime"`
	KV struct {
		Backend   string   `json:"backend"`
		Size      quantity `json:"size"` // bytes on each accelerator
		BlockSize int      `json:"blockSize" min:"1" max:"4096"`
		Swap      quantity `json:"swapSpace"` // bytes of host memory for each accelerator
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
		Parallel parallel     `json:"tensorParallelism"`
	} `json:"deployment"`

	At strictyaml.Value `json:"."`

	kind string // LocalModel, or "" for InferenceModel
	env  []EnvVar
}

// parallel says how many accelerators a server has, and over how many machines they are spread.
type parallel struct {
	Size  int `json:"size" min:"1" max:"4096"`
	Nodes int `json:"nodesPerReplica" min:"1" max:"4096"`
}

// resources are the resources of one pod.
type resources struct {
	Limits struct {
		GPUs   quantity `json:"nvidia.com/gpu"`
		Memory quantity `json:"memory"`
		CPU    inert    `json:"cpu"`
	} `json:"limits"`
	Requests inert `json:"requests"`
}

// quantity is a Kubernetes quantity, in bytes or as a count.
type quantity int64

// ReadYAML parses a quantity such as 4 or 20Gi.
func (q *quantity) ReadYAML(v strictyaml.Value) strictyaml.Problems {
	text, unit := v.Scalar(), 1.0
	for suffix, n := range map[string]float64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 1e3,
		"M": 1e6, "G": 1e9, "T": 1e12} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = rest, n
			break
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if n *= unit; err != nil || !(n >= 1 && n <= 1<<50) {
		return strictyaml.Problems{v.Problem(v.Found(), "a quantity such as 4 or 20Gi, at least 1", "")}
	}
	*q = quantity(n)
	return nil
}

// LocalModel is document 003's LocalModel: one model over several workers, by tensor parallelism.
type LocalModel struct {
	objects.Meta
	ModelName string    `json:"modelName"`
	Parallel  parallel  `json:"tensorParallelism"`
	Resources resources `json:"resources"`
	Replicas  int       `json:"replicas" min:"1" max:"10000"`
	Runtime   struct {
		Protocol inert `json:"protocol"`
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
}

// model returns the Model that makes the pods: a server for each group of workers, on as many machines as their
// accelerators need.
func (l *LocalModel) model() Model {
	size, gpus := max(l.Parallel.Size, 1), max(int(l.Resources.Limits.GPUs), 1)
	m := Model{Meta: l.Meta, At: l.At, kind: "LocalModel", Resources: l.Resources}
	m.Deployment.Parallel = parallel{size, max(l.Parallel.Nodes, (size+gpus-1)/gpus)}
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

// ID returns the model's name at its source.
func (m *Model) ID() string { return cmp.Or(m.Source.Hugging.ID, path.Base(m.Source.URI)) }

func (m *Model) check(v strictyaml.Value) {
	if m.Source.URI == "" && m.Source.Hugging.ID == "" {
		v.Get("modelSource").Fail("there is none", "storageUri or huggingFace.modelId", "")
	}
	for _, p := range m.Runtime.Config.Mapping().Pairs() {
		if p.IsMapping() || p.IsList() {
			p.Fail(p.Found(), "a flag's value", "")
		}
	}
	for _, x := range [][3]string{{"runtime", "name", m.Runtime.Name}, {"kvCache", "backend", m.KV.Backend}} {
		if x[2] != "" && x[2] != "vllm" {
			v.Get(x[0]).Get(x[1]).Warn("found "+x[2], "", "it has no effect here: windtunnel simulates vLLM")
		}
	}
	d := v.Get("deployment").Get("tensorParallelism")
	size, nodes := m.parallel()
	given := m.Runtime.Config.Get("tensor_parallel_size")
	switch gpus := int(m.Resources.Limits.GPUs); {
	case m.Deployment.Type == "MultiNode" && m.Deployment.Parallel.Size == 0:
		d.Fail("there is none", "size and nodesPerReplica: the type is MultiNode", "")
	case m.Deployment.Parallel.Size > 0 && given.Given() && given.Scalar() != strconv.Itoa(size):
		given.Fail(given.Found(), fmt.Sprintf("the same as deployment.tensorParallelism.size, %d", size), "")
	case size%nodes != 0:
		d.Get("nodesPerReplica").Fail(fmt.Sprintf("found %d machines", nodes),
			fmt.Sprintf("a divisor of the tensor parallel size, %d", size), "")
	case gpus > 0 && gpus < size/nodes:
		v.Get("resources").Get("limits").Get("nvidia.com/gpu").Fail(fmt.Sprintf("found %d accelerators", gpus),
			fmt.Sprintf("at least %d, one for each tensor parallel rank of a machine", size/nodes), "")
	}
}

// parallel returns the tensor parallel size of a server, and the number of its machines.
func (m *Model) parallel() (size, nodes int) {
	size = m.Deployment.Parallel.Size
	if size == 0 { // the server itself refuses a text that is no number
		size, _ = strconv.Atoi(m.Runtime.Config.Get("tensor_parallel_size").Scalar())
	}
	return max(size, 1), max(m.Deployment.Parallel.Nodes, 1)
}

// serves reports whether a pool belongs to the model: both name it, with or without its source.
func (m *Model) serves(p *objects.Pool) bool {
	return p.Namespace == m.Namespace && p.KServe != nil &&
		strings.EqualFold(path.Base(p.KServe.ModelName), path.Base(m.ID()))
}

// flags returns the server's flags: those of the runtime's configuration, and those of the cache.
func (m *Model) flags(name string, port int) []string {
	out := []string{"--model=" + name, fmt.Sprintf("--port=%d", port)}
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
	for _, x := range []struct {
		flag string
		n    int
	}{{"tensor-parallel-size", m.Deployment.Parallel.Size}, {"nnodes", m.Deployment.Parallel.Nodes},
		{"block-size", m.KV.BlockSize}, {"kv-cache-memory-bytes", int(m.KV.Size)},
		{"memory-limit", int(m.Resources.Limits.Memory)}} {
		if x.n > 0 {
			out = append(out, fmt.Sprintf("--%s=%d", x.flag, x.n))
		}
	}
	if m.KV.Swap > 0 {
		out = append(out, fmt.Sprintf("--swap-space=%v", float64(m.KV.Swap)/(1<<30)))
	}
	return out
}

// expand makes the workloads that document 003's controller would make of models. It makes them once, for each pool of
// the model that has no workload yet.
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
			made := m.workers(p)
			b.Workloads = append(b.Workloads, made...)
			for i := range made {
				if w := &made[i]; b.Service(w.Namespace, w.Name) == nil {
					b.Services = append(b.Services, Service{Meta: w.Meta, Selector: w.Selector, At: m.At,
						Ports: []ServicePort{{Number: p.Ports[0], TargetNumber: p.Ports[0]}}})
				}
			}
		}
		if !found {
			b.note(m.At.Problem("no InferencePool of the namespace has its modelName, "+m.ID(), "",
				"no pods are made of the model").Error())
		}
	}
	b.transfers()
	b.standalone()
}

// workers returns the workloads of a model for a pool, as its deployment describes them, with the labels that the pool
// selects. In a disaggregated pool, decode workers have a sidecar.
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
		w := Workload{Meta: m.Meta, Kind: cmp.Or(m.kind, "InferenceModel"), Replicas: replicas,
			Selector: picker.SelectLabels(map[string]string{"app": m.Name + suffix}), Pods: pods,
			Volumes: map[string]Volume{}, At: m.At}
		w.Name = m.Name + suffix
		if sidecar {
			server.Args, server.Ports = m.flags(p.KServe.ModelName, port+1), []ContainerPort{{Number: port + 1}}
			w.Containers = []Container{
				{Name: "routing-sidecar", Image: "llm-d-routing-sidecar",
					Args: []string{fmt.Sprintf("--port=%d", port), fmt.Sprintf("--vllm-port=%d", port+1),
						"--connector=" + cmp.Or(p.KServe.Disaggregation.Connector, "nixlv2"), "--secure-proxy=false"},
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
	machine.SortFunc(out, func(a, b Workload) int { return strings.Compare(a.Name, b.Name) })
	return out
}
