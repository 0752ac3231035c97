package stats

import (
	"strconv"

	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// writeSGLang writes the metrics of SGLang with --enable-metrics, under its names
// (python/sglang/srt/metrics/collector.py). Histograms keep vLLM's bounds. It leaves out the families of features that
// are not simulated: speculation, grammars' queues, host memory and expert parallelism.
func (x *Look) writeSGLang(w metrics.Writer) {
	c := &x.Server.Engine
	model := metrics.Label{Name: "model_name", Value: x.Server.Model}
	w.Labels(model, metrics.Label{Name: "engine_type", Value: x.Server.SGLang},
		metrics.Label{Name: "tp_rank", Value: "0"}, metrics.Label{Name: "pp_rank", Value: "0"})
	one(w, "sglang:num_running_reqs", float64(x.Engine.Running))
	one(w, "sglang:num_queue_reqs", float64(x.Engine.Waiting-x.Engine.Pulling))
	one(w, "sglang:num_decode_transfer_queue_reqs", float64(x.Engine.Pulling))
	one(w, "sglang:num_used_tokens", float64(x.KVBlocks*c.BlockSize))
	one(w, "sglang:token_usage", x.KVUsage())
	one(w, "sglang:max_total_num_tokens", float64(c.NumGPUBlocks*c.BlockSize))
	one(w, "sglang:cache_hit_rate", x.HitRate())
	generated, _ := x.Recent()
	one(w, "sglang:gen_throughput", generated)
	histogramOf(w, "sglang:queue_time_seconds", &x.queue)
	w.Labels()
	if family(w, "sglang:cache_config_info") {
		w.Sample(1, metrics.Label{Name: "page_size", Value: strconv.Itoa(c.BlockSize)},
			metrics.Label{Name: "num_pages", Value: strconv.Itoa(c.NumGPUBlocks)})
	}
	w.Labels(model)
	one(w, "sglang:prompt_tokens_total", float64(x.Engine.PromptTokens))
	one(w, "sglang:generation_tokens_total", float64(x.Engine.GenerationTokens))
	one(w, "sglang:cached_tokens_total", float64(x.CachedTokens))
	one(w, "sglang:num_requests_total", float64(x.e2e.n))
	one(w, "sglang:num_aborted_requests_total", float64(x.Success[finishedAbort]))
	histogramOf(w, "sglang:time_to_first_token_seconds", &x.ttft)
	histogramOf(w, "sglang:inter_token_latency_seconds", &x.itl)
	histogramOf(w, "sglang:e2e_request_latency_seconds", &x.e2e)
}
