package scenario

import "github.com/windtunnel/windtunnel/core/load/workload/trace"

// Flow is the way in which a request reaches its model server.
type Flow string

// The flows.
const (
	Held  Flow = "held"
	Plain Flow = "plain"
)

// HTTPVersion is a protocol on the wire.
type HTTPVersion string

// The protocols.
const (
	HTTP1 HTTPVersion = "http1"
	HTTP2 HTTPVersion = "http2"
)

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

// FailureMode is an InferencePool's behaviour while its endpoint picker is down.
type FailureMode string

// The failure modes.
const (
	FailClose FailureMode = "FailClose"
	FailOpen  FailureMode = "FailOpen"
)

// Batching is the way in which requests share a model server.
type Batching string

// The kinds of batching.
const (
	Independent Batching = "independent"
	Continuous  Batching = "continuous"
	Static      Batching = "static"
	NoBatching  Batching = "none"
)

// Profile is a set of defaults of a model server.
type Profile string

// The profiles.
const (
	DocumentProfile Profile = "document"
	VLLMProfile     Profile = "vllm"
)

// Policy is the order in which a model server schedules waiting requests.
type Policy string

// Priority is the order of the requests' own priorities. The other policy is fcfs.
const Priority Policy = "priority"

// StepDetail is the recorded detail of the engines' steps.
type StepDetail string

// The details other than none.
const (
	WholeSteps StepDetail = "steps"
	StepPhases StepDetail = "phases"
)

// OOM is the behaviour of a model server that does not fit into its memory.
type OOM string

// OOMRestart restarts the server repeatedly. The other behaviour is refuse.
const OOMRestart OOM = "restart"

// ErrorStyle is the format of the EPP's own error answers.
type ErrorStyle string

// The error styles.
const (
	OpenAIErrors ErrorStyle = "openai"
	EPPErrors    ErrorStyle = "epp"
)

// BodyMode is an Envoy ext_proc body mode.
type BodyMode string

// The body modes.
const (
	FullDuplexStreamed BodyMode = "FULL_DUPLEX_STREAMED"
	Buffered           BodyMode = "BUFFERED"
)

// ResponseBodyMode is an Envoy ext_proc body mode for responses.
type ResponseBodyMode string

// ResponseFullDuplex is the default if requests use it. Otherwise the default is NONE (document 003).
const ResponseFullDuplex ResponseBodyMode = "FULL_DUPLEX_STREAMED"

// Sidecar is the proxy beside each model server.
type Sidecar string

// The sidecars.
const (
	NoSidecar      Sidecar = "none"
	RoutingSidecar Sidecar = "routing"
	DynamoSidecar  Sidecar = "dynamo" // Dynamo's frontend in direct mode
)

// Alphabet is the set of characters of random prompts.
type Alphabet string

// The alphabets other than ascii.
const (
	Unicode      Alphabet = "unicode"
	BoundaryLike Alphabet = "boundary-like"
)

// Arrivals is the distribution of the times between arrivals.
type Arrivals string

// The distributions other than poisson.
const (
	ConstantArrivals Arrivals = "constant"
	GammaArrivals    Arrivals = "gamma"
	WeibullArrivals  Arrivals = "weibull"
)

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
