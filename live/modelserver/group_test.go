package modelserver

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
)

// grouped is a server of four ranks on two nodes.
func grouped(t *testing.T) ServerOptions {
	t.Helper()
	h, err := hardware.Names{Model: "llama-3.1-8b", Accelerator: "A100", TP: 4, Nodes: 2}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	timer, err := latency.New(latency.Config{Hardware: h})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := hardware.PlanMemory(hardware.MemoryConfig{Hardware: h, MaxModelLen: 8192})
	if err != nil {
		t.Fatal(err)
	}
	return ServerOptions{Models: []string{"m"}, TensorParallel: 4,
		MemoryBytes: plan.Weights + plan.Activations + plan.Runtime, Steps: lifecycle.StepPhases,
		Engine: engine.Config{Timer: timer, ReportSteps: true, NumGPUBlocks: plan.NumGPUBlocks,
			KVBytesPerToken: plan.BlockBytes * 4 / 16}}
}

func (b *bench) text(method, path, body string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.URL()+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.Client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all)
}

func (b *bench) gauge(name string) float64 {
	b.t.Helper()
	_, page := b.text(http.MethodGet, "/metrics", "")
	m := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		b.t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// Document 003's group: rank 0 broadcasts each step to the others, every layer ends in all-reduces, and the record has
// each with its time.
func TestGroupSteps(t *testing.T) {
	t.Parallel()
	b := start(t, grouped(t))
	if status, body := b.text(http.MethodPost, "/v1/completions",
		`{"prompt":"Say something about wind.","max_tokens":5,"ignore_eos":true}`); status != 200 {
		t.Fatal(status, body)
	}
	steps := 0
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Step != record.EngineStep {
			continue
		}
		if e.Request != "" || e.Details.Get("ranks") != 4 || e.Details.Get("nodes") != 2 ||
			e.Details.Get("all_reduces") != 64 {
			t.Fatalf("%+v", e)
		}
		phases := e.Details.Get("phases").([]any)
		var sum float64
		for _, p := range phases {
			sum += p.(map[string]any)["us"].(float64)
		}
		if took := e.Details.Get("took_us").(float64); len(phases) != 2*64+3 || sum < took-0.01 || sum > took+0.01 ||
			e.Details.Get("broadcast_us").(float64) <= 0 {
			t.Fatalf("%d phases of %v us in a step of %v", len(phases), sum, took)
		}
		steps++
	}
	if steps != 5 { // one for the prompt and the first token
		t.Fatalf("%d steps for 5 tokens", steps)
	}
}

// Whoever loses a rank has lost the group: what is in flight fails, nothing
// more is taken, and a restart brings all of it back.
func TestLostRank(t *testing.T) {
	t.Parallel()
	b := start(t, grouped(t))
	if status, body := b.text(http.MethodPost, "/admin/fail_rank?rank=4", ""); status != 400 ||
		!strings.Contains(body, "0 to 3") {
		t.Fatal(status, body)
	}
	ended := make(chan string, 1)
	go func() {
		resp, err := b.Post(b.URL()+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"x","max_tokens":8000,"ignore_eos":true,"stream":true}`))
		if err != nil {
			ended <- err.Error()
			return
		}
		defer resp.Body.Close()
		all, _ := io.ReadAll(resp.Body)
		ended <- string(all)
	}()
	b.until("a request in the batch",
		func() bool { return b.EngineStats().Running == 1 && b.EngineStats().GenerationTokens > 0 })
	if status, body := b.text(http.MethodPost, "/admin/fail_rank?rank=3", ""); status != 200 {
		t.Fatal(status, body)
	}
	if body := <-ended; !strings.Contains(body, "error") || strings.Contains(body, "[DONE]\n\ndata") {
		t.Fatalf("the request in flight: %.300s", body)
	}
	if status, body := b.text(http.MethodPost, "/v1/completions", `{"prompt":"x","max_tokens":1}`); status != 503 ||
		!strings.Contains(body, "rank") {
		t.Fatal(status, body)
	}
	if status, _ := b.text(http.MethodGet, "/health", ""); status != 503 {
		t.Fatal("a group without a rank is healthy: ", status)
	}
	if status, body := b.text(http.MethodPost, "/admin/restart", ""); status != 200 {
		t.Fatal(status, body)
	}
	if status, body := b.text(http.MethodPost, "/v1/completions", `{"prompt":"x","max_tokens":1}`); status != 200 {
		t.Fatal(status, body)
	}
	if s := b.EngineStats(); s.Running+s.Waiting != 0 {
		t.Fatalf("%+v", s)
	}
}

// Document 003's GPU metrics come from what the steps computed and read.
func TestUtilization(t *testing.T) {
	t.Parallel()
	b := start(t, grouped(t))
	if v := b.gauge("vllm_gpu_utilization_percent"); v != 0 {
		t.Fatalf("an idle server is busy: %v", v)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := b.Post(b.URL()+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"x","max_tokens":150,"ignore_eos":true}`)); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	<-done
	b.until("a whole second in the window",
		func() bool { return b.gauge("vllm_gpu_memory_bandwidth_utilization_percent") > 0 })
	busy, compute, memory := b.gauge("vllm_gpu_utilization_percent"), b.gauge("vllm_gpu_compute_utilization_percent"),
		b.gauge("vllm_gpu_memory_bandwidth_utilization_percent")
	// one sequence reads far more than it computes
	if !(0 < compute && compute < memory && memory < busy && busy <= 100) {
		t.Fatalf("busy %v %%, arithmetic %v %%, bandwidth %v %%", busy, compute, memory)
	}
	used, all := b.gauge("vllm_gpu_memory_used_bytes"), b.gauge("vllm_gpu_memory_total_bytes")
	if used < 0.85*all || used > 0.9*all { // gpu-memory-utilization 0.9, KV cache and all
		t.Fatalf("%v of %v bytes in use", used, all)
	}
}

// A server that does not fit is killed and restarted, and says why.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	o := fast()
	o.OutOfMemory = &hardware.OutOfMemoryError{Where: "accelerator", What: "the weights need", Need: 129 << 30,
		Have: 72 << 30, Remedy: "use quantization"}
	b := start(t, o)
	for _, path := range []string{"/health", "/v1/models", "/metrics"} {
		if status, body := b.text(http.MethodGet, path, ""); status != 503 || !strings.Contains(body, "OOMKilled") ||
			!strings.Contains(body, "129.00 GiB") {
			t.Fatal(path, status, body)
		}
	}
	client := *b.Client
	client.Timeout = time.Minute
	if resp, err := client.Post(b.URL()+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt":"x"}`)); err != nil || resp.StatusCode != 503 {
		t.Fatal(resp, err)
	} else {
		resp.Body.Close()
	}
	_, _, err := generateCall(t, t.Context(), dial(t, b), ask("r", 1, false))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "129.00 GiB") {
		t.Fatal(err)
	}
}
