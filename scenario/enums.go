package scenario

import "github.com/windtunnel/windtunnel/core/load/workload/trace"

// Flow is how a request reaches its model server.
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

// API is what requests are asked by.
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

// FailureMode is InferencePool's answer to an endpoint picker that is down.
type FailureMode string

// The failure modes.
const (
	FailClose FailureMode = "FailClose"
	FailOpen  FailureMode = "FailOpen"
)

func (FailureMode) Values() []string { return []string{"FailClose", "FailOpen"} }

// Batching is how requests share a model server.
type Batching string

// The kinds of batching.
const (
	Independent Batching = "independent"
	Continuous  Batching = "continuous"
	Static      Batching = "static"
	NoBatching  Batching = "none"
)

func (Batching) Values() []string { return []string{"independent", "continuous", "static", "none"} }

// Profile is whose defaults a model server has.
type Profile string

// The profiles.
const (
	DocumentProfile Profile = "document"
	VLLMProfile     Profile = "vllm"
)

func (Profile) Values() []string { return []string{"document", "vllm"} }

// Policy is the order in which a model server takes waiting requests up.
type Policy string

// The policies.
const (
	FCFS     Policy = "fcfs"
	Priority Policy = "priority"
)

func (Policy) Values() []string { return []string{"fcfs", "priority"} }

// StepDetail is how much of the engines' steps is recorded.
type StepDetail string

// The details.
const (
	NoSteps    StepDetail = "none"
	WholeSteps StepDetail = "steps"
	StepPhases StepDetail = "phases"
)

func (StepDetail) Values() []string { return []string{"none", "steps", "phases"} }

// OOM is what becomes of a model server that does not fit into its memory.
type OOM string

// What may become of it.
const (
	OOMRefuse  OOM = "refuse"
	OOMRestart OOM = "restart"
)

func (OOM) Values() []string { return []string{"refuse", "restart"} }

// ErrorStyle is what the EPP's own error answers look like.
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

// The modes of responses. Without one it is FULL_DUPLEX_STREAMED where requests
// are, and else NONE, as document 003 has it.
const (
	ResponseFullDuplex ResponseBodyMode = "FULL_DUPLEX_STREAMED"
	ResponseStreamed   ResponseBodyMode = "STREAMED"
	ResponseBuffered   ResponseBodyMode = "BUFFERED"
	ResponseUnseen     ResponseBodyMode = "NONE"
)

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

// Alphabet is what random prompts are made of.
type Alphabet string

// The alphabets.
const (
	ASCII        Alphabet = "ascii"
	Unicode      Alphabet = "unicode"
	BoundaryLike Alphabet = "boundary-like"
)

func (Alphabet) Values() []string { return []string{"ascii", "unicode", "boundary-like"} }

// Arrivals is how the times between arrivals are distributed.
type Arrivals string

// The distributions.
const (
	PoissonArrivals  Arrivals = "poisson"
	ConstantArrivals Arrivals = "constant"
	GammaArrivals    Arrivals = "gamma"
	WeibullArrivals  Arrivals = "weibull"
)

func (Arrivals) Values() []string { return []string{"poisson", "constant", "gamma", "weibull"} }

// TraceFormat is what a trace is written in.
type TraceFormat string

// The formats.
const (
	AzureTrace    TraceFormat = trace.Azure
	MooncakeTrace TraceFormat = trace.Mooncake
	BurstGPTTrace TraceFormat = trace.BurstGPT
	BailianTrace  TraceFormat = trace.Bailian
	ShareGPTTrace TraceFormat = trace.ShareGPT
	ServeGenTrace TraceFormat = trace.ServeGen
)

func (TraceFormat) Values() []string { return trace.Formats() }

// StepSource is where step times come from.
type StepSource string

// The sources.
const (
	MeasuredSource     StepSource = "measured"
	RooflineSource     StepSource = "roofline"
	InferenceSimSource StepSource = "inference-sim"
	DocumentSource     StepSource = "document-003"
)

func (StepSource) Values() []string {
	return []string{"measured", "roofline", "inference-sim", "document-003"}
}
