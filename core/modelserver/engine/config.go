package engine

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Batching is how requests share the accelerator.
type Batching uint8

const (
	// BatchingContinuous composes every step from the current requests, as vLLM does.
	BatchingContinuous Batching = iota
	// BatchingStatic takes a batch, runs it until its longest request ends, and only then takes the next (document
	// 003's comparison).
	BatchingStatic
	// BatchingNone runs one request at a time.
	BatchingNone
	// BatchingIndependent gives every request its own timeline: it sleeps for its prefill time, then makes one token
	// per token time. Any number of requests run at once, with no interference and no KV accounting. It is the mock
	// server of document 000.
	BatchingIndependent
)

var batchingNames = []string{"continuous", "static", "none", "independent"}

func (b Batching) String() string { return name(batchingNames, int(b)) }

// ParseBatching parses continuous, static, none or independent.
func ParseBatching(s string) (Batching, error) {
	i, err := parse("batching", batchingNames, s)
	return Batching(i), err
}

// Policy is the order of the waiting queue.
type Policy uint8

const (
	// PolicyFCFS serves requests in order of arrival.
	PolicyFCFS Policy = iota
	// PolicyPriority serves the lowest Submit.Priority first, then by arrival, and preempts the highest first.
	PolicyPriority
)

var policyNames = []string{"fcfs", "priority"}

func (p Policy) String() string { return name(policyNames, int(p)) }

// ParsePolicy parses fcfs or priority.
func ParsePolicy(s string) (Policy, error) {
	i, err := parse("scheduling policy", policyNames, s)
	return Policy(i), err
}

// KVLoadFailure decides what the engine does with a request whose KV could not be fetched (vLLM:
// kv_load_failure_policy).
type KVLoadFailure uint8

const (
	// KVLoadFail finishes the request with ReasonKVFailed, vLLM's default.
	KVLoadFail KVLoadFailure = iota
	// KVLoadRecompute computes the request's prompt in this engine instead.
	KVLoadRecompute
)

var kvLoadNames = []string{"fail", "recompute"}

func (p KVLoadFailure) String() string { return name(kvLoadNames, int(p)) }

// ParseKVLoadFailure parses fail or recompute.
func ParseKVLoadFailure(s string) (KVLoadFailure, error) {
	i, err := parse("kv_load_failure_policy", kvLoadNames, s)
	return KVLoadFailure(i), err
}

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

func parse(what string, names []string, s string) (int, error) {
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s %q is unknown: use one of %v", what, s, names)
}

// Span is a range of times to draw from, uniformly, both ends included. If High is at or below Low, every draw is Low.
type Span struct{ Low, High machine.Time }

// Config is an engine's configuration. A zero field takes the default in its comment. New returns an error for other
// invalid values.
type Config struct {
	// Seed is the run's seed; Index is the engine's number in the run. Together with the request's id they key every
	// draw.
	Seed  uint64
	Index uint64

	Batching Batching

	// Timer returns the duration of steps. Every Batching except BatchingIndependent needs it.
	Timer StepTimer

	// Prefill and TokenTime are the times of a request under BatchingIndependent that has none of its own. Each request
	// draws once.
	Prefill   Span // default 100 ms to 30 s, document 000
	TokenTime Span // default 20 ms

	// The scheduler, under vLLM's names. The defaults are document 003's.
	MaxNumSeqs                int  // 256
	MaxNumBatchedTokens       int  // 8192
	MaxModelLen               int  // 8192 tokens, or the KV cache's capacity if that is less
	MaxNewTokens              int  // 0: no limit. The most tokens of an answer, whatever its request asks for
	DisableChunkedPrefill     bool // each prompt is then computed in one step
	LongPrefillTokenThreshold int  // 0: off. A longer prompt takes at most this many tokens per step
	MaxNumPartialPrefills     int  // 0: no limit. Requests with a half-computed prompt at one time
	MaxLongPartialPrefills    int  // 0: no limit. Half-computed prompts longer than LongPrefillTokenThreshold
	Policy                    Policy

	// The KV cache.
	BlockSize            int // 16 tokens
	NumGPUBlocks         int // 8192
	DisablePrefixCaching bool
	// NumCPUBlocks is the number of evicted blocks that host memory keeps (0: none). CPUBandwidth is the rate at which
	// they return, which lengthens the step that needs them (25 GB/s, one direction of PCIe 4.0 x16 in practice).
	NumCPUBlocks int
	CPUBandwidth int64 // bytes per second

	KVEvents bool // report BlockStored, BlockRemoved, AllBlocksCleared

	// KV transfers between engines.
	KVBytesPerToken int64        // 131072, an 8B model in 16 bits with GQA
	KVHoldTimeout   machine.Time // 480 s, vLLM's VLLM_NIXL_ABORT_REQUEST_TIMEOUT
	KVLoadFailure   KVLoadFailure

	LoRAs

	// MaxInFlight limits the requests in the engine, which rejects more with CodeFull. 1,048,576 by default.
	MaxInFlight int

	// Gaps receives the times between tokens; nil receives none.
	Gaps Gaps
	// ReportSteps makes the engine add a Stepped effect per run of steps.
	ReportSteps bool
	// SingleSteps turns macro-steps off. With runs expanded, the effects are the same; only the cost differs.
	SingleSteps bool
}

// LoRAs is the part of a Config about adapters.
type LoRAs struct {
	// Adapters are loaded from the beginning. MaxLoRAs limits the number of different adapters in one step (1); further
	// requests wait.
	Adapters []AdapterID
	MaxLoRAs int
	// MaxCPULoRAs is the number of adapters in host memory (MaxLoRAs), including those in the accelerator. A step that
	// needs one from disk takes LoRALoadTime longer, and a step that needs one outside the accelerator LoRAActivateTime
	// (both 0; see DefaultLoRALoadTime).
	MaxCPULoRAs      int
	LoRALoadTime     machine.Time
	LoRAActivateTime machine.Time
}

const (
	maxTokens = 1 << 24 // limit of every length in tokens
	maxBlocks = 1 << 28
)

func (c *Config) setDefaults() {
	def(&c.MaxNumSeqs, 256)
	def(&c.MaxNumBatchedTokens, 8192)
	def(&c.BlockSize, 16)
	def(&c.NumGPUBlocks, 8192)
	def(&c.MaxLoRAs, 1)
	def(&c.MaxCPULoRAs, c.MaxLoRAs)
	if c.DisableChunkedPrefill {
		c.LongPrefillTokenThreshold = 0
	}
	def(&c.MaxInFlight, 1<<20)
	if c.MaxModelLen == 0 {
		c.MaxModelLen = 8192
		if c.Batching != BatchingIndependent && c.NumGPUBlocks > 0 && c.NumGPUBlocks < maxBlocks {
			c.MaxModelLen = min(c.MaxModelLen, c.NumGPUBlocks*c.BlockSize)
		}
	}
	c.Prefill = cmp.Or(c.Prefill, Span{100 * machine.Millisecond, 30 * machine.Second})
	c.TokenTime = cmp.Or(c.TokenTime, Span{20 * machine.Millisecond, 20 * machine.Millisecond})
	c.KVBytesPerToken = cmp.Or(c.KVBytesPerToken, 131072)
	c.CPUBandwidth = cmp.Or(c.CPUBandwidth, 25e9)
	c.KVHoldTimeout = cmp.Or(c.KVHoldTimeout, 480*machine.Second)
}

// Resolved returns the configuration with the defaults that New fills in.
func (c Config) Resolved() Config {
	c.setDefaults()
	return c
}

// Check returns the errors in a configuration, as New does, without making an engine.
func (c Config) Check() error {
	c.setDefaults()
	return c.validate()
}

// ReadsAs reports whether engines of both configurations interpret a request in the same way.
func (c Config) ReadsAs(o Config) bool {
	return c.MaxModelLen == o.MaxModelLen && c.BlockSize == o.BlockSize && c.Batching == o.Batching &&
		c.DisablePrefixCaching == o.DisablePrefixCaching
}

// BlockBytes returns the size of one KV block of an engine with this configuration.
func (c Config) BlockBytes() int64 {
	c.setDefaults()
	return c.KVBytesPerToken * int64(c.BlockSize)
}

func def(v *int, d int) { *v = cmp.Or(*v, d) }

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("engine: "+format, args...))
		}
	}
	between := func(field string, v, low, high int) {
		check(v >= low && v <= high, "%s is %d; it must be between %d and %d", field, v, low, high)
	}
	between("MaxNumSeqs", c.MaxNumSeqs, 1, 1<<20)
	between("MaxNumBatchedTokens", c.MaxNumBatchedTokens, 1, maxTokens)
	between("MaxModelLen", c.MaxModelLen, 2, maxTokens)
	between("BlockSize", c.BlockSize, 1, 4096)
	between("NumGPUBlocks", c.NumGPUBlocks, 1, maxBlocks)
	between("NumCPUBlocks", c.NumCPUBlocks, 0, maxBlocks)
	check(c.CPUBandwidth >= 1e6, "CPUBandwidth is %d bytes per second; it must be at least 1000000", c.CPUBandwidth)
	between("LongPrefillTokenThreshold", c.LongPrefillTokenThreshold, 0, maxTokens)
	between("MaxNumPartialPrefills", c.MaxNumPartialPrefills, 0, 1<<20)
	between("MaxLongPartialPrefills", c.MaxLongPartialPrefills, 0, 1<<20)
	between("MaxLoRAs", c.MaxLoRAs, 1, 1<<16)
	between("MaxCPULoRAs", c.MaxCPULoRAs, c.MaxLoRAs, 1<<16)
	check(c.LoRALoadTime >= 0 && c.LoRALoadTime <= 3600*machine.Second,
		"LoRALoadTime is %v; it must be between 0 and an hour", c.LoRALoadTime)
	check(c.LoRAActivateTime >= 0 && c.LoRAActivateTime <= 3600*machine.Second,
		"LoRAActivateTime is %v; it must be between 0 and an hour", c.LoRAActivateTime)
	between("MaxInFlight", c.MaxInFlight, 1, 1<<30)
	check(c.KVBytesPerToken > 0 && c.KVBytesPerToken <= 1<<32, "KVBytesPerToken is %d; it must be between 1 and 2^32",
		c.KVBytesPerToken)
	check(c.KVHoldTimeout > 0, "KVHoldTimeout is %v; it must be above 0", c.KVHoldTimeout)
	check(c.Batching <= BatchingIndependent, "Batching %v", c.Batching)
	check(c.Policy <= PolicyPriority, "Policy %v", c.Policy)
	check(c.KVLoadFailure <= KVLoadRecompute, "KVLoadFailure %v", c.KVLoadFailure)
	check(c.Prefill.Low >= 0 && c.TokenTime.Low >= 0, "Prefill and TokenTime must not be negative")
	for _, a := range c.Adapters {
		check(a != 0, "Adapters contains 0, which is the base model; number adapters from 1")
	}
	if c.Batching != BatchingIndependent {
		check(c.Timer != nil, "Timer is missing; %v batching needs one from core/modelserver/latency", c.Batching)
		check(c.MaxNumBatchedTokens >= c.MaxNumSeqs,
			"MaxNumBatchedTokens (%d) is below MaxNumSeqs (%d): a full batch would not get one token each; raise the "+
				"former or lower the latter",
			c.MaxNumBatchedTokens, c.MaxNumSeqs)
		check(c.MaxModelLen <= c.NumGPUBlocks*c.BlockSize,
			"MaxModelLen is %d tokens but the KV cache holds %d (%d blocks of %d): lower it, or give more blocks",
			c.MaxModelLen, c.NumGPUBlocks*c.BlockSize, c.NumGPUBlocks, c.BlockSize)
		check(!c.DisableChunkedPrefill || c.MaxNumBatchedTokens >= c.MaxModelLen,
			"without chunked prefill MaxNumBatchedTokens (%d) must be at least MaxModelLen (%d), or a long prompt "+
				"could never run",
			c.MaxNumBatchedTokens, c.MaxModelLen)
	}
	return errors.Join(errs...)
}
