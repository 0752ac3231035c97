package modelserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// batched is a server as vLLM is: continuous batching, little memory.
func batched() ServerOptions {
	return ServerOptions{Models: []string{"m"}, PromptTokensDetails: true, Engine: engine.Config{
		Timer: latency.Constant{TimeToFirstToken: machine.Millisecond,
			InterTokenLatency: 200 * machine.Microsecond},
		BlockSize: 4, NumGPUBlocks: 64, MaxModelLen: 200, MaxNumSeqs: 8, MaxNumBatchedTokens: 64, ReportSteps: true}}
}

// value reads one sample of a metrics page.
func value(t *testing.T, page, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `(?:\{[^}]*\})? (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no %s in the metrics", name)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (b *bench) page() string {
	resp, err := b.Get(b.URL() + "/metrics")
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body)
	return string(all)
}

// Many clients, too little memory, some of them leaving: nothing fails for
// want of memory, no gauge is ever wrong, and at the end everything is free
// and every request is counted once.
func TestConservation(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	const clients = 60
	var wg sync.WaitGroup
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			default:
			}
			x, ok := b.look()
			if !ok {
				return
			}
			if x.Engine.Running < 0 || x.Engine.Waiting < 0 || x.Engine.Running > 8 || x.KVBlocks > 64 {
				t.Errorf("running %d, waiting %d, %d blocks", x.Engine.Running, x.Engine.Waiting, x.KVBlocks)
			}
		}
	}()
	for i := range clients {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			body := fmt.Sprintf(`{"prompt":"%s %d","max_tokens":60,"stream":%v}`, strings.Repeat("word", 8), i%7,
				i%2 == 0)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.URL()+"/v1/completions",
				strings.NewReader(body))
			resp, err := b.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if i%4 == 0 {
				_, _ = resp.Body.Read(make([]byte, 1)) // and leaves
				return
			}
			if all, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 ||
				!strings.Contains(string(all), `"finish_reason":"length"`) {
				t.Errorf("%d %v %s", resp.StatusCode, err, all)
			}
		})
	}
	wg.Wait()
	b.until("idle", b.idle)
	close(stop)
	<-watched
	page := b.page()
	for _, zero := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting",
		"vllm:kv_cache_usage_perc"} {
		if v := value(t, page, zero); v != 0 {
			t.Errorf("%s is %v", zero, v)
		}
	}
	if n := value(t, page, "vllm:e2e_request_latency_seconds_count"); n != clients {
		t.Errorf("%v requests ended, want %d", n, clients)
	}
	if value(t, page, "vllm:num_preemptions_total") == 0 {
		t.Error("memory was not short: nothing was preempted")
	}
	if value(t, page, "vllm:prefix_cache_hits_total") == 0 {
		t.Error("nothing was found in the prefix cache")
	}
}

// A prompt that the cache holds whole is found up to its last token.
func TestCachedTokens(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	body := `{"prompt":"` + strings.Repeat("word", 12) + `","max_tokens":1}`
	b.post("/v1/completions", body)
	if _, second := b.post("/v1/completions", body); !strings.Contains(second, `"cached_tokens":8`) {
		t.Fatalf("12 tokens in blocks of 4 should be found up to 8, the last token being computed: %s", second)
	}
	if resp, _ := b.post("/reset_prefix_cache", ""); resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode)
	}
	if _, third := b.post("/v1/completions", body); !strings.Contains(third, `"cached_tokens":0`) {
		t.Fatalf("after a reset: %s", third)
	}
}

// collector keeps the KV events of a server.
type collector struct {
	mu     sync.Mutex
	events []kv.Event
	closed bool
}

func (c *collector) Publish(e kv.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

func (c *collector) Close() { c.closed = true }

// KV events describe blocks with their tokens, prompt and output, and with their true parents.
func TestKVEvents(t *testing.T) {
	t.Parallel()
	var c collector
	o := batched()
	o.KVEvents = func(model, endpoint string) (KVPublisher, error) {
		if model != "m" || !strings.Contains(endpoint, ":") {
			t.Errorf("publisher for %q at %q", model, endpoint)
		}
		return &c, nil
	}
	b := start(t, o)
	b.post("/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":8}`)
	b.until("idle", b.idle)
	c.mu.Lock()
	defer c.mu.Unlock()
	var tokens []uint32
	parent := kv.EngineHash(0)
	for _, e := range c.events {
		if e.Kind != kv.Stored {
			continue
		}
		if e.Parent != parent || e.BlockTokens != 4 || len(e.Tokens) != 4*len(e.Hashes) {
			t.Fatalf("%+v behind %v", e, parent)
		}
		parent = e.Hashes[len(e.Hashes)-1]
		tokens = append(tokens, e.Tokens...)
	}
	if len(tokens) != 16 {
		t.Fatalf("9 prompt and 7 computed output tokens are 4 blocks, got %v", tokens)
	}
	for i, id := range tokens[:9] {
		if id != uint32(i+1) {
			t.Fatalf("got %v", tokens)
		}
	}
}

// The page of an idle server stays the same, and the page of a server that did something does not. Every family is
// there under both spellings.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	b.post("/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"/a"}`)
	before := b.page()
	b.post("/v1/completions", `{"prompt":"x","max_tokens":3,"model":"a"}`)
	for range 2 { // without tokens: rendering shows them as well
		b.post("/v1/chat/completions/render",
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,x"}}]}]}`)
	}
	after := b.page()
	for name, want := range map[string]float64{
		"vllm:mm_cache_queries_total": 2, "vllm:mm_cache_hits_total": 1,
		"vllm:generation_tokens_total": 3, "vllm:prompt_tokens_total": 1, "vllm_tokens_generated_total": 3,
		"vllm_decode_tokens_total":               2,
		"vllm:time_to_first_token_seconds_count": 1, "vllm:inter_token_latency_seconds_count": 2,
		"vllm:iteration_tokens_total_sum":    3,
		"vllm:request_params_max_tokens_sum": 3, "vllm:cache_config_info": 1,
	} {
		if got := value(t, after, name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	for _, name := range []string{"vllm:lora_requests_info", "windtunnel:lora_adapters",
		"vllm:admission_rejections_total", "vllm_gpu_utilization", "vllm_request_latency_p50",
		"vllm_request_latency_p99",
		"vllm:engine_sleep_state"} {
		value(t, after, name)
	}
	if before == after {
		t.Error("the page did not change")
	}
	if _, err := parser.TextToMetricFamilies(strings.NewReader(after)); err != nil {
		t.Error(err)
	}
	resp, err := http.DefaultClient.Head(b.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 200 || resp.ContentLength == 0 {
		t.Errorf("HEAD: %d, %d bytes", resp.StatusCode, resp.ContentLength)
	}
}

// A held-open request keeps its slot and its blocks while it is held, and the other requests continue beside it.
func TestHeldAmongOthers(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	call := b.held("r1", `{"messages":[{"role":"user","content":"Hello there"}],"max_tokens":20,"stream":true}`)
	resp := call.response(t)
	if _, err := resp.Body.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if st := b.EngineStats(); st.Running != 1 || st.Paused != 1 {
		t.Fatalf("%+v", st)
	}
	if _, body := b.post("/v1/completions", `{"prompt":"beside it","max_tokens":20}`); !strings.Contains(body,
		`"completion_tokens":20`) {
		t.Fatal(body)
	}
	call.part2("secret")
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), `"metadata":"secret"`) {
		t.Fatalf("%v %s", err, rest)
	}
	b.until("idle", b.idle)
	if v := value(t, b.page(), "vllm:kv_cache_usage_perc"); v != 0 {
		t.Fatalf("blocks are left: %v", v)
	}
}

// Times that are changed count from the next step on, also for what is being
// decoded.
func TestSetTimes(t *testing.T) {
	t.Parallel()
	o := batched()
	o.Engine.Timer = NewAdjustable(
		latency.Constant{TimeToFirstToken: machine.Millisecond, InterTokenLatency: 3600 * machine.Second})
	b := start(t, o)
	done := make(chan string, 1)
	go func() {
		_, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":5}`)
		done <- body
	}()
	b.until("the first token", func() bool { return b.EngineStats().GenerationTokens == 1 })
	if err := b.SetTimes(Times{InterTokenLatency: -1}); err == nil {
		t.Fatal("a time below zero")
	}
	if err := b.SetTimes(Times{}); err != nil {
		t.Fatal(err)
	}
	if got, ok := b.Times(); !ok || got != (Times{}) {
		t.Fatalf("%v %v", got, ok)
	}
	// The running step still takes its hour; later requests do not.
	b.engine.Control(&enginecore.Control{Control: engine.Control{Op: engine.OpSleep}})
	b.engine.Control(&enginecore.Control{Control: engine.Control{Op: engine.OpWake}})
	<-done
	if _, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":5}`); !strings.Contains(body,
		`"completion_tokens":5`) {
		t.Fatal(body)
	}
}

func TestFakeMetrics(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	post := func(f string) {
		if resp, body := b.post("/admin/config", `{"fake-metrics":`+f+`}`); resp.StatusCode != 200 {
			t.Fatal(body)
		}
	}
	post(`{"running-requests":16,"waiting-requests":"ramp:3:3:1s","kv-cache-usage":0.25,"loras":[{"running":"a,b","waiting":"c"}],
		"ttft-buckets-values":[0,3,1],"request-prompt-tokens":[10,20],"request-success-total":{"stop":7}}`)
	// Values that are not set again stay.
	post(`{"tpot-buckets-values":[0,0,5],"prefix-cache-hits":40,"total-generation-tokens":99}`)
	page := b.page()
	for name, want := range map[string]float64{"vllm:num_requests_running": 16, "vllm:num_requests_waiting": 3,
		"vllm:kv_cache_usage_perc":               0.25,
		"vllm:time_to_first_token_seconds_count": 4, "vllm:inter_token_latency_seconds_count": 5,
		"vllm:request_prompt_tokens_sum": 30, "vllm:prompt_tokens_total": 30,
		"vllm:generation_tokens_total": 99, "vllm:prefix_cache_hits_total": 40,
		`vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"}`: 7} {
		if got := value(t, page, name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if !strings.Contains(page, `running_lora_adapters="a,b"`) {
		t.Error("no adapters")
	}
	for _, bad := range []string{`{"ttft-buckets-values":[-1]}`, `{"running":1}`, `{"kv-cache-usage":2}`,
		`{"tpot-buckets-values":[` + strings.Repeat("1,", 20) + `1]}`} {
		if resp, body := b.post("/fake_metrics", bad); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", bad, resp.StatusCode, body)
		}
	}
	post(`null`)
	if got := value(t, b.page(), "vllm:num_requests_running"); got != 0 {
		t.Errorf("got %v, want the truth", got)
	}
}
