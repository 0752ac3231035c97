package scenario

import (
	"time"

	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Pool is an InferencePool: model servers that serve one model, and the
// endpoint picker that chooses among them.
type Pool struct {
	// The pool's name, unique in the scenario.
	Name string `yaml:"name"`
	// The model that requests ask for.
	Model string `yaml:"model"`
	// How a request reaches its model server: held keeps the upstream request open after part 1 until the first token is there (document 000); plain sends it whole.
	Flow Flow `yaml:"flow"`
	// How many model servers to simulate. Left out where endpoints are given.
	Replicas int `yaml:"replicas" min:"1" max:"4096"`
	// The protocol between Envoy and the model servers.
	Upstream HTTPVersion `yaml:"upstream"`
	// What happens when the endpoint picker is down: FailClose answers 503, FailOpen serves plainly by some ready model server.
	FailureMode FailureMode `yaml:"failureMode"`
	// Model servers that someone else runs, as host:port, instead of simulated ones.
	Endpoints []string `yaml:"endpoints" max:"4096"`
	// How the simulated model servers behave.
	ModelServer ModelServer `yaml:"modelServer"`
	// How the endpoint picker behaves.
	EPP EPP `yaml:"epp"`
	// What stands before each model server: none, or the routing sidecar for prefill/decode disaggregation, behind which no request can be held.
	Sidecar Sidecar `yaml:"sidecar"`
	// Prefill on other servers than decode, by way of the sidecars.
	Disaggregation Disaggregation `yaml:"disaggregation"`

	// Whether document 003's KV-Cache Manager runs beside the picker, which reaches it as http://kv-cache-manager:8080. It takes the model servers' KV events.
	KVManager bool `yaml:"kvManager"`

	timer *latency.Timer // one for all replicas, made when it is first asked for
}

func (p *Pool) defaults() {
	p.Model = "llama-3.1-8b"
	p.Flow = Plain
	p.Upstream = HTTP1
	p.FailureMode = FailClose
	p.Sidecar = NoSidecar
}

// ModelServer is how a simulated model server behaves. What is left out takes
// the engine's own default.
type ModelServer struct {
	// How requests share the server: independent (each alone, document 000), continuous (a batch that changes each step, as vLLM), static (batches start and end together), none (one request at a time).
	Batching Batching `yaml:"batching"`
	// How long prefill takes, for instance 100ms..30s or 50ms±10%. A server that batches takes one duration, or none: the accelerator then tells.
	Prefill latency.Dist `yaml:"prefill" min:"1ns"`
	// The time from one output token to the next.
	InterTokenLatency latency.Dist `yaml:"interTokenLatency"`
	// How many tokens an answer has, unless the request says less.
	OutputTokens latency.Dist `yaml:"outputTokens" unit:"count" min:"1" max:"1000000"`

	// The most sequences in one step (vLLM's --max-num-seqs).
	MaxNumSeqs int `yaml:"maxNumSeqs" min:"1" max:"65536"`
	// The most tokens in one step (vLLM's --max-num-batched-tokens).
	MaxNumBatchedTokens int `yaml:"maxNumBatchedTokens" min:"1" max:"4194304"`
	// The longest sequence in tokens (vLLM's --max-model-len).
	MaxModelLen int `yaml:"maxModelLen" min:"1" max:"16777216"`
	// Tokens in one KV-cache block (vLLM's --block-size).
	BlockSize int `yaml:"blockSize" min:"1" max:"4096"`
	// KV-cache blocks of one server (vLLM's --num-gpu-blocks-override).
	NumGPUBlocks int `yaml:"numGPUBlocks" min:"1" max:"16777216"`
	// The model whose step times are simulated by a server that batches; left out, the pool's.
	Model string `yaml:"model"`
	// The accelerator whose step times are simulated by a server that batches, H100 if left out.
	Accelerator string `yaml:"accelerator"`
	// Over how many accelerators each layer is split (vLLM's --tensor-parallel-size).
	TensorParallelSize int `yaml:"tensorParallelSize" min:"1" max:"64"`

	// What the servers tell about their KV caches, for pickers that route by it.
	KVEvents KVEvents `yaml:"kvEvents"`

	constant bool // a batching server whose times are prefill and interTokenLatency
}

func (m *ModelServer) defaults() {
	m.Batching = Independent
	m.Prefill = latency.Between(100*machine.Millisecond, 30*machine.Second)
	m.InterTokenLatency = latency.Fixed(20 * machine.Millisecond)
	m.OutputTokens = mustCount("16")
}

// EPP is how the pool's endpoint picker behaves.
type EPP struct {
	// How long the picker may take to decide before the client gets a 504.
	Deadline time.Duration `yaml:"deadline" min:"1ms" max:"1h"`
	// How long a request may be held before the client gets a 504. Keep it above the longest prefill.
	HoldLimit time.Duration `yaml:"holdLimit" min:"1ms" max:"24h"`
	// The largest request body; a larger one gets a 413.
	MaxBodyBytes Bytes `yaml:"maxBodyBytes" min:"1" max:"1GiB"`
	// The length of part 2's random metadata.
	MetadataBytes Bytes `yaml:"metadataBytes" min:"1" max:"1MiB"`
	// What error answers look like: openai JSON, or the plain text of the real EPP.
	Errors ErrorStyle `yaml:"errors"`
	// Envoy's body mode towards the picker. A held request needs FULL_DUPLEX_STREAMED.
	BodyMode BodyMode `yaml:"bodyMode"`
	// The EndpointPickerConfig: the path of its file, or written here in place.
	Config PickerConfig `yaml:"config"`
}

func (e *EPP) defaults() {
	e.Deadline = 10 * time.Second
	e.HoldLimit = time.Minute
	e.MaxBodyBytes = 4 << 20
	e.MetadataBytes = 32
	e.Errors = OpenAIErrors
	e.BodyMode = FullDuplexStreamed
}
