package scrape

import (
	"math"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/picker"
)

// Mapping says which series of an engine carry which signal.
type Mapping struct {
	Queued, Running, KVUsage, LoRA, CacheInfo Spec
	// BlockSizeLabel and BlocksLabel are the labels of CacheInfo.
	BlockSizeLabel, BlocksLabel string
	Custom                      []Custom
}

// Custom is a further signal under a name of the user's.
type Custom struct {
	Key  string
	Spec Spec
}

func must(text string) Spec {
	s, err := ParseSpec(text)
	if err != nil {
		panic(err) // the texts below are constants
	}
	return s
}

// Engines are the mappings that llm-d-router knows, by engine type.
func Engines() map[string]*Mapping {
	return map[string]*Mapping{
		"vllm": {
			Queued: must("vllm:num_requests_waiting"), Running: must("vllm:num_requests_running"),
			KVUsage: must("vllm:kv_cache_usage_perc"), LoRA: must("vllm:lora_requests_info"),
			CacheInfo: must("vllm:cache_config_info"), BlockSizeLabel: "block_size", BlocksLabel: "num_gpu_blocks",
		},
		"sglang": {
			Queued: must("sglang:num_queue_reqs"), Running: must("sglang:num_running_reqs"),
			KVUsage: must("sglang:token_usage"), CacheInfo: must("sglang:cache_config_info"),
			BlockSizeLabel: "page_size", BlocksLabel: "num_pages",
		},
		"trtllm-serve": {
			Queued: must("trtllm_num_requests_waiting"), Running: must("trtllm_num_requests_running"),
			KVUsage: must("trtllm_kv_cache_utilization"),
		},
		"triton-tensorrt-llm": {
			Queued:  must("nv_trt_llm_request_metrics{request_type=waiting}"),
			Running: must("nv_trt_llm_request_metrics{request_type=scheduled}"),
			KVUsage: must("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"),
		},
	}
}

// Wants says whether a family matters to the mapping.
func (m *Mapping) Wants(name string) bool {
	if name == m.Queued.Name || name == m.Running.Name || name == m.KVUsage.Name || name == m.LoRA.Name || name == m.CacheInfo.Name {
		return name != ""
	}
	for i := range m.Custom {
		if m.Custom[i].Spec.Name == name {
			return true
		}
	}
	return false
}

// Apply reads the page's signals into an endpoint's figures. What the page
// does not say stays as it was; so does a signal that is not a number.
func (m *Mapping) Apply(p Page, into *picker.Metrics) {
	whole := func(s Spec, to *int64) {
		if _, v, ok := s.Latest(p); ok && !math.IsNaN(v) && math.Abs(v) < 1<<53 {
			*to = int64(v)
		}
	}
	whole(m.Queued, &into.Waiting)
	whole(m.Running, &into.Running)
	if _, v, ok := m.KVUsage.Latest(p); ok && !math.IsNaN(v) {
		into.KVUsage = v
	}
	if s, ok := m.LoRA.Largest(p); ok {
		into.LoRA = adapters(s)
	}
	if s, _, ok := m.CacheInfo.Latest(p); ok {
		if n, err := strconv.ParseInt(s.Get(m.BlockSizeLabel), 10, 32); err == nil && n >= 0 {
			into.CacheBlockSize = int32(n)
		}
		if n, err := strconv.ParseInt(s.Get(m.BlocksLabel), 10, 32); err == nil && n >= 0 {
			into.CacheBlocks = int32(n)
		}
	}
	if len(m.Custom) > 0 {
		custom := make(map[string]float64, len(m.Custom))
		for k, v := range into.Custom {
			custom[k] = v
		}
		for _, c := range m.Custom {
			if _, v, ok := c.Spec.Latest(p); ok && !math.IsNaN(v) {
				custom[c.Key] = v
			}
		}
		into.Custom = custom
	}
}

func adapters(s *Sample) *picker.LoRA {
	l := &picker.LoRA{Running: list(s.Get("running_lora_adapters")), Waiting: list(s.Get("waiting_lora_adapters"))}
	if n, err := strconv.Atoi(s.Get("max_lora")); err == nil && n > 0 {
		l.Max = n
	}
	return l
}

func list(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
