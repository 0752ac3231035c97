package modelserver

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/tidwall/gjson"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
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

// Both legs of a request to /generate meet in a room. The decode server fetches the prompt, and says what a server
// alone says.
func TestSGLangGenerateApart(t *testing.T) {
	t.Parallel()
	p := apart(t, connector.SGLang.Profile, func(o *ServerOptions) { o.SGLang = true })
	ask := func(s *Server, more string) gjson.Result {
		resp, err := http.Post(s.URL()+"/generate", "application/json", strings.NewReader(
			`{"text":"`+strings.Repeat("word ", 100)+`","sampling_params":{"max_new_tokens":4,"temperature":0}`+more+`}`))
		if err != nil {
			t.Error(err)
			return gjson.Result{}
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%d %s %v", resp.StatusCode, body, err)
		}
		return gjson.ParseBytes(body)
	}
	alone := ask(p.decode, "").Get("text").String()
	if resp, err := http.Post(p.decode.URL()+"/reset_prefix_cache", "", nil); err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(p.prefill.MeetingAddress())
	room := fmt.Sprintf(`,"bootstrap_host":%q,"bootstrap_port":%s,"bootstrap_room":7`, host, port)
	var prefill gjson.Result
	var done sync.WaitGroup
	done.Go(func() { prefill = ask(p.prefill, room) })
	decode := ask(p.decode, room)
	done.Wait()
	if n := prefill.Get("meta_info.completion_tokens").Int(); n != 1 {
		t.Errorf("the prefill server made %d tokens", n)
	}
	if text := decode.Get("text").String(); text != alone || decode.Get("meta_info.cached_tokens").Int() == 0 {
		t.Errorf("%s, expected the text %q and cached tokens", decode, alone)
	}
	p.idle()
}
