package modelserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A server with SGLang's command line has SGLang's metrics and none of vLLM's: those that pickers read, and counts.
func TestSGLangMetrics(t *testing.T) {
	t.Parallel()
	o := batched()
	o.SGLang, o.Engine.BlockSize = true, 16
	b := start(t, o)
	if resp, body := b.post("/generate", `{"text":"Hello there","sampling_params":{"max_new_tokens":3}}`); resp.StatusCode !=
		200 {
		t.Fatal(body)
	}
	b.until("idle", b.idle)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	page, err := parser.TextToMetricFamilies(strings.NewReader(b.page()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range page {
		if strings.HasPrefix(name, "vllm") {
			t.Errorf("%s is vLLM's", name)
		} else if rest, ok := strings.CutPrefix(name, "sglang:"); ok && !strings.HasSuffix(rest, "_created") {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	want := strings.Fields(`cache_config_info cache_hit_rate cached_tokens_total e2e_request_latency_seconds
		gen_throughput generation_tokens_total inter_token_latency_seconds max_total_num_tokens
		num_aborted_requests_total num_decode_transfer_queue_reqs num_queue_reqs num_requests_total num_running_reqs
		num_used_tokens prompt_tokens_total queue_time_seconds time_to_first_token_seconds token_usage`)
	if !slices.Equal(names, want) {
		t.Errorf("%v, expected %v", names, want)
	}
	for name, want := range map[string]float64{"num_running_reqs": 0, "num_requests_total": 1,
		"generation_tokens_total": 3, "prompt_tokens_total": 3} {
		m := page["sglang:"+name].Metric[0]
		if got := m.GetGauge().GetValue() + m.GetCounter().GetValue(); got != want {
			t.Errorf("%s: %v, expected %v", name, got, want)
		}
	}
	labels := page["sglang:cache_config_info"].Metric[0].Label
	if len(labels) != 2 || labels[0].GetName() != "page_size" || labels[0].GetValue() != "16" {
		t.Errorf("%v", labels)
	}
}
