package modelserver

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Options configure a Fleet.
type Options struct {
	Servers []ServerOptions
	// Seed is the run's seed. Tokens, lengths and times are drawn with it.
	Seed uint64
	// Origin is the start of the run, from which flow events count their times. Zero means the moment of New.
	Origin time.Time
	// Recorder receives the flow events of the hop "server"; nil records nothing.
	Recorder record.Recorder
	// Transfer describes how KV caches travel between the servers. The Fleet sets Seed and Engines.
	Transfer enginecore.NetworkConfig
	// Logger logs starts, stops and errors; nil is silent.
	Logger *slog.Logger
}

// ServerOptions configure one model server.
type ServerOptions struct {
	// Name identifies the server in logs.
	Name string
	ServingOptions
	KVOptions
	TextOptions
	MediaOptions
	// Models are the names under which the server serves its model. Answers have the first. Empty is the one name
	// "windtunnel".
	Models []string
	// Engine configures the engine. The Fleet sets Seed and Index.
	Engine engine.Config
	// Prefill and TokenTime draw a request's own times if the engine's batching is independent. Nil means that the
	// engine draws them from its configuration.
	Prefill, TokenTime *dist.Dist
	// OutputTokens draws how many tokens the model generates before it stops by itself. Nil means as many as the
	// request allows, and DefaultOutput if the request sets no limit.
	OutputTokens *dist.Dist
	// Adapters are the LoRA adapters that the server knows from its start.
	Adapters []Adapter
	// Version is the version in the answer of /version; empty is DefaultVersion.
	Version string
	// TensorParallel is the tp_size in messages about KV blocks. Zero is 1.
	TensorParallel int
	// MemoryBytes is the accelerator memory that weights and activations take, for the metrics.
	MemoryBytes int64
	// Steps selects how much detail of the engine's steps the recorder gets.
	Steps lifecycle.StepDetail
	// OutOfMemory is the reason why the server does not fit into its memory. Such a server is killed and restarted
	// again and again. Nil means that it fits.
	OutOfMemory error
	// FullStatus is the status for requests that find the queue full: 429, or vLLM's 503 (--max-num-queued-reqs). Zero
	// is 429.
	FullStatus int
	// SpeculativeTokens is the number of draft tokens for each step. Speculation is not simulated: its metrics exist
	// and stay 0.
	SpeculativeTokens int
	// KVCacheMetricsSample is the share of KV blocks that vllm:kv_block_* sample, 0 to 1 (vLLM:
	// --kv-cache-metrics-sample); 0 samples none.
	KVCacheMetricsSample float64
	// Changed, if not nil, is called when the engine's number of requests changes. It must neither wait nor call the
	// server.
	Changed func()
	// Faults spoil requests.
	Faults FaultOptions
	// FakeMetrics replace metrics in /metrics; nil reports the real values.
	FakeMetrics *stats.FakeMetrics
	// PodName and PodNamespace are the values of X-Inference-Pod and X-Inference-Namespace. With an empty PodName, the
	// server sends neither header.
	PodName, PodNamespace string
	// PromptTokensDetails adds cached tokens to usage (vLLM: --enable-prompt-tokens-details).
	PromptTokensDetails bool
	APIOptions
}

// ServingOptions set the addresses, the limits and the clients of a server.
type ServingOptions struct {
	// Listen is the address to listen on, host:port; port 0 takes a free one. Empty is 127.0.0.1:0.
	Listen string
	// ListenAlso is a second address to listen on, without TLS; empty is none.
	ListenAlso string
	// Line holds the connections to Listen and ListenAlso; nil: no incident breaks them.
	Line *serve.Line
	// Advertise is the host that the server gives to others: in KV events, in answers for other servers, in headers and
	// in the record. Empty is Listen's host, or the machine's first address if that host is a wildcard.
	Advertise string
	// MaxBodyBytes limits a request's body. Zero is DefaultMaxBody.
	MaxBodyBytes int64
	// Body limits the time for a request's body; for a held-open request, the time for its first part.
	Body serve.BodyLimits
	// APIKeys are the accepted bearer tokens. Every path needs one, except those for health and metrics. Without keys,
	// every client has access, but the server serves paths that change it to its own machine alone.
	APIKeys []string
	// TLS serves HTTPS; nil serves HTTP.
	TLS *tls.Config
	// StartupDelay is how long /health answers 503 after the start.
	StartupDelay time.Duration
}

// KVOptions set how a server fetches and publishes KV caches.
type KVOptions struct {
	// SideChannel is the address where other servers ask for KV caches, host:port (vLLM: VLLM_NIXL_SIDE_CHANNEL_HOST
	// and _PORT). Empty opens one on any port at the first prefill for another server.
	SideChannel string
	// Meeting is the address where the prefill and decode servers of a request find each other before either has a
	// cache, host:port: the bootstrap port of Mooncake and SGLang, the peer port of the offloading connector. Empty is
	// the connector's usual port on the server's own address; if that port is taken, the server has no meeting port,
	// and fetches from this server fail. Other connectors need none.
	Meeting string
	// KVRole is the server's part in a request that both a prefill and a decode server get: the values of vLLM's
	// kv_role, kv_producer or kv_consumer. Empty decides by the address that the request names.
	KVRole string
	// KVPeers are the servers from which this server may fetch KV caches. It refuses a request that names another one.
	KVPeers modelserver.Peers
	// PeerTimeout limits the time until the first byte of a peer's answer. After it, the transfer fails and its blocks
	// are free. Zero is enginecore.DefaultPeerTimeout.
	PeerTimeout time.Duration
	// KVEvents creates the publisher of this server's KV events, once the endpoint by which others know the server is
	// set; nil publishes none.
	KVEvents func(model, endpoint string) (KVPublisher, error)
	// CacheHitThreshold applies to requests without a cache_hit_threshold of their own, 0 to 1.
	CacheHitThreshold float64
}

// TextOptions set how a server reads and generates text.
type TextOptions struct {
	// Tokenizer converts text to tokens and back; nil is tokens.Packed.
	Tokenizer tokens.Tokenizer
	// TokenizerJSON is the file that Tokenizer was read from, for gRPC clients that ask for it; nil without a file.
	TokenizerJSON []byte
	// ChatTemplate is the model's own template; nil formats chats by the model's name (tokens.TemplateFor).
	ChatTemplate *chattemplate.Template
	// Content is the kind of the generated text: ContentRandom or ContentEcho.
	Content modelserver.Content
	// Dataset holds answers to draw from, instead of random words.
	Dataset []string
	// Tools limits the arguments that the model generates for tool calls.
	Tools structured.Options
}

// MediaOptions set how a server reads and generates pictures and embeddings.
type MediaOptions struct {
	// Dimensions is the length of an embedding if the request does not set one. Zero is DefaultDimensions.
	Dimensions int
	// EncoderOnly makes the server answer, for each image, sound and video of a chat, where its encoding is available
	// (vLLM: --mm-encoder-only, ec_transfer_params).
	EncoderOnly bool
	// Omni lets the server answer chats with a picture: if the header X-Send-Image asks for one, and for ImagePercent
	// of the other chats. ImageTime is the time to generate a picture.
	Omni         bool
	ImagePercent int
	ImageTime    *dist.Dist
}

// APIOptions switch parts of a server's HTTP interface. The zero value is vLLM's default.
type APIOptions struct {
	// TimingHeaders adds document 003's x-prefill-time-ms and its other timing headers to answers.
	TimingHeaders bool
	// RequestIDHeaders adds X-Request-Id to answers (vLLM: --enable-request-id-headers).
	RequestIDHeaders bool
	// IgnoreSleep makes POST /sleep do nothing (llm-d-inference-sim without --enable-sleep-mode).
	IgnoreSleep bool
	// LogHTTP logs each HTTP request with its answer's status and length.
	LogHTTP bool
	// SGLang makes the server an SGLang server: it has SGLang's metrics, /generate, /get_model_info and the like,
	// beside OpenAI's API.
	SGLang bool
	// StoreResponses keeps the responses of /v1/responses, for previous_response_id, GET and DELETE (vLLM:
	// VLLM_ENABLE_RESPONSES_API_STORE).
	StoreResponses bool
}

// FaultOptions select the requests that a server spoils. The zero value spoils only requests whose FaultHeader asks for
// it.
type FaultOptions struct {
	// Of returns a request's fault by the request's id; nil spoils none.
	Of func(request string) lifecycle.Fault
	// IgnoreHeader makes the server ignore FaultHeader.
	IgnoreHeader bool
	// Inject spoils a share of the requests from the start.
	Inject Injection
	// BeforeCut, if not nil, is called before a fault cuts an answer. The bytes before the cut are sent by then.
	// BeforeCut may wait, so a test can decide how far the answer gets.
	BeforeCut func()
}

const (
	// DefaultMaxBody bounds a request's body, in bytes.
	DefaultMaxBody = 64 << 20
	// DefaultVersion is the vLLM release whose API shapes the server has.
	DefaultVersion = "0.11.2"
)
