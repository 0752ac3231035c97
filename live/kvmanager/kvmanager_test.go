package kvmanager

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/live/serve"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, change func(*Options)) *Manager {
	t.Helper()
	o := DefaultOptions()
	o.ZMQBind, o.HTTPAddress = "tcp://127.0.0.1:0", "127.0.0.1:0"
	if change != nil {
		change(&o)
	}
	m, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func publish(t *testing.T, m *Manager, from kv.Topic, format kvevents.Format) *kvevents.Publisher {
	t.Helper()
	p, err := kvevents.NewPublisher(
		kvevents.PublisherOptions{Topic: from, Connect: []string{m.ZMQEndpoint()}, Format: format, Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers == 1 })
	return p
}

func call(t *testing.T, m *Manager, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+m.HTTPAddress()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// seen waits until the API reports so many pairs of block and pod, and until scoring uses them.
func seen(t *testing.T, m *Manager, pairs int) {
	t.Helper()
	eventually.Is(t, fmt.Sprintf("%d pairs", pairs), func() bool {
		sum := 0
		for _, p := range m.latest.Load().pods {
			sum += p.Blocks
		}
		return sum == pairs
	})
}

// The scripts under testdata are conversations as document 003 shows them: what engines publish, the HTTP requests
// and the answers. Metrics that depend on time are left out.
func TestDocument(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var m *Manager
		pubs := map[string]*kvevents.Publisher{}
		raw := map[string]bool{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "start":
				m = start(t, func(o *Options) {
					o.Index.Hasher.BlockTokens = 4
					if d.HasArg("capacity-mb-per-block") {
						o.Index.Bytes = 1 << 20
					}
				})
			case "json": // one KVEvent per line
				for line := range strings.Lines(d.Input) {
					b, err := kvcodec.DecodeJSON([]byte(line), kvcodec.Limits{})
					if err != nil {
						t.Fatal(err)
					}
					pod := b.Events[0].Pod
					if !raw[pod] {
						pubs[pod], raw[pod] = publish(t, m, kv.Topic{Pod: pod}, kvevents.JSON), true
					}
					pubs[pod].Publish(b.Events[0])
				}
			case "msgpack": // "pod stores|removes first..last of a prompt's words"
				for line := range strings.Lines(d.Input) {
					var pod, what string
					var from, to int
					fmt.Sscanf(strings.TrimSpace(line), "%s %s %d..%d", &pod, &what, &from, &to)
					if pubs[pod] == nil {
						pubs[pod] = publish(t, m, kv.Topic{Pod: pod, Model: "llama"}, kvevents.Msgpack)
					}
					text := strings.Repeat("Tell me about machine learning. ", 8)
					ids := tokens.Packed{}.Encode(nil, text)
					e := kv.Event{Kind: kv.Stored, Medium: kv.MediumGPU, Group: kv.NoGroup, BlockTokens: 4}
					if what == "removes" {
						e.Kind = kv.Removed
					} else {
						e.Tokens = ids[4*from : 4*(to+1)]
						if from > 0 {
							e.Parent = kv.EngineHash(from)
						}
					}
					for i := from; i <= to; i++ {
						e.Hashes = append(e.Hashes, kv.EngineHash(i+1))
					}
					pubs[pod].Publish(e)
				}
			case "settled":
				var pairs int
				d.ScanArgs(t, "pairs", &pairs)
				seen(t, m, pairs)
			case "POST", "GET":
				var path string
				d.ScanArgs(t, "path", &path)
				if d.HasArg("after-scores") {
					var n float64
					d.ScanArgs(t, "after-scores", &n)
					eventually.Is(t, "the statistics", func() bool {
						done := false
						m.index.Do(func(_ machine.Time, ix *kvindex.Index) { done = ix.Stats().Asked >= uint64(n) })
						return done
					})
				}
				status, body := call(t, m, d.Cmd, path, d.Input)
				if path == "/metrics" {
					var lines []string
					for line := range strings.Lines(body) {
						if !strings.HasPrefix(line, "#") && !strings.Contains(line, "duration") &&
							!strings.Contains(line, "eviction_rate") && !strings.Contains(line, "lag") {
							lines = append(lines, line)
						}
					}
					return strings.Join(lines, "")
				}
				var v any
				if json.Unmarshal([]byte(body), &v) != nil {
					return fmt.Sprintf("%d %s", status, body)
				}
				hideTimes(v)
				if d.HasArg("raw") {
					return fmt.Sprintf("%d %s", status, body)
				}
				text, _ := json.MarshalIndent(v, "", "  ")
				return fmt.Sprintf("%d\n%s\n", status, text)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

func hideTimes(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Collect(maps.Keys(v)) {
			if s, ok := v[key].(string); ok &&
				slices.Contains([]string{"last_access", "last_updated", "last_heartbeat", "timestamp"}, key) {
				if _, err := time.Parse(time.RFC3339, s); err == nil && strings.HasSuffix(s, "Z") {
					v[key] = "a time"
				}
			}
			hideTimes(v[key])
		}
	case []any:
		for _, e := range v {
			hideTimes(e)
		}
	}
}

// Each of document 003's environment variables has an effect.
func TestFromEnv(t *testing.T) {
	env := func(pairs ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1], true
				}
			}
			return "", false
		}
	}
	o := DefaultOptions()
	if err := o.FromEnv(env("ZMQ_BIND_ADDRESS", "tcp://0.0.0.0:5555", "HTTP_PORT", "8181", "INDEX_TTL", "1800",
		"INDEX_MAX_BLOCKS", "5000",
		"INDEX_CLEANUP_INTERVAL", "5m", "VLLM_KV_BLOCK_SIZE", "64", "VLLM_KV_EVENT_ENABLED", "true",
		"VLLM_KV_EVENT_ZMQ_ENDPOINT", "tcp://kv-cache-manager.llm-d-system.svc.cluster.local:6000",
		"VLLM_KV_EVENT_INTERVAL_MS", "250")); err != nil {
		t.Fatal(err)
	}
	want := DefaultOptions()
	want.ZMQBind, want.HTTPAddress = "tcp://0.0.0.0:5555", "127.0.0.1:8181"
	want.Index.TTL, want.Index.ForgetAfter, want.Index.MaxBlocks, want.Index.CleanupInterval = 1800*machine.Second,
		1800*machine.Second, 5000, 300*machine.Second
	want.Index.Hasher.BlockTokens, want.Feed.Wait = 64, 250*machine.Millisecond
	if diff := cmp.Diff(want, o); diff != "" {
		t.Fatal(diff)
	}
	o = DefaultOptions()
	if err := o.FromEnv(env("VLLM_KV_EVENT_ZMQ_ENDPOINT", "tcp://x:6000")); err != nil ||
		o.ZMQBind != "tcp://127.0.0.1:6000" {
		t.Fatalf("%v %q", err, o.ZMQBind)
	}
	if err := o.FromEnv(env("VLLM_KV_EVENT_ZMQ_ENDPOINT", "tcp://x:6001,tcp://y:6002")); err != nil ||
		o.ZMQBind != "tcp://127.0.0.1:6001" {
		t.Fatalf("%v %q", err, o.ZMQBind)
	}
	if err := o.FromEnv(env("VLLM_KV_EVENT_ENABLED", "false")); err != nil || o.ZMQBind != "" {
		t.Fatalf("%v %q", err, o.ZMQBind)
	}
	for name, value := range map[string]string{"HTTP_PORT": "http", "INDEX_TTL": "-1", "INDEX_MAX_BLOCKS": "many",
		"VLLM_KV_BLOCK_SIZE":    "0",
		"VLLM_KV_EVENT_ENABLED": "perhaps", "VLLM_KV_EVENT_ZMQ_ENDPOINT": "nowhere", "VLLM_KV_EVENT_INTERVAL_MS": "0"} {
		if err := o.FromEnv(env(name, value)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if l, err := LogLevel("WARNING"); l != slog.LevelWarn || err != nil {
		t.Errorf("WARNING: %v %v", l, err)
	}
	if _, err := LogLevel("loud"); err == nil {
		t.Error("loud was taken")
	}
	for text, want := range map[string]Pod{
		"10.0.0.1:8000@llama=tcp://10.0.0.1:5557,tcp://10.0.0.1:5558": {kv.Topic{Pod: "10.0.0.1:8000", Model: "llama"},
			"tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558"},
		"p=tcp://h:1": {kv.Topic{Pod: "p"}, "tcp://h:1", ""},
	} {
		if got, err := ParsePod(text); err != nil || got != want {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
	if _, err := ParsePod("p"); err == nil {
		t.Error("a pod without an endpoint was taken")
	}
}

// Log lines have document 003's keys.
func TestLogKeys(t *testing.T) {
	var out lockedBuffer
	m := start(t, func(o *Options) { o.Log = NewLogger(&out, slog.LevelInfo) })
	publish(t, m, kv.Topic{Pod: "vllm-decode-pod-1"},
		kvevents.JSON).Publish(kv.Event{Kind: kv.Stored, Name: "sha256:abc123...", ByName: true,
		Hashes: []kv.EngineHash{1}, BlockTokens: 64, Medium: kv.MediumGPU, Group: kv.NoGroup})
	seen(t, m, 1)
	m.Close()
	for line := range strings.Lines(out.String()) {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if got["message"] != "KVEvent received" {
			continue
		}
		if _, err := time.Parse(time.RFC3339, fmt.Sprint(got["timestamp"])); err != nil {
			t.Error(err)
		}
		if ms, ok := got["processing_time_ms"].(float64); !ok || ms < 0 {
			t.Errorf("processing_time_ms is %v", got["processing_time_ms"])
		}
		delete(got, "timestamp")
		delete(got, "processing_time_ms")
		want := map[string]any{"level": "info", "component": "event_subscriber", "message": "KVEvent received",
			"event_type": "BLOCK_CREATED",
			"pod_id":     "vllm-decode-pod-1", "block_hash": "sha256:abc123...", "block_size": 64.0, "events": 1.0}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		return
	}
	t.Fatalf("no line about the event in\n%s", out.String())
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Bodies that are wrong or too large are refused with a sentence.
func TestRefusals(t *testing.T) {
	t.Parallel()
	m := start(t, func(o *Options) { o.MaxBodyBytes = 1000 })
	for body, want := range map[string]string{
		`{`:  "400 the body is not a score request",
		``:   "400 the body is not a score request: it is empty; expected JSON such as",
		`[]`: "400 the body is not a score request: found a JSON array, expected an object",
		`{"candidate_pods":"a"}`: "400 the body is not a score request: candidate_pods: found a JSON string, " +
			"expected a list of pods' names",
		`{"prompt_blocks":[1]}`: "400 the body is not a score request: prompt_blocks: found a JSON number, " +
			"expected a list of block hashes",
		`{"prompt":"x"} {}`: "400 the body is not a score request: found more text after the object's closing brace",
		`{"prompt": 5}`: "400 the body is not a score request: prompt: expected a string or an " +
			"array of token ids",
		`{}`:                             "400 neither prompt_blocks nor prompt is there",
		strings.Repeat(" ", 2000) + `{}`: "413 the body is larger than 1000 bytes",
	} {
		status, got := call(t, m, "POST", "/api/v1/score", body)
		if got = fmt.Sprintf("%d %s", status, got); !strings.Contains(strings.Replace(got, `{"error":"`, "", 1), want) {
			t.Errorf("%.40s: got %s, want %s", body, got, want)
		}
	}
	if status, body := call(t, m, "GET", "/api/v1/cache/pod/nobody", ""); status != 404 ||
		!strings.Contains(body, "nobody") {
		t.Errorf("%d %s", status, body)
	}
	for request, want := range map[string]string{
		"GET /api/v1/score":         "405 GET is not answered at /api/v1/score: expected POST",
		"POST /api/v1/cache/state":  "405 POST is not answered at /api/v1/cache/state: expected GET",
		"DELETE /api/v1/cache/pod/": "405 DELETE is not answered at",
		"GET /api/v2":               "404 there is no /api/v2; there are POST /api/v1/score,",
	} {
		method, path, _ := strings.Cut(request, " ")
		status, got := call(t, m, method, path, "")
		if got = fmt.Sprintf("%d %s", status, got); !strings.Contains(strings.Replace(got, `{"error":"`, "", 1), want) {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
	for _, o := range []Options{{ZMQBind: "ipc:///tmp/x", HTTPAddress: "127.0.0.1:0"}, {HTTPAddress: "nowhere:port"},
		{HTTPAddress: "127.0.0.1:0", Pods: []Pod{{Endpoint: "x"}}}, {HTTPAddress: m.HTTPAddress()}} {
		if _, err := Start(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// With two models, a prompt must name one. A prompt of token ids works as well.
func TestModels(t *testing.T) {
	t.Parallel()
	m := start(t, nil)
	ids := make([]uint32, 32)
	for i, model := range []string{"one", "two"} {
		publish(t, m, kv.Topic{Pod: "p" + model, Model: model}, kvevents.MsgpackMap).Publish(kv.Event{Kind: kv.Stored,
			Hashes: []kv.EngineHash{kv.EngineHash(1<<40 + i)}, Tokens: ids[:16*(i+1)], BlockTokens: 16,
			Medium: kv.MediumGPU, Group: kv.NoGroup})
	}
	seen(t, m, 3)
	body, _ := json.Marshal(map[string]any{"prompt": ids})
	if status, text := call(t, m, "POST", "/api/v1/score", string(body)); status != 400 ||
		!strings.Contains(text, "2 models") {
		t.Fatalf("%d %s", status, text)
	}
	body, _ = json.Marshal(map[string]any{"prompt": ids, "model": "two"})
	if status, text := call(t, m, "POST", "/api/v1/score", string(body)); status != 200 ||
		!strings.Contains(text, `"recommendation":"ptwo"`) {
		t.Fatalf("%d %s", status, text)
	}
}

// The manager restarts with an empty index. Publishers reconnect by themselves, and the replay restores what it has.
func TestManagerRestarts(t *testing.T) {
	t.Parallel()
	p, err := kvevents.NewPublisher(
		kvevents.PublisherOptions{Topic: kv.Topic{Pod: "p", Model: "m"}, Bind: "tcp://127.0.0.1:0",
			Replay: "tcp://127.0.0.1:0", Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ids := make([]uint32, 160)
	var parent kv.EngineHash
	for i := range 10 {
		h := kv.EngineHash(1<<40 + i)
		p.Publish(kv.Event{Kind: kv.Stored, Parent: parent, Hashes: []kv.EngineHash{h}, Tokens: ids[16*i : 16*i+16],
			BlockTokens: 16, Medium: kv.MediumGPU, Group: kv.NoGroup})
		parent = h
	}
	for range 2 {
		m := start(t, func(o *Options) {
			o.ZMQBind = ""
			o.Pods = []Pod{{kv.Topic{Pod: "p", Model: "m"}, p.Endpoint(), p.ReplayEndpoint()}}
		})
		seen(t, m, 10)
		if got := len(m.Keys("p")); got != 10 {
			t.Fatalf("%d keys", got)
		}
		m.Hangup("p")
		seen(t, m, 0)
		m.Close()
	}
}

// Malformed messages are dropped and counted. Other publishers' messages take effect.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	m := start(t, nil)
	bad := publish(t, m, kv.Topic{Pod: "p", Model: "m"}, kvevents.Msgpack)
	bad.Publish(kv.Event{Kind: kv.Stored, Hashes: make([]kv.EngineHash, 1), Tokens: []uint32{1},
		LoRAName: strings.Repeat("x", 5000)})
	nameless := publish(t, m, kv.Topic{}, kvevents.Msgpack)
	nameless.Publish(kv.Event{Kind: kv.Cleared})
	m.received(kvevents.Report{Lost: "all"})
	publish(t, m, kv.Topic{Pod: "q", Model: "m"}, kvevents.MsgpackMap).Publish(kv.Event{Kind: kv.Cleared})
	eventually.Is(t, "all three", func() bool {
		_, text := call(t, m, "GET", "/metrics", "")
		return strings.Contains(text, "pods_tracked 1") &&
			strings.Count(text, "kv_cache_manager_messages_dropped_total{") == 3
	})
	_, metrics := call(t, m, "GET", "/metrics", "")
	for _, want := range []string{`messages_dropped_total{reason="malformed"} 1`,
		`messages_dropped_total{reason="nameless"} 1`,
		`messages_dropped_total{reason="lost"} 1`, "kv_cache_manager_pods_tracked 1"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is not in\n%s", want, metrics)
		}
	}
}

// If an engine reports the size of its cache, the API reports sizes and utilization.
func TestSizes(t *testing.T) {
	t.Parallel()
	m := start(t, nil)
	p, err := kvevents.NewPublisher(
		kvevents.PublisherOptions{Topic: kv.Topic{Pod: "p", Model: "m"}, Connect: []string{m.ZMQEndpoint()},
			Format: kvevents.JSON, Interval: -1, BlockBytes: 1 << 29, CapacityBlocks: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers == 1 })
	p.Publish(kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{1, 2, 3}, Tokens: make([]uint32, 48), BlockTokens: 16,
		Medium: kv.MediumGPU, Group: kv.NoGroup})
	seen(t, m, 3)
	if _, text := call(t, m, "GET", "/api/v1/cache/pod/p", ""); !strings.Contains(text,
		`"cache_utilization":0.75,"cache_size_gb":1.5`) {
		t.Fatal(text)
	}
}

// The manager ends when the API's listener ends, and does not start when it cannot listen.
func TestListener(t *testing.T) {
	t.Parallel()
	m := start(t, nil)
	m.serving.Go("the API", func() error { return net.ErrClosed })
	if err := serve.Until(t.Context(), time.Second, m.Failed(), m.Stop); exit.Of(err) != exit.Broken {
		t.Errorf("%v", err)
	}
	if _, err := Start(Options{HTTPAddress: "x"}); exit.Of(err) != exit.Environment {
		t.Errorf("a wrong address: %v", err)
	}
	other := start(t, nil)
	if _, err := Start(Options{HTTPAddress: "127.0.0.1:0", ZMQBind: other.ZMQEndpoint()}); exit.Of(
		err) != exit.Environment {
		t.Errorf("a taken one: %v", err)
	}
}

// A manager that exceeds its memory limit ends, and its error names the settings to change.
func TestMemoryLimit(t *testing.T) { // not in parallel: the limit is the process's
	m := start(t, func(o *Options) { o.MemoryLimit = 1 << 20 })
	var killed *OutOfMemoryError
	err := serve.Until(t.Context(), time.Second, m.Failed(), m.Stop)
	if !errors.As(err, &killed) || exit.Of(err) != exit.Broken || !strings.Contains(err.Error(), "INDEX_MAX_BLOCKS") {
		t.Fatal(err)
	}
	enough := start(t, func(o *Options) { o.MemoryLimit = 1 << 40 })
	if _, body := call(t, enough, "GET", "/readyz", ""); body != "ok\n" {
		t.Error(body)
	}
}

// Pods that do not exist cost little memory, and the metrics page stays readable whatever their names are.
func TestMadeUpPods(t *testing.T) { // not in parallel: it looks at the heap
	m := start(t, nil)
	nc, err := net.Dial("tcp", strings.TrimPrefix(m.ZMQEndpoint(), "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	pub, err := zmq4.Open(nc, null.Security(), zmq4.Pub, nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	event := kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{1}, Tokens: make([]uint32, 16), BlockTokens: 16,
		Medium: kv.MediumGPU, Group: kv.NoGroup}
	say := func(pod string) {
		payload := kvcodec.AppendBatch(nil, kv.Batch{Events: []kv.Event{event}}, kvcodec.ArrayForm)
		if err := pub.SendMsg(zmq4.NewMsgFrom([]byte("kv@"+pod+"@m"), kv.EncodeSequence(0), payload)); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(pod string) {
		say(pod)
		eventually.Is(t, pod, func() bool { _, ok := m.latest.Load().pods[pod]; return ok })
	}
	heard("first")
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	const pods = 5000
	for i := range pods {
		say(fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256))
	}
	for i := range 200 {
		say(fmt.Sprint(i, strings.Repeat("x", 200_000)))
		say("\xff")
	}
	heard("last")
	if each := (heap() - before) / pods; each > 2500 {
		t.Errorf("a pod costs %d bytes", each)
	}
	status, page := call(t, m, http.MethodGet, "/metrics", "")
	if n := strings.Count(page, "kv_cache_manager_hit_rate{"); status != 200 || n != pods+2 || len(page) > 2<<20 {
		t.Errorf("%d: %d pods on a page of %d bytes", status, n, len(page))
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(page)); err != nil {
		t.Error(err)
	}
}
