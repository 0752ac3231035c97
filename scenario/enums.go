package scenario

import "github.com/windtunnel/windtunnel/core/load/workload/trace"

// Flow is the way in which a request reaches its model server.
type Flow string

// The flows.
const (
	Held  Flow = "held"
	Plain Flow = "plain"
)

func (Flow) Values() []string { return []string{"held", "plain"} }

// HTTPVersion is a protocol on the wire.
type HTTPVersion string

// The protocols.
const (
	HTTP1 HTTPVersion = "http1"
	HTTP2 HTTPVersion = "http2"
)

func (HTTPVersion) Values() []string { return []string{"http1", "http2"} }

// API is the API of the requests.
type API string

// The APIs.
const (
	ChatAPI         API = "chat"
	CompletionsAPI  API = "completions"
	GRPCGenerateAPI API = "grpc-generate"
	GRPCEmbedAPI    API = "grpc-embed"
	MessagesAPI     API = "messages"
	ResponsesAPI    API = "responses"
)

func (API) Values() []string {
	return []string{"chat", "completions", "messages", "responses", "grpc-generate", "grpc-embed"}
}

// FailureMode is an InferencePool's behaviour while its endpoint picker is down.
type FailureMode string

// The failure modes.
const (
	FailClose FailureMode = "FailClose"
	FailOpen  FailureMode = "FailOpen"
)

func (FailureMode) Values() []string { return []string{"FailClose", "FailOpen"} }

// Batching is the way in which requests share a model server.
type Batching string

// The kinds of batching.
const (
	Independent Batching = "independent"
	Continuous  Batching = "continuous"
	Static      Batching = "static"
	NoBatching  Batching = "none"
)

func (Batching) Values() []string { return []string{"independent", "continuous", "static", "none"} }

// Profile is a set of defaults of a model server.
type Profile string

// The profiles.
const (
	DocumentProfile Profile = "document"
	VLLMProfile     Profile = "vllm"
)

func (Profile) Values() []string { return []string{"document", "vllm"} }

// Policy is the order in which a model server schedules waiting requests.
type Policy string

// The policies.
const (
	FCFS     Policy = "fcfs"
	Priority Policy = "priority"
)

func (Policy) Values() []string { return []string{"fcfs", "priority"} }

// StepDetail is the recorded detail of the engines' steps.
type StepDetail string

// The details.
const (
	NoSteps    StepDetail = "none"
	WholeSteps StepDetail = "steps"
	StepPhases StepDetail = "phases"
)

func (StepDetail) Values() []string { return []string{"none", "steps", "phases"} }

// OOM is the behaviour of a model server that does not fit into its memory.
type OOM string

// The behaviours.
const (
	OOMRefuse  OOM = "refuse"
	OOMRestart OOM = "restart"
)

func (OOM) Values() []string { return []string{"refuse", "restart"} }

// ErrorStyle is the format of the EPP's own error answers.
type ErrorStyle string

// The error styles.
const (
	OpenAIErrors ErrorStyle = "openai"
	EPPErrors    ErrorStyle = "epp"
)

func (ErrorStyle) Values() []string { return []string{"openai", "epp"} }

// BodyMode is an Envoy ext_proc body mode.
type BodyMode string

// The body modes.
const (
	FullDuplexStreamed BodyMode = "FULL_DUPLEX_STREAMED"
	Buffered           BodyMode = "BUFFERED"
)

func (BodyMode) Values() []string { return []string{"FULL_DUPLEX_STREAMED", "BUFFERED"} }

// ResponseBodyMode is an Envoy ext_proc body mode for responses.
type ResponseBodyMode string

// ResponseFullDuplex is the default if requests use it. Otherwise the default is NONE (document 003).
const ResponseFullDuplex ResponseBodyMode = "FULL_DUPLEX_STREAMED"

func (ResponseBodyMode) Values() []string {
	return []string{"FULL_DUPLEX_STREAMED", "STREAMED", "BUFFERED", "NONE"}
}

// Sidecar is the proxy beside each model server.
type Sidecar string

// The sidecars.
const (
	NoSidecar      Sidecar = "none"
	RoutingSidecar Sidecar = "routing"
	DynamoSidecar  Sidecar = "dynamo" // Dynamo's frontend in direct mode
)

func (Sidecar) Values() []string { return []string{"none", "routing", "dynamo"} }

// Alphabet is the set of characters of random prompts.
type Alphabet string

// The alphabets.
const (
	ASCII        Alphabet = "ascii"
	Unicode      Alphabet = "unicode"
	BoundaryLike Alphabet = "boundary-like"
)

func (Alphabet) Values() []string { return []string{"ascii", "unicode", "boundary-like"} }

// Arrivals is the distribution of the times between arrivals.
type Arrivals string

// The distributions.
const (
	PoissonArrivals  Arrivals = "poisson"
	ConstantArrivals Arrivals = "constant"
	GammaArrivals    Arrivals = "gamma"
	WeibullArrivals  Arrivals = "weibull"
)

func (Arrivals) Values() []string { return []string{"poisson", "constant", "gamma", "weibull"} }

// TraceFormat says how the lines of a trace are read.
type TraceFormat string

// The formats on which other settings depend.
const (
	AzureTrace    TraceFormat = trace.Azure
	MooncakeTrace TraceFormat = trace.Mooncake
	ShareGPTTrace TraceFormat = trace.ShareGPT
	ServeGenTrace TraceFormat = trace.ServeGen
)

func (TraceFormat) Values() []string { return trace.Formats() }

// StepSource is the source of step times.
type StepSource string

// The sources on which other settings depend.
const (
	VLLMSource     StepSource = "vllm"
	MeasuredSource StepSource = "measured"
)

func (StepSource) Values() []string {
	return []string{"vllm", "measured", "roofline", "inference-sim", "document-003"}
}
