package modelserver

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/modelserver/kvtransfer"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Options says what a Fleet hosts.
type Options struct {
	Servers []ServerOptions
	// Seed is the run's seed; it keys tokens, lengths and times.
	Seed uint64
	// Origin is when the run began: flow events count from it. Zero is the
	// moment of New.
	Origin time.Time
	// Recorder takes the flow events of the hop "server"; nil records nothing.
	Recorder record.Recorder
	// Transfer says how KV caches travel between the servers.
	Transfer kvtransfer.NetworkOptions
	// Logger is told of starts, stops and what went wrong; nil is silent.
	Logger *slog.Logger
}

// ServerOptions describe one model server.
type ServerOptions struct {
	// Name is how the server is called in logs.
	Name string
	// Listen is where it listens, host:port; port 0 takes a free one. Empty is
	// 127.0.0.1:0.
	Listen string
	// ListenAlso is a second place where it answers, in the clear; empty is none.
	ListenAlso string
	// Advertise is the host that others are told: by KV events, in answers for
	// other servers, in headers and in the record. Empty is the one of Listen, or
	// where that is a wildcard the machine's first address.
	Advertise string
	// Models are the names it serves; the first is the one it answers with.
	// Empty is the one name "windtunnel".
	Models []string
	// Engine configures the engine. Seed and Index are filled in by the Fleet.
	Engine engine.Config
	// Prefill and TokenTime draw a request's own times where the engine's
	// batching is independent. Nil: the engine draws from its configuration.
	Prefill, TokenTime *dist.Dist
	// OutputTokens draws how many tokens the model says before it stops by
	// itself. Nil: it says as much as it is asked for, and DefaultOutput where
	// the request does not say.
	OutputTokens *dist.Dist
	// Adapters are the LoRA adapters known from the start.
	Adapters []Adapter
	// Version is what /version says; empty is DefaultVersion.
	Version string
	// Tokenizer turns text into tokens and back; nil is tokens.Packed.
	Tokenizer tokens.Tokenizer
	// TokenizerJSON is the file that Tokenizer was read from, for gRPC clients that
	// ask for it; nil where there is none.
	TokenizerJSON []byte
	// ChatTemplate is the model's own; nil writes chats as the model's name has it
	// (tokens.TemplateFor).
	ChatTemplate *chattemplate.Template
	// Content is what the server says: ContentRandom or ContentEcho.
	Content modelserver.Content
	// Dataset are answers to draw from, in the place of random words.
	Dataset []string
	// SideChannel is where other servers ask for KV caches, host:port (vLLM:
	// VLLM_NIXL_SIDE_CHANNEL_HOST and _PORT). Empty opens one on any port when
	// the first prefill for another server comes.
	SideChannel string
	// Meeting is where prefill and decode servers of one request find each other
	// before either has a cache, host:port: the bootstrap port of Mooncake and
	// SGLang, the peer port of the offloading connector. Empty is the connector's
	// usual port on the server's own address; where that is taken there is none,
	// and what would be fetched from this server is not. Other connectors need
	// none.
	Meeting string
	// KVRole says what the server does of a request that both have: the values of
	// vLLM's kv_role, kv_producer or kv_consumer. Empty tells by the address that
	// the request names.
	KVRole string
	// KVPeers are the servers from which KV caches may be fetched; a request that
	// names another one is refused.
	KVPeers modelserver.Peers
	// PeerTimeout is how long such a server may take for the first byte of its
	// answer; then the transfer has failed, and its blocks are free. Zero is
	// enginecore.DefaultPeerTimeout.
	PeerTimeout time.Duration
	// TensorParallel is told as tp_size beside KV blocks. Zero is 1.
	TensorParallel int
	// MemoryBytes is what weights and activations take of the accelerator's
	// memory, for the metrics.
	MemoryBytes int64
	// Steps is how much of the engine's steps the recorder is told.
	Steps lifecycle.StepDetail
	// OutOfMemory is why the server does not fit into its memory; it is then
	// killed and restarted again and again. Nil: it fits.
	OutOfMemory error
	// KVEvents makes the publisher of this server's KV events, once it is known
	// by which endpoint others know it; nil publishes none.
	KVEvents func(model, endpoint string) (KVPublisher, error)
	// Dimensions is how long an embedding is where the request does not say.
	// Zero is DefaultDimensions.
	Dimensions int
	// CacheHitThreshold is that of requests which do not bring their own
	// cache_hit_threshold, 0 to 1.
	CacheHitThreshold float64
	// EncoderOnly tells for each image, sound and video of a chat where its
	// encoding can be had (vLLM: --mm-encoder-only, ec_transfer_params).
	EncoderOnly bool
	// Omni lets chats be answered with a picture, where the header X-Send-Image
	// asks for one and in ImagePercent of the others; ImageTime is how long
	// painting takes.
	Omni         bool
	ImagePercent int
	ImageTime    *dist.Dist
	// Tools bounds the arguments that the model makes up for tool calls.
	Tools structured.Options
	// FullStatus answers requests that find the queue full: 429, or vLLM's 503
	// (--max-num-queued-reqs). Zero is 429.
	FullStatus int
	// SpeculativeTokens is how many tokens the model is said to draft in each
	// step. Speculation is not simulated: the metrics are there and say 0.
	SpeculativeTokens int
	// KVCacheMetricsSample is the share of the KV blocks that vllm:kv_block_*
	// tell of, 0 to 1 (vLLM: --kv-cache-metrics-sample); 0 tells of none.
	KVCacheMetricsSample float64
	// MaxBodyBytes limits a request's body. Zero is DefaultMaxBody.
	MaxBodyBytes int64
	// Body limits the time that a request's body takes; of a held-open one, its
	// first part.
	Body serve.BodyLimits
	// Changed, if not nil, is called when the engine has more or fewer requests in hand. It
	// must neither wait nor ask the server.
	Changed func()
	// Faults spoil requests.
	Faults FaultOptions
	// FakeMetrics replace metrics in /metrics; nil tells the truth.
	FakeMetrics *stats.FakeMetrics
	// APIKeys are accepted as bearer tokens wherever one is needed: everywhere
	// but for health and metrics. None lets everybody in, but for what changes
	// the server, which is then served to its own machine alone.
	APIKeys []string
	// TLS serves HTTPS; nil serves HTTP.
	TLS *tls.Config
	// StartupDelay is how long /health answers 503 after the start.
	StartupDelay time.Duration
	// PodName and PodNamespace are told in X-Inference-Pod and
	// X-Inference-Namespace; an empty PodName tells neither.
	PodName, PodNamespace string
	// PromptTokensDetails puts cached tokens into usage (vLLM: --enable-prompt-tokens-details).
	PromptTokensDetails bool
	APIOptions
}

// APIOptions switch parts of a server's HTTP interface. The zero value is vLLM's default.
type APIOptions struct {
	// TimingHeaders answers document 003's x-prefill-time-ms and their like.
	TimingHeaders bool
	// RequestIDHeaders answers X-Request-Id (vLLM: --enable-request-id-headers).
	RequestIDHeaders bool
	// IgnoreSleep has POST /sleep do nothing (llm-d-inference-sim without --enable-sleep-mode).
	IgnoreSleep bool
	// LogHTTP logs each HTTP request with its answer's status and length.
	LogHTTP bool
	// SGLang has the server be SGLang's: its metrics, /generate, /get_model_info and the like, beside OpenAI's API.
	SGLang bool
	// StoreResponses keeps the responses of /v1/responses, for previous_response_id, GET and DELETE (vLLM:
	// VLLM_ENABLE_RESPONSES_API_STORE).
	StoreResponses bool
}

// FaultOptions say which requests a server spoils. The zero value spoils those alone whose FaultHeader asks for it.
type FaultOptions struct {
	// Of returns the fault of a request, by its id; nil spoils none.
	Of func(request string) lifecycle.Fault
	// IgnoreHeader leaves FaultHeader without effect.
	IgnoreHeader bool
	// Inject spoils a part of the requests from the start.
	Inject Injection
	// BeforeCut, if not nil, is called before a fault cuts an answer whose bytes so far are sent. It may wait, so
	// that a test decides how far the answer has come by then.
	BeforeCut func()
}

const (
	// DefaultMaxBody bounds a request's body, in bytes.
	DefaultMaxBody = 64 << 20
	// DefaultVersion is the vLLM release whose shapes are spoken.
	DefaultVersion = "0.11.2"
)
