package modelserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// What the usual simulator gets wrong, one test for each. Those about KV blocks
// stand in TestCacheIsWhatEventsSay.

// constant is batched with these times.
func constant(ttft, itl machine.Time) ServerOptions {
	o := batched()
	o.Engine.Timer = latency.Constant{TimeToFirstToken: ttft, InterTokenLatency: itl}
	return o
}

func completion(tokens int) string {
	return fmt.Sprintf(`{"prompt":"one two three","max_tokens":%d,"ignore_eos":true}`, tokens)
}

// Times below a millisecond count, exactly; nothing drifts under load.
func TestTimesAreExact(t *testing.T) {
	t.Parallel()
	o := constant(1900*machine.Microsecond, 900*machine.Microsecond)
	o.Engine.NumGPUBlocks, o.Engine.MaxNumSeqs = 4096, 64
	b := start(t, o)
	b.post("/v1/completions", completion(101))
	page := b.page()
	if ttft, itl := value(t, page, "vllm:time_to_first_token_seconds_sum"),
		value(t, page, "vllm:inter_token_latency_seconds_sum"); math.Abs(ttft-0.0019) > 1e-9 ||
		math.Abs(itl-0.09) > 1e-9 {
		t.Errorf("first token after %v s, 100 more within %v s; want 0.0019 and 0.09", ttft, itl)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { b.post("/v1/completions", completion(101)[:len(completion(101))-1]+`,"stream":true}`) })
	}
	all.Wait()
	page = b.page()
	// 51 requests of 101 tokens: every step takes its 900 µs, but for those in
	// which a prompt is computed beside it, and those take 1.9 ms at most.
	mean := value(t, page, "vllm:inter_token_latency_seconds_sum") / value(t, page,
		"vllm:inter_token_latency_seconds_count")
	if n := value(t, page, "vllm:inter_token_latency_seconds_count"); n != 5100 || mean < 0.0009-1e-9 || mean > 0.0019 {
		t.Errorf("%v intervals of %v s in the mean", n, mean)
	}
}

// A request without free blocks waits, and does not get a 500. Generated tokens take blocks as well.
func TestBlocksRunOut(t *testing.T) {
	t.Parallel()
	o := constant(machine.Millisecond, machine.Millisecond)
	o.Engine.BlockSize, o.Engine.NumGPUBlocks, o.Engine.MaxModelLen, o.Engine.DisablePrefixCaching = 8, 8, 64, true
	b := start(t, o)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			ids := strings.TrimSuffix(strings.Repeat(strconv.Itoa(i+1)+",", 40), ",")
			if resp, body := b.post("/v1/completions",
				`{"prompt":[`+ids+`],"max_tokens":20,"ignore_eos":true}`); resp.StatusCode != 200 {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
	all.Wait()
	if resp, body := b.post("/v1/completions",
		`{"prompt":[`+strings.Repeat("1,", 39)+`1],"max_tokens":500}`); resp.StatusCode != 400 {
		t.Errorf("540 tokens in a cache of 64: %d %s", resp.StatusCode, body)
	}
}

// The time to the first token begins with the request's arrival, and not when the
// engine takes it.
func TestFirstTokenIncludesWaiting(t *testing.T) {
	t.Parallel()
	o := constant(20*machine.Millisecond, machine.Second)
	o.Engine.MaxNumSeqs = 1
	b := start(t, o)
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.URL()+"/v1/completions",
		strings.NewReader(completion(20)))
	var all sync.WaitGroup
	all.Go(func() {
		if resp, err := b.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	})
	b.until("one runs", func() bool { return b.EngineStats().Running == 1 })
	const n = 5
	for range n {
		all.Go(func() { b.post("/v1/completions", completion(1)) })
	}
	b.until("the others wait for one that has its first token", func() bool {
		return b.EngineStats().Waiting == n && value(t, b.page(), "vllm:time_to_first_token_seconds_count") == 1
	})
	leave()
	all.Wait()
	page := b.page()
	sum := func(name string) float64 { return value(t, page, "vllm:"+name+"_seconds_sum") }
	if first, queued, prefill := sum("time_to_first_token"), sum("request_queue_time"),
		sum("request_prefill_time"); queued == 0 || math.Abs(first-queued-prefill) > 1e-3 {
		t.Errorf("first tokens came after %v s together; the requests waited for %v s and were computed for %v s",
			first, queued, prefill)
	}
}

// Gauges follow the truth whatever the load: never below zero, zero at the end;
// and everybody who came is counted as one thing.
func TestGaugesUnderLoad(t *testing.T) {
	t.Parallel()
	o := constant(machine.Millisecond, 100*machine.Microsecond)
	o.Engine.NumGPUBlocks = 64
	b := start(t, o)
	done := make(chan struct{})
	var scrapes sync.WaitGroup
	scrapes.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				checkPage(t, b.page())
			}
		}
	})
	const clients, each = 16, 12
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range each {
				ctx, cancel := context.WithCancel(t.Context())
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.URL()+"/v1/completions",
					strings.NewReader(`{"prompt":"x","max_tokens":60,"stream":true}`))
				if resp, err := b.Do(req); err == nil {
					if (c+i)%3 == 0 {
						_, _ = resp.Body.Read(make([]byte, 10))
						cancel() // leaves in the middle
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	all.Wait()
	close(done)
	scrapes.Wait()
	b.until("nothing runs", func() bool { return b.EngineStats().Running+b.EngineStats().Waiting == 0 && b.idle() })
	page := b.page()
	checkPage(t, page)
	ended := 0.0
	for _, m := range regexp.MustCompile(`(?m)^vllm:request_success_total\{.*\} (\S+)$`).FindAllStringSubmatch(page,
		-1) {
		v, _ := strconv.ParseFloat(m[1], 64)
		ended += v
	}
	if ended != clients*each || value(t, page, "vllm:kv_cache_usage_perc") != 0 {
		t.Errorf("%v requests ended of %d; the cache is used to %v", ended, clients*each,
			value(t, page, "vllm:kv_cache_usage_perc"))
	}
}

// checkPage fails for a metric below zero.
func checkPage(t *testing.T, page string) {
	t.Helper()
	for line := range strings.Lines(page) {
		if i := strings.LastIndexByte(line, ' '); line[0] != '#' && i > 0 && line[i+1] == '-' {
			t.Error(line)
		}
	}
}

// Block ids come as vLLM sends them, whole numbers, also in lists of lists.
func TestWholeNumbersAsBlockIDs(t *testing.T) {
	t.Parallel()
	o := batched()
	o.Engine.KVLoadFailure = engine.KVLoadRecompute
	b := start(t, o)
	for _, ids := range []string{`[1,2,3]`, `[[1],[2]]`} {
		resp, body := b.post("/v1/completions",
			`{"prompt":"x","max_tokens":1,"kv_transfer_params":{"do_remote_prefill":true,"remote_engine_id":"e",`+
				`"remote_host":"127.0.0.1","remote_port":1,"remote_block_ids":`+ids+`}}`)
		if resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", ids, resp.StatusCode, body)
		}
	}
}

// A sleeping server serves no requests, and continues when it wakes.
func TestAsleep(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	b.post("/sleep", "")
	if resp, body := b.post("/v1/completions", completion(1)); resp.StatusCode != 503 {
		t.Errorf("asleep: %d %s", resp.StatusCode, body)
	}
	b.post("/wake_up", "")
	if resp, body := b.post("/v1/completions", completion(1)); resp.StatusCode != 200 {
		t.Errorf("awake: %d %s", resp.StatusCode, body)
	}
}

// logBuffer holds what a server logs, line by line.
type logBuffer struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.Write(line)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.String()
}

// Without llm-d-inference-sim's --enable-sleep-mode, /sleep is accepted and does nothing; --log-http logs it.
func TestSleepIgnored(t *testing.T) {
	t.Parallel()
	var logged logBuffer
	o := batched()
	o.IgnoreSleep, o.LogHTTP = true, true
	b := startWith(t, Options{Servers: []ServerOptions{o}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if resp, body := b.post("/sleep", ""); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := b.post("/v1/completions", completion(1)); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	b.until("both are logged", func() bool {
		text := logged.String()
		return strings.Contains(text, "method=POST uri=/sleep") && strings.Contains(text, "uri=/v1/completions") &&
			strings.Count(text, "status=200") == 2
	})
}

// A prompt's hit in the cache is its longest prefix in the KV events so far, never a part behind a gap, and never the
// prompt's last token. No event for a block precedes the event for its parent. (They get wrong: hits behind evicted
// blocks, heads whose parent is their own tail, whole prompts found.)
func TestCacheIsWhatEventsSay(t *testing.T) {
	t.Parallel()
	var c collector
	o := batched()
	o.Engine.NumGPUBlocks, o.Engine.MaxModelLen = 14, 40 // so little that blocks are evicted all the time
	o.KVEvents = func(_, _ string) (KVPublisher, error) { return &c, nil }
	b := start(t, o)
	type block struct {
		parent kv.EngineHash
		tokens string
	}
	cached := map[block]kv.EngineHash{}
	of := map[kv.EngineHash]block{}
	next := 0
	catchUp := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for ; next < len(c.events); next++ {
			e := c.events[next]
			switch e.Kind {
			case kv.Stored:
				parent := e.Parent
				if _, known := of[parent]; parent != 0 && !known {
					t.Fatalf("a block is told of before its parent %x", parent)
				}
				for i, h := range e.Hashes {
					x := block{parent, fmt.Sprint(e.Tokens[4*i : 4*i+4])}
					cached[x], of[h], parent = h, x, h
				}
			case kv.Removed:
				for _, h := range e.Hashes {
					if _, known := of[h]; !known {
						t.Fatalf("block %x is removed and was never stored", h)
					}
					delete(cached, of[h])
					delete(of, h)
				}
			}
		}
	}
	d := machine.NewDraw(7, "test", "prompts", 0)
	hits, misses := 0, 0
	for range 300 {
		// Prompts of three families, each going its own way at some point.
		family, departs, n := d.Intn(3), d.Intn(30), 1+d.Intn(34)
		prompt := make([]uint32, n)
		for i := range prompt {
			if prompt[i] = uint32(1000*family + i); i >= departs {
				prompt[i] += 100
			}
		}
		b.until("nothing runs", func() bool { return b.EngineStats().Running == 0 })
		catchUp()
		want, parent := 0, kv.EngineHash(0)
		for i := 0; i+4 < n; i += 4 { // at least one token is computed
			h, ok := cached[block{parent, fmt.Sprint(prompt[i : i+4])}]
			if !ok {
				break
			}
			want, parent = want+4, h
		}
		raw, _ := json.Marshal(prompt)
		_, body := b.post("/v1/completions",
			fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"ignore_eos":true}`, raw, 1+d.Intn(5)))
		if !strings.Contains(body, fmt.Sprintf(`"cached_tokens":%d}`, want)) {
			t.Fatalf("prompt %v: want %d cached tokens, got %s", prompt, want, body)
		}
		if want > 0 {
			hits++
		} else {
			misses++
		}
	}
	if hits < 30 || misses < 30 {
		t.Errorf("%d prompts found something, %d nothing: the test shows too little", hits, misses)
	}
}

// A model's real name asks nobody in the network for anything, and the tokens
// are those that an endpoint picker estimates with.
func TestNamesFetchNothing(t *testing.T) {
	t.Parallel()
	o := batched()
	o.Models = []string{"meta-llama/Llama-3.1-8B-Instruct"}
	b := start(t, o)
	if _, body := b.post("/tokenize", `{"prompt":"abcdefgh"}`); !strings.Contains(body,
		`"tokens":[1684234849,1751606885]`) {
		t.Error(body)
	}
}
