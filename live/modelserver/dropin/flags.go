package dropin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// flag is a flag with an effect.
type flag struct {
	boolean bool
	many    bool // takes every value up to the next flag
	sim     bool // a flag of llm-d-inference-sim only
	sglang  bool // a flag of SGLang only
	set     func(c *Config, v string) error
}

// wrong returns an error about a flag's value that says what was expected.
func wrong(value, expected string, args ...any) error {
	return strictyaml.Problem{Found: fmt.Sprintf("found %q", value), Expected: fmt.Sprintf(expected, args...)}
}

func text(to func(*Config) *string) flag {
	return flag{set: func(c *Config, v string) error { *to(c) = v; return nil }}
}

// parsed returns a flag whose value parse reads, if it fits, and set stores. Inlined into the table of flags, it would
// make the binary 28 kB larger.
//
//go:noinline
func parsed[T any](parse func(string) (T, error), fits func(T) bool, set func(*Config, T), expected string,
	args ...any) flag {
	return flag{set: func(c *Config, v string) error {
		x, err := parse(v)
		if err != nil || !fits(x) {
			return wrong(v, expected, args...)
		}
		set(c, x)
		return nil
	}}
}

// within reports whether a number is from low to high.
func within[N int | float64](low, high N) func(N) bool {
	return func(n N) bool { return n >= low && n <= high }
}

func number(to func(*Config) *int, low, high int) flag {
	return parsed(parseNumber, within(low, high), func(c *Config, n int) { *to(c) = n },
		"a whole number from %d to %d", low, high)
}

// parseNumber parses a count as vLLM does: 8192, 8k (thousand) or 8K (1,024). It accepts 1.001001e+08, too.
func parseNumber(v string) (int, error) {
	unit := 1
	for suffix, u := range map[string]int{"k": 1000, "K": 1 << 10, "m": 1e6, "M": 1 << 20, "g": 1e9, "G": 1 << 30} {
		if rest, ok := strings.CutSuffix(v, suffix); ok {
			v, unit = rest, u
			break
		}
	}
	if unit > 1 || strings.Contains(v, "e+") { // Helm writes large numbers in this form
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || f < 0 || f*float64(unit) > 1<<53 || unit == 1 && f != math.Trunc(f) {
			return 0, fmt.Errorf("not a number")
		}
		return int(f * float64(unit)), nil
	}
	return strconv.Atoi(v)
}

// real parses a number from low to high.
func real(to func(*Config) *float64, low, high float64) flag {
	return parsed(func(v string) (float64, error) { return strconv.ParseFloat(v, 64) }, within(low, high),
		func(c *Config, f float64) { *to(c) = f }, "a number from %.0f to %.0f", low, high)
}

// choice accepts one of several words.
func choice[S ~string](to func(*Config) *S, words ...S) flag {
	return flag{set: func(c *Config, v string) error {
		if !slices.Contains(words, S(v)) {
			return wrong(v, "%s", strings.ReplaceAll(strings.Trim(fmt.Sprint(words), "[ ]"), " ", " or "))
		}
		*to(c) = S(v)
		return nil
	}}
}

func on(to func(*Config) *bool) flag { return flip(to, false) }

// flip sets a field to the opposite of the flag.
func flip(to func(*Config) *bool, invert bool) flag {
	f := parsed(strconv.ParseBool, func(bool) bool { return true }, func(c *Config, b bool) { *to(c) = b != invert },
		"true or false")
	f.boolean = true
	return f
}

// limit parses a duration that limits something; 0 is no limit.
func limit(to func(*Config) *time.Duration) flag {
	return parsed(time.ParseDuration, func(d time.Duration) bool { return d >= 0 },
		func(c *Config, d time.Duration) { *to(c) = cmp.Or(d, -1) }, "a duration such as 30s, or 0 for no limit")
}

// addPeers parses addresses, networks and names, separated by commas or given as several values.
func addPeers(c *Config, v string) (err error) {
	c.peers = append(c.peers, strings.Split(v, ",")...)
	c.KVPeers, err = core.ParsePeers(c.peers)
	return err
}

func setCompression(c *Config, v string) error {
	if v != "int8" && v != "none" {
		return wrong(v, "int8 or none")
	}
	c.KVCompression = v == "int8"
	return nil
}

const most = 1 << 30

// flags are the flags with an effect, by their names without dashes.
var flags = map[string]flag{
	// vLLM.
	"model": text(func(c *Config) *string { return &c.Model }),
	"served-model-name": {many: true,
		set: func(c *Config, v string) error { c.Models = append(c.Models, v); return nil }},
	"host":                       text(func(c *Config) *string { return &c.Host }),
	"port":                       number(func(c *Config) *int { return &c.Port }, 0, 65535),
	"max-model-len":              {set: setMaxModelLen},
	"override-generation-config": {set: setGeneration},
	"max-num-seqs":               number(func(c *Config) *int { return &c.Engine.MaxNumSeqs }, 1, 1<<20),
	"max-num-batched-tokens":     number(func(c *Config) *int { return &c.Engine.MaxNumBatchedTokens }, 1, 1<<24),
	// Document 003.
	"max-num-prefill-tokens":  number(func(c *Config) *int { return &c.Engine.MaxNumBatchedTokens }, 1, 1<<24),
	"block-size":              number(func(c *Config) *int { return &c.Engine.BlockSize }, 1, 4096),
	"num-gpu-blocks-override": number(func(c *Config) *int { return &c.Engine.NumGPUBlocks }, 1, 1<<28),
	"long-prefill-token-threshold": number(
		func(c *Config) *int { return &c.Engine.LongPrefillTokenThreshold }, 0, 1<<24),
	"max-num-partial-prefills":  number(func(c *Config) *int { return &c.Engine.MaxNumPartialPrefills }, 0, 1<<20),
	"max-long-partial-prefills": number(func(c *Config) *int { return &c.Engine.MaxLongPartialPrefills }, 0, 1<<20),
	"gpu-memory-utilization":    real(func(c *Config) *float64 { return &c.GPUMemoryUtilization }, 0, 1),
	"kv-cache-memory-bytes":     number(func(c *Config) *int { return &c.KVCacheBytes }, 1, 1<<50),
	"swap-space":                real(func(c *Config) *float64 { return &c.SwapSpaceGiB }, 0, 1e6),
	"cpu-offload-gb":            real(func(c *Config) *float64 { return &c.SwapSpaceGiB }, 0, 1e6),
	"kv-offloading-size":        real(func(c *Config) *float64 { return &c.KVOffloadingGiB }, 0, 1e6),
	"enable-prefix-caching":     flip(func(c *Config) *bool { return &c.Engine.DisablePrefixCaching }, true),
	"enable-chunked-prefill":    flip(func(c *Config) *bool { return &c.Engine.DisableChunkedPrefill }, true),
	"enforce-eager":             on(func(c *Config) *bool { return &c.EnforceEager }),
	"scheduling-policy":         text(func(c *Config) *string { return &c.Policy }),
	"scheduler-policy":          text(func(c *Config) *string { return &c.Policy }), // document 003
	"tensor-parallel-size":      number(func(c *Config) *int { return &c.TensorParallel }, 1, 4096),
	"pipeline-parallel-size":    number(func(c *Config) *int { return &c.PipelineParallel }, 1, 4096),
	"data-parallel-size":        number(func(c *Config) *int { return &c.DataParallel }, 1, 4096),
	"data-parallel-rank":        number(func(c *Config) *int { return &c.DataParallelRank }, -1, 4095),
	"data-parallel-start-rank":  number(func(c *Config) *int { return &c.DataParallelRank }, 0, 4095),
	"enable-expert-parallel":    on(func(c *Config) *bool { return &c.ExpertParallel }),
	"data-parallel-size-local":  number(func(c *Config) *int { return &c.DataParallelLocal }, 0, 64),
	"max-num-queued-reqs":       maxQueued,
	"speculative-config":        {set: setSpeculation},
	"kv-cache-metrics":          on(func(c *Config) *bool { return &c.KVCacheMetrics }),
	"kv-cache-metrics-sample":   real(func(c *Config) *float64 { return &c.KVCacheMetricsSample }, 0, 1),
	"mm-encoder-only":           on(func(c *Config) *bool { return &c.EncoderOnly }),
	"nnodes":                    number(func(c *Config) *int { return &c.Nodes }, 1, 4096),
	"quantization":              text(func(c *Config) *string { return &c.Quantization }),
	"kv-cache-dtype":            text(func(c *Config) *string { return &c.KVCacheDType }),
	"seed":                      seed,
	"tokenizer":                 text(func(c *Config) *string { return &c.Tokenizer }),
	"chat-template":             text(func(c *Config) *string { return &c.ChatTemplate }),
	"max-loras":                 number(func(c *Config) *int { return &c.Engine.MaxLoRAs }, 1, 1<<16),
	"max-cpu-loras":             number(func(c *Config) *int { return &c.Engine.MaxCPULoRAs }, 1, 1<<16),
	"lora-modules":              {many: true, set: addAdapter},
	// The server always serves adapters.
	"enable-lora": {boolean: true, set: func(*Config, string) error { return nil }},
	"api-key": {many: true,
		set: func(c *Config, v string) error { c.APIKeys = append(c.APIKeys, v); return nil }},
	"enable-request-id-headers":    on(func(c *Config) *bool { return &c.RequestIDHeaders }),
	"enable-prompt-tokens-details": on(func(c *Config) *bool { return &c.PromptTokensDetails }),
	"ssl-certfile":                 text(func(c *Config) *string { return &c.CertFile }),
	"ssl-keyfile":                  text(func(c *Config) *string { return &c.KeyFile }),
	"kv-transfer-config":           {set: setKVTransfer},
	"kv-events-config":             {set: setKVEvents},
	"otlp-traces-endpoint":         text(func(c *Config) *string { return &c.TracesEndpoint }),
	"enable-kv-events":             {boolean: true, set: enableKVEvents}, // document 003

	// windtunnel.
	"profile": choice(func(c *Config) *Profile { return &c.Profile }, ProfileDocument, ProfileVLLM,
		ProfileSGLang, ProfileSim),
	"batching":      text(func(c *Config) *string { return &c.Batching }),
	"accelerator":   text(func(c *Config) *string { return &c.Accelerator }),
	"vllm-version":  text(func(c *Config) *string { return &c.VLLMVersion }),
	"model-config":  text(func(c *Config) *string { return &c.ModelConfig }),
	"output-tokens": text(func(c *Config) *string { return &c.OutputTokens }),

	"timing-headers": on(func(c *Config) *bool { return &c.TimingHeaders }),
	"memory-limit":   number(func(c *Config) *int { return &c.MemoryLimit }, 1, 1<<50),
	"advertise":      text(func(c *Config) *string { return &c.Advertise }),
	"kv-peers":       {many: true, set: addPeers},
	"kv-peer-timeout": parsed(time.ParseDuration, func(d time.Duration) bool { return d > 0 },
		func(c *Config, d time.Duration) { c.PeerTimeout = d }, "a duration such as 2s"),

	"kv-transfer-compression": {set: setCompression},

	"body-idle-timeout": limit(func(c *Config) *time.Duration { return &c.Body.Idle }),
	"body-timeout":      limit(func(c *Config) *time.Duration { return &c.Body.Total }),

	"lora-load-time":     text(func(c *Config) *string { return &c.LoRALoadTime.Mean }),
	"lora-activate-time": text(func(c *Config) *string { return &c.LoRAActivateTime.Mean }),

	"time-to-first-token": text(func(c *Config) *string { return &c.TimeToFirstToken.Mean }),
	"inter-token-latency": text(func(c *Config) *string { return &c.InterTokenLatency.Mean }),
	"enable-sleep-mode":   {boolean: true, set: setSleep},
}

// simFlags are the flags with an effect that only llm-d-inference-sim has.
var simFlags = map[string]flag{
	"time-to-first-token-std-dev": text(func(c *Config) *string { return &c.TimeToFirstToken.StdDev }),
	"inter-token-latency-std-dev": text(func(c *Config) *string { return &c.InterTokenLatency.StdDev }),

	"prefill-overhead":       text(func(c *Config) *string { return &c.PrefillOverhead.Mean }),
	"prefill-time-per-token": text(func(c *Config) *string { return &c.PrefillTimePerToken.Mean }),
	"prefill-time-std-dev":   text(func(c *Config) *string { return &c.PrefillOverhead.StdDev }),

	"latency-calculator": choice(
		func(c *Config) *string { return &c.LatencyCalculator }, "", "constant", "per-token"),
	"time-factor-under-load": real(func(c *Config) *float64 { return &c.TimeFactorUnderLoad }, 1, 1000),

	"kv-cache-transfer-latency":         text(func(c *Config) *string { return &c.KVTransferLatency.Mean }),
	"kv-cache-transfer-time-per-token":  text(func(c *Config) *string { return &c.KVTransferTimePerToken.Mean }),
	"kv-cache-transfer-latency-std-dev": text(func(c *Config) *string { return &c.KVTransferLatency.StdDev }),
	"kv-cache-transfer-time-std-dev":    text(func(c *Config) *string { return &c.KVTransferTimePerToken.StdDev }),

	"log-http":                       on(func(c *Config) *bool { return &c.LogHTTP }),
	"default-embedding-dimensions":   number(func(c *Config) *int { return &c.Dimensions }, 1, 65_536),
	"global-cache-hit-threshold":     real(func(c *Config) *float64 { return &c.CacheHitThreshold }, 0, 1),
	"omni":                           on(func(c *Config) *bool { return &c.Omni }),
	"image-emission-rate":            number(func(c *Config) *int { return &c.ImagePercent }, 0, 100),
	"time-to-generate-image":         text(func(c *Config) *string { return &c.ImageTime.Mean }),
	"time-to-generate-image-std-dev": text(func(c *Config) *string { return &c.ImageTime.StdDev }),

	"min-tool-call-integer-param":      number(func(c *Config) *int { return &c.Tools.MinInteger }, -most, most),
	"max-tool-call-integer-param":      number(func(c *Config) *int { return &c.Tools.MaxInteger }, -most, most),
	"min-tool-call-number-param":       real(func(c *Config) *float64 { return &c.Tools.MinNumber }, -most, most),
	"max-tool-call-number-param":       real(func(c *Config) *float64 { return &c.Tools.MaxNumber }, -most, most),
	"min-tool-call-array-param-length": number(func(c *Config) *int { return &c.Tools.MinItems }, 0, 1000),
	"max-tool-call-array-param-length": number(func(c *Config) *int { return &c.Tools.MaxItems }, 0, 1000),

	"tool-call-not-required-param-probability":        omission(func(c *Config) **int { return &c.Tools.OmitOptional }),
	"object-tool-call-not-required-field-probability": omission(func(c *Config) **int { return &c.Tools.OmitField }),

	"dataset-path":             text(func(c *Config) *string { return &c.Dataset }),
	"dataset-table-name":       text(func(c *Config) *string { return &c.DatasetTable }),
	"mode":                     choice(func(c *Config) *string { return &c.Mode }, "random", "echo"),
	"startup-duration":         text(func(c *Config) *string { return &c.StartupDelay.Mean }),
	"max-request-body-size-mb": number(func(c *Config) *int { return &c.MaxBodyMiB }, 1, 4096),
	"max-waiting-queue-length": number(func(c *Config) *int { return &c.MaxWaiting }, 1, most),
	"failure-injection-rate":   real(func(c *Config) *float64 { return &c.Faults.Inject.Percent }, 0, 100),
	"failure-types":            {many: true, set: addFailureTypes},
	"fake-metrics": {set: func(c *Config, v string) (err error) {
		c.FakeMetrics, err = stats.ParseFakeMetrics([]byte(v))
		return err
	}},
	"enable-kvcache":              {boolean: true, set: enableSimKVCache},
	"kv-cache-size":               number(func(c *Config) *int { return &c.Engine.NumGPUBlocks }, 1, 1<<28),
	"zmq-endpoint":                {set: func(c *Config, v string) error { c.events().Endpoint = v; return nil }},
	"kv-events-replay-endpoint":   {set: func(c *Config, v string) error { c.events().Replay = v; return nil }},
	"kv-events-replay-queue-size": number(func(c *Config) *int { return &c.events().Buffer }, 1, 1<<20),
	"event-batch-size":            number(func(c *Config) *int { return &c.events().BatchEvents }, 1, 1<<20),
	"use-vllm-map-event-format":   on(func(c *Config) *bool { return &c.events().Map }),
	"self-signed-certs":           on(func(c *Config) *bool { return &c.SelfSigned }),
}

func init() {
	booleans = append(booleans, sglangBooleans...)
	for name, f := range sglangFlags {
		f.sglang = true
		flags[name] = f
	}
	for name, f := range simFlags {
		f.sim = true
		flags[name] = f
	}
}

// Flags returns the names of the flags with an effect, with their dashes, in alphabetical order.
func Flags() []string {
	names := slices.Sorted(maps.Keys(flags))
	for i := range names {
		names[i] = "--" + names[i]
	}
	return names
}

// short are vLLM's one-dash flags.
var short = map[string]string{"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size",
	"q": "quantization", "n": "nnodes", "r": "node-rank"}

// omission sets the share of tool calls that omit something, from the flag's share of calls that include it.
func omission(to func(*Config) **int) flag {
	return parsed(strconv.Atoi, within(0, 100), func(c *Config, n int) { n = 100 - n; *to(c) = &n },
		"a whole number from 0 to 100")
}

// setGeneration parses the values that override a model's generation config. Only the length has an effect, because no
// token is sampled.
func setGeneration(c *Config, v string) error {
	var values map[string]any
	if err := json.Unmarshal([]byte(v), &values); err != nil {
		return wrong(v, `a JSON object such as {"max_new_tokens": 2048}`)
	}
	if most, given := values["max_new_tokens"]; given {
		n, ok := most.(float64)
		if !ok || n != math.Trunc(n) || n < 1 || n > 1<<24 {
			return wrong(v, "max_new_tokens from 1 to %d", 1<<24)
		}
		c.Engine.MaxNewTokens = int(n)
		delete(values, "max_new_tokens")
	}
	c.OtherGeneration = len(values) > 0
	return nil
}

// setMaxModelLen parses a length, or auto (-1), which means as much as the cache holds.
func setMaxModelLen(c *Config, v string) error {
	if v == "auto" {
		v = "-1"
	}
	n, err := parseNumber(v)
	if err != nil || n != -1 && (n < 1 || n > 1<<24) {
		return wrong(v, "a number of tokens from 1 to %d, or auto", 1<<24)
	}
	c.Engine.MaxModelLen = n
	return nil
}

// maxQueued limits the queue as vLLM does, which answers 503 if the queue is full.
var maxQueued = parsed(parseNumber, within(1, most),
	func(c *Config, n int) { c.MaxWaiting, c.FullStatus = n, core.StatusFull }, "a whole number from 1 to %d", most)

// setSpeculation stores the number of draft tokens. Speculation is not simulated.
func setSpeculation(c *Config, v string) error {
	var s struct {
		Tokens int `json:"num_speculative_tokens"`
	}
	if err := json.Unmarshal([]byte(v), &s); err != nil || s.Tokens < 0 || s.Tokens > 64 {
		return wrong(v, "a JSON object with num_speculative_tokens from 0 to 64")
	}
	c.SpeculativeTokens = s.Tokens
	return nil
}

func setSleep(c *Config, v string) error {
	sleeps := false
	c.Sleeps = &sleeps
	return on(func(c *Config) *bool { return c.Sleeps }).set(c, v)
}

var seed = parsed(parseNumber, within(math.MinInt, math.MaxInt),
	func(c *Config, n int) { u := uint64(n); c.Seed = &u }, "a whole number")

func addFailureTypes(c *Config, v string) error {
	for t := range strings.SplitSeq(v, ",") {
		if openai.FailureTypes[t].Status == 0 {
			return fmt.Errorf("unknown failure type %q", t)
		}
		c.Faults.Inject.Types = append(c.Faults.Inject.Types, t)
	}
	return nil
}

// addAdapter parses name=path, or a JSON object with name, path and base_model_name.
func addAdapter(c *Config, v string) error {
	var a modelserver.Adapter
	if strings.HasPrefix(strings.TrimSpace(v), "{") {
		if err := json.Unmarshal([]byte(v), &a); err != nil {
			return fmt.Errorf("expected name=path or an object with name and path: %w", err)
		}
	} else {
		var ok bool
		if a.Name, a.Path, ok = strings.Cut(v, "="); !ok {
			a.Name = ""
		}
	}
	if a.Name == "" {
		return wrong(v, "name=path or an object with name and path")
	}
	c.Adapters = append(c.Adapters, a)
	return nil
}

func setKVTransfer(c *Config, v string) error {
	c.KVTransfer = &KVTransfer{}
	if err := json.Unmarshal([]byte(v), c.KVTransfer); err != nil {
		return fmt.Errorf("expected a JSON object such as "+
			"{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}: %w", err)
	}
	return nil
}

func (c *Config) events() *KVEvents {
	c.KVEvents = cmp.Or(c.KVEvents, &KVEvents{})
	return c.KVEvents
}

func setKVEvents(c *Config, v string) error {
	e := c.events()
	if err := json.Unmarshal([]byte(v), e); err != nil {
		return fmt.Errorf("expected a JSON object such as "+
			"{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\"}: %w", err)
	}
	if e.Publisher != "" && e.Publisher != "zmq" && e.Publisher != "null" {
		return fmt.Errorf("publisher: expected zmq or null, got %q", e.Publisher)
	}
	// The address of a publisher that binds has a wildcard host. Any other address belongs to a subscriber.
	e.Connect = e.Endpoint != "" && !wildcard(e.Endpoint)
	e.Enabled = e.Enabled && e.Publisher != "null"
	return nil
}

func wildcard(endpoint string) bool {
	host, _, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	return err == nil && (host == "*" || host == "" || host == "0.0.0.0" || host == "::")
}

func enableKVEvents(c *Config, v string) error {
	c.events().Document = true
	return flip(func(c *Config) *bool { return &c.events().Enabled }, false).set(c, v)
}

func enableSimKVCache(c *Config, v string) error {
	e := c.events()
	e.Connect, e.Endpoint = true, cmp.Or(e.Endpoint, "tcp://127.0.0.1:5557")
	return flip(func(c *Config) *bool { return &c.events().Enabled }, false).set(c, v)
}
