package dropin

import "github.com/windtunnel/windtunnel/live/modelserver"

// Profile selects the defaults for options that the command line leaves out.
type Profile string

// The profiles, and their defaults.
const (
	ProfileDocument Profile = "document" // document 003: 256 sequences, 8,192 tokens
	ProfileVLLM     Profile = "vllm"     // vLLM: 1,024 sequences and 8,192 tokens on a large GPU, else 256 and 2,048
	ProfileSGLang   Profile = "sglang"   // SGLang: 2,048 sequences, 8,192 tokens, pages of one token, port 30000
	ProfileSim      Profile = "sim"      // llm-d-inference-sim: 5 sequences, 1,024 tokens of context, no latency
)

// Config is a parsed command line. Zero values mean the profile's defaults.
type Config struct {
	Profile Profile
	// ServerOptions has what the flags set in each server as it is. Where a field of Config has the same name, the flag
	// needs the whole command line, or a file, to become an option.
	modelserver.ServerOptions

	Model string // --model, or vllm serve's first argument
	Host  string
	Port  int // 0: any free port

	OtherGeneration      bool // the generation config has other keys, too
	MaxTotalTokens       int  // of the KV cache, replaces NumGPUBlocks
	Metrics              bool // SGLang's --enable-metrics
	MaxPrefillTokens     int  // of one step without chunked prefill
	GPUMemoryUtilization float64
	KVCacheBytes         int // of each rank, replaces GPUMemoryUtilization
	MemoryLimit          int // the container's limit in bytes; 0 is none
	SwapSpaceGiB         float64
	KVOffloadingGiB      float64 // host memory for KV blocks of all ranks together
	EnforceEager         bool
	Policy               string // fcfs or priority
	SchedulePolicy       string // SGLang's; only fcfs is simulated
	Batching             string // continuous, static, none or independent
	Seed                 *uint64

	PipelineParallel, DataParallel, DataParallelRank, Nodes int
	// ExpertParallel spreads the experts of all data-parallel ranks over them.
	ExpertParallel bool
	// DataParallelLocal is how many of the ranks run here; 0 is all.
	DataParallelLocal int
	// KVCacheMetrics turns the metrics of KV blocks on, for a sample of the blocks.
	KVCacheMetrics bool

	Accelerator, Quantization, KVCacheDType string
	VLLMVersion                             string // whose defaults apply
	ModelConfig                             string // a config.json that replaces the catalogue's model
	// TimeToFirstToken and InterTokenLatency are distributions. If they are given, the times do not come from an
	// accelerator.
	TimeToFirstToken, InterTokenLatency  Timing
	PrefillOverhead, PrefillTimePerToken Timing
	LatencyCalculator                    string  // constant or per-token; empty: depends on the given times
	TimeFactorUnderLoad                  float64 // with a full batch; 0 is 1
	// KVTransferLatency and KVTransferTimePerToken are the times to fetch a KV cache. If they are given, no link is
	// simulated.
	KVTransferLatency, KVTransferTimePerToken Timing
	OutputTokens                              string

	// LoRALoadTime is the time to load an adapter from disk to host memory, LoRAActivateTime the time from there to the
	// accelerator.
	LoRALoadTime, LoRAActivateTime Timing

	Tokenizer    string // a tokenizer.json, or its directory
	ChatTemplate string // the file of a chat template
	Mode         string // random or echo
	Dataset      string // a file of answers
	DatasetTable string // the table, if Dataset is a database
	ImageTime    Timing
	Sleeps       *bool // --enable-sleep-mode; nil if it is not given
	MaxBodyMiB   int
	StartupDelay Timing
	MaxWaiting   int

	// TracesEndpoint is where vLLM sends its spans (--otlp-traces-endpoint).
	TracesEndpoint string

	CertFile, KeyFile string
	SelfSigned        bool

	KVTransfer    *KVTransfer
	KVCompression bool // 16-bit caches travel as INT8
	KVEvents      *KVEvents

	// Environment.
	SideChannelHost string
	SideChannelPort int
	BootstrapPort   int // Mooncake's
	UCXTLS          string
	NCCLIBDisable   bool
	PodIP           string

	peers []string // --kv-peers
}

// Timing is a mean with a spread. It is written in the form of dist.Parse, or in llm-d-inference-sim's: milliseconds or
// a duration, and a standard deviation.
type Timing struct {
	Mean, StdDev string
}

// Set reports whether the timing was given.
func (t Timing) Set() bool { return t.Mean != "" }

// KVTransfer is vLLM's --kv-transfer-config.
type KVTransfer struct {
	Connector   string `json:"kv_connector"`
	Role        string `json:"kv_role"`
	LoadFailure string `json:"kv_load_failure_policy"`
	BufferSize  any    `json:"kv_buffer_size"`
	Port        int    `json:"kv_port"`
}

// KVEvents is vLLM's --kv-events-config, or the equivalent settings of document 003 (docs/documents.md) and
// llm-d-inference-sim.
type KVEvents struct {
	Enabled   bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint"`
	Buffer    int    `json:"buffer_steps"`
	Queue     int    `json:"max_queue_size"`
	Topic     string `json:"topic"`

	// Document selects document 003's JSON, Map vLLM's newer msgpack.
	Document, Map bool
	// IntervalMillis is how long an event waits for others in its batch; 0 is 100.
	IntervalMillis int
	// Connect makes the publisher connect to a subscriber instead of waiting for one.
	Connect bool
	// BatchEvents sends a batch at this many events; 0 is the default.
	BatchEvents int
}
