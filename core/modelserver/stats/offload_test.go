package stats

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Evictions to host memory and loads from there appear under the offloading connector's names. Loads count as hits of a
// connector, and not of the accelerator's own cache.
func TestOffloading(t *testing.T) {
	t.Parallel()
	b := newBench(t, engine.Config{ReportSteps: true, BlockSize: 4, NumGPUBlocks: 6, NumCPUBlocks: 8,
		KVBytesPerToken: 1000, CPUBandwidth: 1e6, MaxModelLen: 24,
		Timer: latency.PerToken{Step: engine.ToFixed(machine.Millisecond)}})
	ask := func(id engine.RequestID, hashes ...uint64) {
		b.submit(b.eng.Now(), &engine.Submit{ID: id, PromptTokens: 4*len(hashes) + 2, MaxTokens: 2, Hashes: hashes},
			new(Sequence))
		b.run()
	}
	ask(1, 1, 2, 3, 4)
	ask(2, 11, 12, 13, 14) // 5 blocks of 6: blocks 2 to 4 of the first go
	ask(3, 1, 2, 3, 4)
	c := b.eng.Config()
	x := b.At(b.eng.Now(), &Server{Engine: c, Model: "m"}, b.eng)
	text := metrics.Text{Created: 1e9}
	x.Write(&text)
	text.End()
	for _, want := range []string{
		`vllm:kv_offload_load_bytes_total{L} 12000.0`, `vllm:kv_offload_load_time_total{L} 0.012`,
		`vllm:kv_offload_load_size_count{L} 1.0`,
		`vllm:kv_offload_total_bytes_total{L,transfer_type="CPU_to_GPU"} 12000.0`,
		`vllm:kv_offload_size_sum{L,transfer_type="CPU_to_GPU"} 12000.0`,
		`vllm:kv_offload_store_size_sum{L} 24000.0`, `vllm:kv_offload_store_bytes_created{L} 1000000000.0`,
		`vllm:prefix_cache_hits_total{L} 4.0`, `vllm:external_prefix_cache_hits_total{L} 12.0`,
		`vllm:prompt_tokens_by_source_total{L,source="external_kv_transfer"} 12.0`,
		`vllm:prompt_tokens_cached_by_source_total{L,source="host"} 12.0`,
		`vllm:prompt_tokens_cached_by_source_total{L,source="device"} 4.0`, `vllm:prompt_tokens_cached_total{L} 16.0`,
		`vllm:kv_offload_config_info{L,cpu_num_chunks="8",cpu_blocks_per_chunk="1",cpu_kv_cache_size_bytes="32000",` +
			`cpu_kv_cache_size_tokens="32"} 1.0`,
	} {
		if want = strings.Replace(want, "L", `model_name="m",engine="0"`, 1); !strings.Contains(string(text.Page),
			want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		t.Log(string(text.Page))
	}
}
