package datalayer

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// mapping names an engine's series for each signal.
type mapping struct {
	Queued, Running, KVUsage, LoRA, CacheInfo metrics.Spec
	// BlockSizeLabel and BlocksLabel are the labels of CacheInfo; "" is
	// block_size and num_gpu_blocks.
	BlockSizeLabel, BlocksLabel string
	// BlockSize and Blocks say as values what CacheInfo says as labels.
	BlockSize, Blocks metrics.Spec
	Custom            []customSignal
}

// customSignal is a further signal under a name of the user's.
type customSignal struct {
	Key  string
	Spec metrics.Spec
}

func spec(text string) metrics.Spec {
	s, err := metrics.ParseSpec(text)
	if err != nil {
		panic(err) // the texts below are constants
	}
	return s
}

// engines returns the mappings that llm-d-router knows, by engine type.
func engines() map[string]*mapping {
	return map[string]*mapping{
		"vllm": {
			Queued: spec("vllm:num_requests_waiting"), Running: spec("vllm:num_requests_running"),
			KVUsage: spec("vllm:kv_cache_usage_perc"), LoRA: spec("vllm:lora_requests_info"),
			CacheInfo: spec("vllm:cache_config_info"),
		},
		"sglang": {
			Queued: spec("sglang:num_queue_reqs"), Running: spec("sglang:num_running_reqs"),
			KVUsage: spec("sglang:token_usage"), CacheInfo: spec("sglang:cache_config_info"),
			BlockSizeLabel: "page_size", BlocksLabel: "num_pages",
		},
		"trtllm-serve": {
			Queued: spec("trtllm_num_requests_waiting"), Running: spec("trtllm_num_requests_running"),
			KVUsage:   spec("trtllm_kv_cache_utilization"),
			BlockSize: spec("trtllm_kv_cache_tokens_per_block"), Blocks: spec("trtllm_kv_cache_max_blocks"),
		},
		"triton-tensorrt-llm": {
			Queued:    spec("nv_trt_llm_request_metrics{request_type=waiting}"),
			Running:   spec("nv_trt_llm_request_metrics{request_type=scheduled}"),
			KVUsage:   spec("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"),
			BlockSize: spec("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}"),
			Blocks:    spec("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}"),
		},
		"triton": {Queued: spec("nv_inference_pending_request_count"), Running: spec("nv_inference_exec_count")},
	}
}

// wants reports whether a family matters to the mapping.
func (m *mapping) wants(name string) bool {
	if name == m.Queued.Name || name == m.Running.Name || name == m.KVUsage.Name || name == m.LoRA.Name ||
		name == m.CacheInfo.Name || name == m.BlockSize.Name || name == m.Blocks.Name {
		return name != ""
	}
	return slices.ContainsFunc(m.Custom, func(c customSignal) bool { return c.Spec.Name == name })
}

// apply reads the page's signals into an endpoint's metrics. A signal that the page lacks, or that is not a number,
// stays as it was. apply reports whether the page had any signal.
func (m *mapping) apply(p metrics.Page, into *picker.Metrics) (any bool) {
	whole := func(s metrics.Spec) (int64, bool) {
		_, v, ok := s.Latest(p)
		any = any || ok
		return int64(v), ok && v >= math.MinInt64 && v < math.MaxInt64
	}
	if n, ok := whole(m.Queued); ok {
		into.Waiting = n
	}
	if n, ok := whole(m.Running); ok {
		into.Running = n
	}
	if _, v, ok := m.KVUsage.Latest(p); ok {
		any = true
		if !math.IsNaN(v) {
			into.KVUsage = v
		}
	}
	if s, ok := m.LoRA.Largest(p); ok {
		any = true
		into.LoRA = adapters(s, into.LoRA)
	}
	if s, _, ok := m.CacheInfo.Latest(p); ok {
		any = true
		into.CacheBlockSize = 0
		label(s, m.BlockSizeLabel, "block_size", &into.CacheBlockSize)
		label(s, m.BlocksLabel, "num_gpu_blocks", &into.CacheBlocks)
	}
	if n, ok := whole(m.BlockSize); ok {
		into.CacheBlockSize = small(n)
	}
	if n, ok := whole(m.Blocks); ok {
		into.CacheBlocks = small(n)
	}
	if len(m.Custom) > 0 {
		custom := make(map[string]float64, len(m.Custom))
		maps.Copy(custom, into.Custom)
		for _, c := range m.Custom {
			if _, v, ok := c.Spec.Latest(p); ok {
				any = true
				if !math.IsNaN(v) {
					custom[c.Key] = v
				}
			}
		}
		into.Custom = custom
	}
	return any
}

// label reads a whole number from a label; without one the last stays.
func label(s *metrics.Sample, name, usual string, to *int32) {
	if n, err := strconv.Atoi(s.Get(cmp.Or(name, usual))); err == nil {
		*to = small(int64(n))
	}
}

func small(n int64) int32 { return int32(max(math.MinInt32, min(math.MaxInt32, n))) }

// adapters reads the labels of vllm:lora_requests_info. How many adapters fit
// stays what it was if the series does not say.
func adapters(s *metrics.Sample, was *picker.LoRA) *picker.LoRA {
	l := &picker.LoRA{Running: list(s.Get("running_lora_adapters")), Waiting: list(s.Get("waiting_lora_adapters"))}
	if was != nil {
		l.Max = was.Max
	}
	if n, err := strconv.Atoi(s.Get("max_lora")); err == nil {
		l.Max = n
	}
	return l
}

// list splits a label's names; one that stands twice is one.
func list(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	return out
}
