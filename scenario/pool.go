package scenario

import (
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/scenario/size"
)

// Pool is an InferencePool: model servers that serve one model, and the
// endpoint picker that chooses among them.
type Pool struct {
	// The pool's name, a DNS label that is unique in the scenario.
	Name string `json:"name"`
	// The model that the pool serves. Several pools have different models: a request finds its pool by the model, or
	// the LoRA adapter, that it asks for.
	Model string `json:"model" default:"llama-3.1-8b"`
	// Further names of the model (vLLM's --served-model-name).
	ServedModelNames []string `json:"servedModelNames" max:"64"`
	// How a request reaches its model server: held keeps the upstream request open after part 1 until the first token
	// arrives (document 000); plain sends it whole.
	Flow Flow `json:"flow" oneof:"held,plain" default:"plain"`
	// How many model servers to simulate, unless endpoints or groups are given.
	Replicas int `json:"replicas" min:"1" max:"16384"`
	// Model servers of different kinds, in place of replicas.
	Groups []ServerGroup `json:"groups" max:"64"`
	// The protocol between Envoy and the model servers.
	Upstream HTTPVersion `json:"upstream" oneof:"http1,http2" default:"http1"`
	// What happens while the endpoint picker is down: FailClose answers 503, FailOpen sends requests to any ready model
	// server.
	FailureMode FailureMode `json:"failureMode" oneof:"FailClose,FailOpen" default:"FailClose"`
	// External model servers, as host:port, instead of simulated ones.
	Endpoints []string `json:"endpoints" max:"16384"`
	// How the simulated model servers behave.
	ModelServer ModelServer `json:"modelServer"`
	// How the endpoint picker behaves.
	EPP EPP `json:"epp"`
	// The proxy in front of each model server: none, routing (the sidecar for prefill/decode disaggregation) or dynamo
	// (NVIDIA Dynamo's frontend in direct mode, which sends a request as tokens to the worker that the picker names;
	// docs/dynamo.md). Neither supports held requests.
	Sidecar Sidecar `json:"sidecar" oneof:"none,routing,dynamo" default:"none"`
	// Prefill and decode on different servers, through the sidecars.
	Disaggregation Disaggregation `json:"disaggregation"`

	// Whether document 003's KV-Cache Manager runs beside the picker, which reaches it as http://kv-cache-manager:8080.
	// It reads the model servers' KV events.
	KVManager bool `json:"kvManager"`
	// llm-d's latency predictor. The picker's predicted-latency-producer calls it for a request's expected latency at
	// each server.
	Predictor Predictor `json:"predictor"`
	// NVIDIA Dynamo's frontend with its router beside the picker. The picker's dynamo-frontend-scorer calls it for a
	// worker (docs/dynamo.md).
	Dynamo Dynamo `json:"dynamo"`

	// How model servers start and end.
	Lifecycle Lifecycle `json:"lifecycle"`
	// What changes the number of replicas while requests are under way. In a pool with groups, each group has its own.
	Autoscaling Autoscaling `json:"autoscaling"`
	// The cost of the accelerators.
	Price Price `json:"price"`
	// What happens to parts of the pool while requests are under way.
	Incidents []Incident `json:"incidents" max:"1000"`

	labels []map[string]string // of the servers of manifests
	model  *chattemplate.Model // of modelServer.tokenizer; nil without one

	reserved int  // places for servers that a user may add during the run
	byHand   bool // a user may stop servers during the run
}

// ModelServer is the behaviour of a simulated model server. Fields that are left out have the profile's default.
type ModelServer struct {
	// How requests share the server: independent (each alone, document 000), continuous (a batch that changes each
	// step, as vLLM), static (batches start and end together), none (one request at a time).
	Batching Batching `json:"batching" oneof:"independent,continuous,static,none" default:"independent"`
	// How long prefill takes, for instance 100ms..30s or 50ms±10%. A server that batches takes one duration, or none:
	// the accelerator then determines it.
	Prefill dist.Dist `json:"prefill" above:"0s" default:"100ms..30s"`
	// The time from one output token to the next.
	InterTokenLatency dist.Dist `json:"interTokenLatency" default:"20ms"`
	// How many tokens an answer has, unless the request asks for fewer.
	OutputTokens dist.Dist `json:"outputTokens" unit:"count" min:"1" max:"1000000" default:"16"`

	// The defaults of a server that batches: document (003: 256 sequences and 8192 tokens in a step) or vllm (of its
	// version: 1024 and 8192 on an accelerator of 70 GiB or more other than A100, otherwise 256 and 2048).
	Profile Profile `json:"profile" oneof:"document,vllm" default:"document"`
	// The release of vLLM whose defaults apply, from 0.8.0 on. Left out: 0.19.0.
	Version string `json:"version"`
	// The most sequences in one step (vLLM's --max-num-seqs).
	MaxNumSeqs int `json:"maxNumSeqs" min:"1" max:"65536"`
	// The most tokens in one step (vLLM's --max-num-batched-tokens).
	MaxNumBatchedTokens int `json:"maxNumBatchedTokens" min:"1" max:"4194304"`
	// The longest sequence in tokens (vLLM's --max-model-len). auto: the model's own, or as much of it as the KV cache
	// holds. Left out: the same, but with the profile vllm a model whose own does not fit is an error, as in vLLM.
	MaxModelLen ModelLen `json:"maxModelLen" min:"1" max:"16777216"`
	// The most tokens of any answer (max_new_tokens of vLLM's --override-generation-config).
	MaxNewTokens int `json:"maxNewTokens" min:"1" max:"16777216"`
	// Whether a long prompt may be computed in several steps (vLLM's --enable-chunked-prefill). Without it, a step
	// takes a whole prompt, so that maxNumBatchedTokens is at least maxModelLen.
	ChunkedPrefill bool `json:"chunkedPrefill" default:"true"`
	// The most tokens per step of a prompt that is longer than this; 0 is no limit (vLLM's
	// --long-prefill-token-threshold).
	LongPrefillTokenThreshold int `json:"longPrefillTokenThreshold" min:"0" max:"4194304"`
	// How many requests may have a half-computed prompt at one time; 0 is no limit (vLLM's --max-num-partial-prefills).
	MaxNumPartialPrefills int `json:"maxNumPartialPrefills" min:"0" max:"65536"`
	// How many of these may be longer than longPrefillTokenThreshold; 0 is no limit (vLLM's
	// --max-long-partial-prefills).
	MaxLongPartialPrefills int `json:"maxLongPartialPrefills" min:"0" max:"65536"`
	// The order of waiting requests: fcfs (first come) or priority (the request's own, lower first; vLLM's
	// --scheduling-policy).
	SchedulingPolicy Policy `json:"schedulingPolicy" oneof:"fcfs,priority" default:"fcfs"`
	// Whether prompts that begin alike share KV blocks (vLLM's --enable-prefix-caching).
	PrefixCaching bool `json:"prefixCaching" default:"true"`

	// Tokens in one KV-cache block (vLLM's --block-size).
	BlockSize int `json:"blockSize" min:"1" max:"4096"`
	// KV-cache blocks of one server (vLLM's --num-gpu-blocks-override). Left out: as many as the accelerator's memory
	// holds beside weights and activations. With a number, the memory is not checked.
	NumGPUBlocks int `json:"numGPUBlocks" min:"1" max:"16777216"`
	// The number of evicted blocks that host memory keeps.
	NumCPUBlocks int `json:"numCPUBlocks" min:"0" max:"16777216"`
	// The same as numCPUBlocks, in bytes per accelerator (document 003's --swap-space).
	SwapSpace size.Bytes `json:"swapSpace" min:"1" max:"1024GiB"`
	// The part of the accelerator's memory that the server may use (vLLM's --gpu-memory-utilization).
	// Left out: 0.9, and 0.92 from vLLM 0.20 on.
	GPUMemoryUtilization float64 `json:"gpuMemoryUtilization" min:"0.01" max:"1"`
	// The size of the KV cache on each accelerator (vLLM's --kv-cache-memory-bytes).
	KVCacheMemory size.Bytes `json:"kvCacheMemory" min:"1" max:"16384GiB"`
	// Whether the server runs without CUDA graphs, which take memory (vLLM's --enforce-eager).
	EnforceEager bool `json:"enforceEager"`
	// The limit of the container's host memory, in which swap space is (document 003's resources.limits.memory).
	MemoryLimit size.Bytes `json:"memoryLimit" min:"1" max:"16384GiB"`
	// What happens to a server that does not fit into its memory: refuse is an error when the scenario is read, restart
	// kills and restarts it repeatedly, as Kubernetes does (OOMKilled, CrashLoopBackOff).
	OOM OOM `json:"oom" oneof:"refuse,restart" default:"refuse"`

	// The model for the step times of a server that batches. Left out: the pool's.
	Model string `json:"model"`
	// The file of that model's config.json, as Hugging Face writes it, for a model that is not in the catalogue. The
	// path is relative to the scenario's own directory.
	ModelConfig string `json:"modelConfig"`
	// The directory of the model's tokenizer: tokenizer.json and, if they exist, tokenizer_config.json and
	// chat_template.jinja, as transformers saves them (vLLM's --tokenizer). The path is relative to the scenario's own
	// directory. Left out: four bytes are one token.
	Tokenizer string `json:"tokenizer"`
	// The file of a chat template that replaces the model's own (vLLM's --chat-template).
	ChatTemplate string `json:"chatTemplate"`
	// Whether responses are stored for previous_response_id and GET (vLLM's VLLM_ENABLE_RESPONSES_API_STORE).
	StoreResponses bool `json:"storeResponses"`
	// The accelerator for the step times of a server that batches. Left out: H100.
	Accelerator string `json:"accelerator"`
	// The number of accelerators over which each layer is split (vLLM's --tensor-parallel-size).
	TensorParallelSize int `json:"tensorParallelSize" min:"1" max:"64"`
	// The number of engines of each replica, every one with that many accelerators and an endpoint with its own port
	// (vLLM's --data-parallel-size). They share the experts of a mixture, and each has all other weights.
	DataParallelSize int `json:"dataParallelSize" min:"1" max:"1024"`
	// How many of these engines one replica has, if they are spread over several (vLLM's --data-parallel-size-local).
	// Left out: all.
	DataParallelSizeLocal int `json:"dataParallelSizeLocal" min:"1" max:"64"`
	// Whether each accelerator has whole experts of a mixture instead of a slice of each (vLLM's
	// --enable-expert-parallel).
	EnableExpertParallel bool `json:"enableExpertParallel"`
	// The number of nodes over which these accelerators are spread evenly (document 003's LocalModel).
	Nodes int `json:"nodes" min:"1" max:"64"`
	// The links between the accelerators of one server.
	Interconnect Interconnect `json:"interconnect"`
	// How weights are stored: none, fp8, int8, awq, gptq, int4, mxfp4 or nvfp4 (vLLM's --quantization). Left out: as
	// the model is published.
	Quantization string `json:"quantization"`
	// The number type of the KV cache: auto, bfloat16, fp8 or int8 (vLLM's --kv-cache-dtype).
	KVCacheDType string `json:"kvCacheDType"`

	// The source of step times, if no other field sets them: vllm (a vLLM server's, fitted to measured GPUs), measured
	// (tables of the accelerator's kernels if there are some, otherwise its roofline); roofline, or inference-sim for
	// the roofline of inference-sim (BLIS) with its utilisation of H100, A100 and L40S, to see how far results depend
	// on the source; or document-003 for those of document 003's example, 200 ms for a prompt of 2,000 tokens and 20
	// ms for each token of an answer, on any hardware; a warning reports what the hardware cannot do.
	Source StepSource `json:"source" oneof:"vllm,measured,roofline,inference-sim,document-003" default:"vllm"`
	// Step times as coefficients, instead of the accelerator's.
	Coefficients Coefficients `json:"coefficients"`
	// Step times as a CSV file with the header model,system,backend,tp,phase,batch,context_tokens,ms, instead of the
	// accelerator's. The path is relative to the scenario's own directory.
	StepTimes string `json:"stepTimes"`
	// Parameters of the step times and of the API server, as windtunnel calibrate --results writes them, instead of
	// those that come with windtunnel. The path is relative to the scenario's own directory.
	Calibration string `json:"calibration"`
	// The variation of the steps' times.
	Jitter Jitter `json:"jitter"`

	// The detail of the engines' steps in a recording: none, steps (the work of each step, and the time on the links of
	// a tensor-parallel group), phases (each broadcast, all-reduce and gather in a step with its time).
	EngineSteps StepDetail `json:"engineSteps" oneof:"none,steps,phases" default:"none"`

	// The LoRA adapters that the servers know from the start.
	LoRAAdapters []string `json:"loraAdapters" max:"1024"`
	// How many different adapters one step may use (vLLM's --max-loras).
	MaxLoRAs int `json:"maxLoras" min:"1" max:"1024"`
	// How many adapters stay in host memory (vLLM's --max-cpu-loras).
	MaxCPULoRAs int `json:"maxCPULoras" min:"1" max:"65536"`
	// How much longer a step takes that loads an adapter into host memory. Left out: 28ms, an adapter of 84 MB from an
	// NVMe disk.
	LoRALoadTime time.Duration `json:"loraLoadTime" min:"0s" max:"1h"`
	// How much longer a step takes that loads an adapter into the accelerator. Left out: 3.4ms, the same adapter over
	// PCIe 4.0.
	LoRAActivateTime time.Duration `json:"loraActivateTime" min:"0s" max:"1h"`

	// The KV-cache events that the servers publish, for pickers that route by them.
	KVEvents KVEvents `json:"kvEvents"`

	// The faults that the servers inject into some of the requests.
	Faults []ServerFault `json:"faults" max:"64"`

	constant bool           // a batching server whose times are prefill and interTokenLatency
	hardware pooledHardware // shared by all replicas
}

func (m *ModelServer) defaults() {
	m.LoRALoadTime = engine.DefaultLoRALoadTime.Duration()
	m.LoRAActivateTime = engine.DefaultLoRAActivateTime.Duration()
}

// EPP is the behaviour of the pool's endpoint picker.
type EPP struct {
	// The number of its replicas. Each has its own view of the model servers: its own scrapes, indexes and flow
	// control. Envoy calls them in turn. 0 is a pool without a picker, like a plain Service: Envoy sends requests to
	// the healthy model servers in turn.
	Replicas int `json:"replicas" min:"0" max:"64" default:"1"`
	// How long a replica works on a request before it decides, such as 2ms or lognormal(2ms, 1ms). Other requests wait
	// during that time. In wall time it is added to the time of the decision itself. Left out: no time.
	ServiceTime dist.Dist `json:"serviceTime" max:"1m"`
	// The number of requests that a replica works on at once, with a serviceTime.
	Workers int `json:"workers" min:"1" max:"4096" default:"1"`
	// The longest pause between two pieces of a request's body before the client gets a 408.
	BodyIdleTimeout time.Duration `json:"bodyIdleTimeout" min:"1ms" max:"24h" default:"30s"`
	// How long a request's whole body may take before the client gets a 408. Neither limit applies while a request is
	// held.
	BodyTimeout time.Duration `json:"bodyTimeout" min:"1ms" max:"24h" default:"5m"`
	// How long the picker may take to decide before the client gets a 504.
	Deadline time.Duration `json:"deadline" min:"1ms" max:"1h" default:"10s"`
	// How long a request may be held before the client gets a 504. Keep it above the longest prefill.
	HoldLimit time.Duration `json:"holdLimit" min:"1ms" max:"24h" default:"1m"`
	// The largest request body; a larger one gets a 413.
	MaxBodyBytes size.Bytes `json:"maxBodyBytes" min:"1" max:"1GiB" default:"4MiB"`
	// The length of part 2's random metadata.
	MetadataBytes size.Bytes `json:"metadataBytes" min:"1" max:"1MiB" default:"32"`
	// What error answers look like: openai JSON, or the plain text of the real EPP.
	Errors ErrorStyle `json:"errors" oneof:"openai,epp" default:"openai"`
	// Envoy's body mode towards the picker. A held request needs FULL_DUPLEX_STREAMED.
	BodyMode BodyMode `json:"bodyMode" oneof:"FULL_DUPLEX_STREAMED,BUFFERED" default:"FULL_DUPLEX_STREAMED"`
	// Envoy's body mode for responses. It determines what the picker sees of them, and so which of its metrics exist.
	// With BUFFERED, the client gets nothing of an answer before its end. Left out: FULL_DUPLEX_STREAMED if bodyMode
	// is, otherwise NONE.
	ResponseBodyMode ResponseBodyMode `json:"responseBodyMode" oneof:"FULL_DUPLEX_STREAMED,STREAMED,BUFFERED,NONE"`
	// How long Envoy waits for the picker's answer (document 003's processingTimeout, Envoy's message_timeout) before
	// failureMode applies. It needs bodyMode BUFFERED. Left out: no limit.
	ProcessingTimeout time.Duration `json:"processingTimeout" min:"1ms" max:"1h"`
	// The pool's InferenceObjectives: priorities for requests that name one in the header x-llm-d-inference-objective.
	Objectives []Objective `json:"objectives" max:"1024"`
	// The EndpointPickerConfig: the path of its file, or the object itself. Left out: llm-d's default, or a
	// configuration for prefill and decode if there are prefill servers.
	Config PickerConfig `json:"config"`

	objects *objects.Selection // of the manifests
}

// Objective is an InferenceObjective.
type Objective struct {
	// The name by which requests refer to it.
	Name string `json:"name"`
	// Its priority. A saturated pool sheds requests with a priority below 0.
	Priority int `json:"priority" min:"-1000000" max:"1000000"`
}

// selection returns the pool's InferenceObjectives for the picker; false if there are none.
func (e *EPP) selection() (s objects.Selection, given bool) {
	if e.objects != nil {
		return *e.objects, true
	}
	s.Objects.Objectives = map[string]int{}
	for _, o := range e.Objectives {
		s.Objects.Objectives[o.Name] = o.Priority
		s.Priorities = append(s.Priorities, o.Priority)
	}
	slices.Sort(s.Priorities)
	s.Priorities = slices.Compact(s.Priorities)
	slices.Reverse(s.Priorities)
	return s, len(e.Objectives) > 0
}

// Responses returns Envoy's body mode for responses.
func (e *EPP) Responses() ResponseBodyMode { return ResponseBodyMode(e.asking().Responses()) }

func (e *EPP) asking() gateway.Asking {
	return gateway.Asking{Request: gateway.Body(e.BodyMode), Response: gateway.Body(e.ResponseBodyMode),
		Timeout: e.ProcessingTimeout}
}

// asking returns how Envoy calls the pool's picker.
func (p *Pool) asking() gateway.Asking {
	a := p.EPP.asking()
	a.FailOpen = p.FailureMode == FailOpen
	return a
}
