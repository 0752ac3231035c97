package stats

import (
	"strconv"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// The bounds of the histograms of vLLM's offloading connector
// (vllm/distributed/kv_transfer/kv_connector/v1/offloading/metrics.py and vllm/v1/kv_offload/cpu/spec.py), in bytes,
// seconds and chunks of blocks.
var (
	moveBounds       = []float64{1e6, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6, 150e6, 200e6}
	lookupBounds     = []float64{0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1}
	deferredBounds   = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}
	allocationBounds = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144}
)

// writeOffload writes the metrics that vLLM's offloading connector registers, if there is host memory for KV blocks. A
// store is the blocks that one eviction moves there, a load the blocks that one request gets back. Lookups take no time
// in the simulation, and nothing is pinned: moving is a part of the engine's steps.
func (x *Look) writeOffload(w metrics.Writer) {
	c := &x.Server.Engine
	if c.NumCPUBlocks == 0 || c.Batching == engine.BatchingIndependent {
		return
	}
	block := float64(c.BlockSize) * float64(c.KVBytesPerToken)
	sizes := func(moves engine.Moves, unit float64, bounds []float64) *histogram {
		h := newHistogram(bounds)
		for blocks, n := range moves {
			h.observeN(float64(blocks)*unit, n)
		}
		return &h
	}
	loads, stores := sizes(x.Loads, block, moveBounds), sizes(x.Stores, block, moveBounds)
	seconds := func(h *histogram) float64 { return h.sum / float64(c.CPUBandwidth) }
	const load, store = "CPU_to_GPU", "GPU_to_CPU"
	series(w, "vllm:kv_offload_total_bytes_total", "transfer_type", value{load, loads.sum}, value{store, stores.sum})
	series(w, "vllm:kv_offload_total_time_total",
		"transfer_type", value{load, seconds(loads)}, value{store, seconds(stores)})
	if family(w, "vllm:kv_offload_size") {
		for _, of := range []struct {
			kind string
			h    *histogram
		}{{load, loads}, {store, stores}} {
			w.Labels(append(x.own(), metrics.Label{Name: "transfer_type", Value: of.kind})...)
			w.Histogram(of.h.bounds, of.h.counts, of.h.sum)
		}
		w.Labels(x.own()...)
	}
	one(w, "vllm:kv_offload_cpu_cache_usage_perc", 0)
	one(w, "vllm:kv_offload_cpu_cache_write_usage_perc", 0)
	one(w, "vllm:kv_offload_cpu_cache_read_usage_perc", 0)
	histogramOf(w, "vllm:kv_offload_cpu_allocation_size", sizes(x.Stores, 1, allocationBounds))
	one(w, "vllm:kv_offload_load_bytes_total", loads.sum)
	one(w, "vllm:kv_offload_load_time_total", seconds(loads))
	histogramOf(w, "vllm:kv_offload_load_size", loads)
	one(w, "vllm:kv_offload_store_bytes_total", stores.sum)
	one(w, "vllm:kv_offload_store_time_total", seconds(stores))
	histogramOf(w, "vllm:kv_offload_store_size", stores)
	histogramOf(w, "vllm:kv_offload_lookup_sync_delay_seconds", sizes(nil, 1, lookupBounds))
	histogramOf(w, "vllm:kv_offload_lookup_async_delay_seconds", sizes(nil, 1, deferredBounds))
	one(w, "vllm:kv_offload_allocation_failure_total", 0)
	if family(w, "vllm:kv_offload_config_info") {
		blocks := strconv.Itoa(c.NumCPUBlocks)
		w.Sample(1, metrics.Label{Name: "cpu_num_chunks", Value: blocks},
			metrics.Label{Name: "cpu_blocks_per_chunk", Value: "1"},
			metrics.Label{Name: "cpu_kv_cache_size_bytes",
				Value: strconv.FormatFloat(float64(c.NumCPUBlocks)*block, 'f', 0, 64)},
			metrics.Label{Name: "cpu_kv_cache_size_tokens", Value: strconv.Itoa(c.NumCPUBlocks * c.BlockSize)})
	}
}
