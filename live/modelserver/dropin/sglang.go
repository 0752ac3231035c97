package dropin

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// SGLang's defaults (python/sglang/srt/server_args.py).
const (
	sglangPort    = 30000
	sglangRunning = 2048
	sglangChunk   = 8192 // on accelerators with at least 60 GB
	sglangPrefill = 16384
	sglangMemory  = 0.88
	sglangLoRAs   = 8
	// sglangTokens is the size of the KV cache if the accelerator is not simulated.
	sglangTokens = 131_072
)

// sglangBooleans are flags of SGLang that take no value and have no effect here.
var sglangBooleans = strings.Fields(`disable-cuda-graph enable-torch-compile enable-dp-attention
	enable-hierarchical-cache enable-mixed-chunk disable-overlap-schedule enable-p2p-check skip-server-warmup
	log-requests enable-memory-saver enable-two-batch-overlap disable-chunked-prefix-cache enable-multimodal
	is-embedding disable-fast-image-processor enable-nccl-nvls enable-symm-mem enable-lora-overlap-loading
	enable-metrics-for-all-schedulers enable-request-time-stats-logging enable-trace disable-shared-experts-fusion
	allow-auto-truncate enable-custom-logit-processor enable-deterministic-inference`)

// sglangFlags are the flags with an effect that only SGLang has.
var sglangFlags = map[string]flag{
	"model-path": {set: func(c *Config, v string) error {
		c.Model, c.Profile = v, cmp.Or(c.Profile, ProfileSGLang)
		return nil
	}},
	"tokenizer-path": text(func(c *Config) *string { return &c.Tokenizer }),
	"context-length": number(func(c *Config) *int { return &c.Engine.MaxModelLen }, 1, 1<<24),
	"tp":             number(func(c *Config) *int { return &c.TensorParallel }, 1, 4096),
	"tp-size":        number(func(c *Config) *int { return &c.TensorParallel }, 1, 4096),
	"pp-size":        number(func(c *Config) *int { return &c.PipelineParallel }, 1, 4096),
	"dp":             number(func(c *Config) *int { return &c.DataParallel }, 1, 4096),
	"dp-size":        number(func(c *Config) *int { return &c.DataParallel }, 1, 4096),

	"mem-fraction-static":  real(func(c *Config) *float64 { return &c.GPUMemoryUtilization }, 0, 1),
	"max-running-requests": number(func(c *Config) *int { return &c.Engine.MaxNumSeqs }, 1, 1<<20),
	"max-queued-requests":  maxQueued,
	"max-total-tokens":     number(func(c *Config) *int { return &c.MaxTotalTokens }, 1, 1<<30),
	"max-prefill-tokens":   number(func(c *Config) *int { return &c.MaxPrefillTokens }, 1, 1<<24),
	"chunked-prefill-size": {set: setChunk},
	"page-size":            number(func(c *Config) *int { return &c.Engine.BlockSize }, 1, 4096),
	"enable-metrics":       on(func(c *Config) *bool { return &c.Metrics }),
	"disable-radix-cache":  on(func(c *Config) *bool { return &c.Engine.DisablePrefixCaching }),
	"random-seed":          seed,
	"enable-cache-report":  on(func(c *Config) *bool { return &c.PromptTokensDetails }),
	"lora-paths":           {many: true, set: addAdapter},
	"max-loras-per-batch":  number(func(c *Config) *int { return &c.Engine.MaxLoRAs }, 1, 1<<16),
	"max-loaded-loras":     number(func(c *Config) *int { return &c.Engine.MaxCPULoRAs }, 1, 1<<16),

	"schedule-policy":               text(func(c *Config) *string { return &c.SchedulePolicy }),
	"enable-priority-scheduling":    {boolean: true, set: setPriority},
	"disaggregation-mode":           {set: setDisaggregation},
	"disaggregation-bootstrap-port": number(func(c *Config) *int { return &c.sglang().Port }, 1, 65535),
}

// sglangCommand reports whether the words before the first flag start SGLang's server.
func sglangCommand(args []string) bool {
	if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--") && a != "--" }); i >= 0 {
		args = args[:i]
	}
	return slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "sglang.") || path.Base(a) == "sglang"
	})
}

// setChunk parses a number of tokens, or -1 for prompts in one chunk.
func setChunk(c *Config, v string) error {
	if v == "-1" {
		c.Engine.DisableChunkedPrefill = true
		return nil
	}
	return number(func(c *Config) *int { return &c.Engine.MaxNumBatchedTokens }, 1, 1<<24).set(c, v)
}

func setPriority(c *Config, v string) error {
	if v == "true" {
		c.Policy = "priority"
	}
	return nil
}

// setDisaggregation parses the server's part in KV transfers.
func setDisaggregation(c *Config, v string) error {
	switch v {
	case "null":
		c.KVTransfer = nil
	case "prefill":
		c.sglang().Role = connector.RoleProducer
	case "decode":
		c.sglang().Role = connector.RoleConsumer
	default:
		return wrong(v, "null, prefill or decode")
	}
	return nil
}

// sglang returns how KV caches travel between SGLang's servers.
func (c *Config) sglang() *KVTransfer {
	c.KVTransfer = cmp.Or(c.KVTransfer, &KVTransfer{Connector: connector.SGLang.Profile.VLLM})
	return c.KVTransfer
}

// fillSGLang sets SGLang's defaults where the command line sets nothing.
func (r *Result) fillSGLang(def func(v *int, d int)) {
	def(&r.Engine.MaxNumSeqs, sglangRunning)
	def(&r.Engine.BlockSize, 1)
	def(&r.Engine.MaxLoRAs, sglangLoRAs)
	if r.Engine.DisableChunkedPrefill {
		def(&r.Engine.MaxNumBatchedTokens, max(r.MaxPrefillTokens, sglangPrefill))
		r.budgetGiven = true
	}
	def(&r.Engine.MaxNumBatchedTokens, sglangChunk)
	def(&r.Engine.NumGPUBlocks, r.MaxTotalTokens/r.Engine.BlockSize)
	r.GPUMemoryUtilization = cmp.Or(r.GPUMemoryUtilization, sglangMemory)
	if !r.Metrics {
		r.Notes = append(r.Notes, "--enable-metrics: not given; SGLang has no /metrics without it, and this server has")
	}
	if p := r.SchedulePolicy; p != "" && p != "fcfs" {
		r.Notes = append(r.Notes,
			"--schedule-policy: "+p+" is not simulated; requests run in the order of their arrival")
	}
	if r.KVEvents != nil && r.KVEvents.Publisher == "zmq" {
		r.KVEvents.Enabled = true // SGLang has no other switch
	}
}
