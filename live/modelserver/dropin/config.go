package dropin

import (
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// Profile is whose defaults count where the command line does not say.
type Profile string

// The profiles.
const (
	ProfileDocument Profile = "document" // document 003: 256 sequences, 8,192 tokens
	ProfileVLLM     Profile = "vllm"     // vLLM: 1,024 sequences and 8,192 tokens on a large GPU, else 256 and 2,048
	ProfileSGLang   Profile = "sglang"   // SGLang: 2,048 sequences, 8,192 tokens, pages of one token, port 30000
	ProfileSim      Profile = "sim"      // llm-d-inference-sim: 5 sequences, 1,024 tokens of context, no latency
)

// Config is what a command line asks for. Zero values are the profile's
// defaults.
type Config struct {
	Profile Profile

	Model  string   // --model, or vllm serve's first argument
	Served []string // --served-model-name
	Host   string
	Port   int // 0 is any free one

	Advertise string // the host that others are told
	// BodyIdle and BodyTotal limit a request's body; 0 is the default, below 0 no
	// limit.
	BodyIdle, BodyTotal time.Duration
	// KVPeers are whom KV caches may be fetched from, PeerTimeout how long they may
	// take to answer.
	KVPeers     []string
	PeerTimeout time.Duration

	MaxModelLen               int
	MaxNewTokens              int  // of an answer; 0 is no limit
	OtherGeneration           bool // the generation config says other things, too
	MaxNumSeqs                int
	MaxNumBatchedTokens       int
	BlockSize                 int
	NumGPUBlocks              int
	MaxTotalTokens            int  // of the KV cache, in place of NumGPUBlocks
	Metrics                   bool // SGLang's --enable-metrics
	MaxPrefillTokens          int  // of one step where prompts are not cut
	LongPrefillTokenThreshold int
	MaxNumPartialPrefills     int
	MaxLongPartialPrefills    int
	GPUMemoryUtilization      float64
	SwapSpaceGiB              float64
	KVOffloadingGiB           float64 // host memory for KV blocks of all ranks together
	NoPrefixCaching           bool
	NoChunkedPrefill          bool
	EnforceEager              bool
	Policy                    string // fcfs or priority
	SchedulePolicy            string // SGLang's; only fcfs is simulated
	Batching                  string // continuous, static, none or independent
	Seed                      *uint64

	TensorParallel, PipelineParallel, DataParallel, DataParallelRank, Nodes int
	// DataParallelLocal is how many of the ranks are here; 0: all.
	DataParallelLocal int
	SpeculativeTokens int
	// KVCacheMetrics tells of KV blocks, and of which share.
	KVCacheMetrics       bool
	KVCacheMetricsSample float64

	Accelerator, Quantization, KVCacheDType string
	// TimeToFirstToken and InterTokenLatency are distributions. With them given
	// the times do not come from an accelerator.
	TimeToFirstToken, InterTokenLatency  Timing
	PrefillOverhead, PrefillTimePerToken Timing
	LatencyCalculator                    string  // constant or per-token; empty: by what is given
	TimeFactorUnderLoad                  float64 // of a full batch; 0 is 1
	// KVTransferLatency and KVTransferTimePerToken are how long a fetched KV
	// cache takes; where they are given no link is simulated.
	KVTransferLatency, KVTransferTimePerToken Timing
	OutputTokens                              string

	MaxLoRAs, MaxCPULoRAs int
	// LoRALoadTime and LoRAActivateTime are an adapter's ways from disk to host
	// memory and on into the accelerator.
	LoRALoadTime, LoRAActivateTime Timing
	Adapters                       []modelserver.Adapter

	Tokenizer           string // a tokenizer.json, or the directory it is in
	ChatTemplate        string // the file of a chat template
	Mode                string // random or echo
	Dataset             string // a file of answers
	DatasetTable        string // its table, where it is a database
	Dimensions          int    // of embeddings
	CacheHitThreshold   float64
	EncoderOnly, Omni   bool
	ImagePercent        int
	ImageTime           Timing
	Tools               structured.Options
	FullStatus          int // of requests that find the queue full; 0 is 429
	APIKeys             []string
	RequestIDHeaders    bool
	TimingHeaders       bool // document 003's
	PromptTokensDetails bool
	StoreResponses      bool
	Sleeps              *bool // --enable-sleep-mode; nil where it is not given
	LogHTTP             bool
	MaxBodyMiB          int
	StartupDelay        Timing
	MaxWaiting          int
	Inject              modelserver.Injection
	FakeMetrics         *stats.FakeMetrics

	// TracesEndpoint is where vLLM sends its spans (--otlp-traces-endpoint).
	TracesEndpoint string

	CertFile, KeyFile string
	SelfSigned        bool

	KVTransfer    *KVTransfer
	KVCompression bool // 16-bit caches travel as INT8
	KVEvents      *KVEvents

	// Environment.
	SideChannelHost       string
	SideChannelPort       int
	BootstrapPort         int // Mooncake's
	UCXTLS                string
	NCCLIBDisable         bool
	PodName, PodNamespace string
	PodIP                 string
}

// Timing is a mean with a spread, in the form of dist.Parse, or as
// llm-d-inference-sim writes it: milliseconds or a duration, and a standard
// deviation.
type Timing struct {
	Mean, StdDev string
}

// Set says whether the timing was given.
func (t Timing) Set() bool { return t.Mean != "" }

// KVTransfer is vLLM's --kv-transfer-config.
type KVTransfer struct {
	Connector   string `json:"kv_connector"`
	Role        string `json:"kv_role"`
	LoadFailure string `json:"kv_load_failure_policy"`
	BufferSize  any    `json:"kv_buffer_size"`
	Port        int    `json:"kv_port"`
}

// KVEvents is vLLM's --kv-events-config, or what document 003 (docs/documents.md) and
// llm-d-inference-sim say in its place.
type KVEvents struct {
	Enabled   bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint"`
	Buffer    int    `json:"buffer_steps"`
	Queue     int    `json:"max_queue_size"`
	Topic     string `json:"topic"`

	// Document asks for document 003's JSON, Map for vLLM's newer msgpack.
	Document, Map bool
	// IntervalMillis is how long events wait for others; 0 is 100.
	IntervalMillis int
	// Connect goes to a subscriber instead of waiting for one.
	Connect bool
	// BatchEvents sends a batch at this many events; 0 is the default.
	BatchEvents int
}
