package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/calibrate"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/core/wire/sse"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// Prober sends the probes of a calibrate.Plan to a server with OpenAI's API.
type Prober struct {
	base, model, key string
	http             http.Client
	seed             uint64
	probes           uint64
	prompts          [][]uint32 // of the last probe
}

// NewProber returns a Prober for the server at a URL such as http://127.0.0.1:8000. Key is the API key, or "". The
// seed determines the prompts. Each run needs another seed, because the server has cached the prompts of earlier
// runs.
func NewProber(base, key string, seed uint64) *Prober {
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	return &Prober{base: strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1"), key: key, seed: seed,
		http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 12}}}
}

// maxProbeEvent bounds one event of an answer, in bytes.
const maxProbeEvent = 1 << 20

func (p *Prober) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // the part that could be read goes into the error
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, strings.TrimSpace(string(text)))
	}
	return resp, nil
}

// page returns the body of the answer to GET.
func (p *Prober) page(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := p.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, maxModelsBytes))
}

// Discover reads the server's data. Model is the model to look for, or "" for the first one.
func (p *Prober) Discover(ctx context.Context, model string) (s calibrate.Server, err error) {
	models, err := p.models(ctx)
	if err != nil {
		return s, err
	}
	for _, m := range models {
		if m.ID != "" && (model == "" || m.ID == model) {
			s.Model, s.ModelLen = m.ID, max(0, m.MaxLen)
			break
		}
	}
	if s.Model == "" {
		return s, fmt.Errorf("GET /v1/models: the server does not serve %q", cmp.Or(model, "any model"))
	}
	p.model = s.Model
	// These pages are optional.
	if text, err := p.page(ctx, "/version"); err == nil {
		var v struct {
			Version string `json:"version"`
		}
		if json.Unmarshal(text, &v) == nil {
			s.Version = v.Version
		}
	}
	if text, err := p.page(ctx, "/metrics"); err == nil {
		readMetrics(&s, text)
	}
	path := "/health"
	if _, err := p.page(ctx, path); err != nil {
		path = "/v1/models"
	}
	var took []time.Duration
	for range 20 {
		began := time.Now()
		if _, err := p.page(ctx, path); err != nil {
			return s, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	s.Overhead = took[len(took)/2]
	return s, nil
}

const (
	runningMetric = "vllm:num_requests_running"
	waitingMetric = "vllm:num_requests_waiting"
	cacheMetric   = "vllm:cache_config_info"
)

// readMetrics reads vLLM's metrics page. Missing values stay unknown.
func readMetrics(s *calibrate.Server, text []byte) {
	page, err := metrics.Parse(text, func(name string) bool {
		return name == runningMetric || name == waitingMetric || name == cacheMetric
	})
	if err != nil {
		return
	}
	for name, family := range page {
		for _, x := range family.Samples {
			if name == cacheMetric {
				blocks, _ := strconv.Atoi(x.Get("num_gpu_blocks")) // 0 means unknown
				tokens, _ := strconv.Atoi(x.Get("block_size"))
				s.KVTokens = min(max(0, min(blocks, 1<<30))*max(0, min(tokens, 1<<20)), 1<<40)
			} else if x.Value > 0 && x.Value < 1e9 {
				s.Busy += int(x.Value)
			}
		}
	}
}

// Probe sends a probe's requests, all at once or each at its time, and waits for their answers.
func (p *Prober) Probe(ctx context.Context, x calibrate.Probe) (calibrate.Result, error) {
	all := make([]calibrate.Send, x.Requests, x.Requests+len(x.Later))
	for i := range all {
		all[i] = calibrate.Send{Prompt: x.Prompt, Tokens: x.Tokens}
	}
	all = append(all, x.Later...)
	if !x.Again {
		p.probes++
		p.prompts = nil
		for i := range all {
			draw := rand.New(rand.NewPCG(p.seed, p.probes<<20+uint64(i)))
			prompt := make([]uint32, all[i].Prompt)
			for k := range prompt {
				prompt[k] = 1000 + draw.Uint32N(20000) // ordinary tokens in every vocabulary
			}
			p.prompts = append(p.prompts, prompt)
		}
	}
	r := calibrate.Result{Arrived: make([][]machine.Time, len(all)), Sent: make([]machine.Time, len(x.Later)),
		Cached: -1}
	bodies := make([][]byte, len(all))
	for i, s := range all {
		var err error
		if bodies[i], err = json.Marshal(
			map[string]any{"model": p.model, "prompt": p.prompts[i], "max_tokens": s.Tokens, "min_tokens": s.Tokens,
				"ignore_eos":  true,
				"temperature": 0, "stream": true,
				"stream_options": map[string]bool{"include_usage": true, "continuous_usage_stats": true}}); err != nil {
			return r, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(all))
	cached := make([]int, len(all))
	var wg sync.WaitGroup
	began := time.Now()
	for i, s := range all {
		wg.Go(func() {
			if i >= x.Requests {
				if !pause.For(ctx, s.At.Duration()-time.Since(began)) {
					errs[i] = ctx.Err()
					return
				}
				r.Sent[i-x.Requests] = machine.FromDuration(time.Since(began))
			}
			if r.Arrived[i], cached[i], errs[i] = p.answer(ctx, bodies[i], began, s.Prompt); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	r.Cached = cached[0]
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return r, fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	return r, errors.Join(errs...)
}

// answer reads one streamed answer and returns when each of its tokens arrived.
func (p *Prober) answer(ctx context.Context, body []byte, began time.Time, prompt int) (arrived []machine.Time,
	cached int, err error) {
	resp, err := p.send(ctx, http.MethodPost, "/v1/completions", body)
	if err != nil {
		return nil, -1, err
	}
	defer resp.Body.Close()
	a := probed{prompt: prompt, cached: -1}
	events, piece := sse.Scanner{Limit: maxProbeEvent}, make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(piece)
		at := machine.FromDuration(time.Since(began))
		events.Write(piece[:n])
		for e, ok := events.Next(); ok; e, ok = events.Next() {
			if err := a.take(at, e.Data); err != nil {
				return a.arrived, a.cached, err
			}
		}
		switch {
		case events.TooLong():
			return a.arrived, a.cached,
				fmt.Errorf("POST /v1/completions: a piece of the answer is longer than %d bytes", maxProbeEvent)
		case errors.Is(err, io.EOF):
			return a.arrived, a.cached, nil
		case err != nil:
			return a.arrived, a.cached, err
		}
	}
}

// probed holds what a streamed answer has contained so far.
type probed struct {
	prompt, seen, cached int
	arrived              []machine.Time
}

// take reads one event of the answer.
func (a *probed) take(at machine.Time, data []byte) error {
	if len(data) == 0 || string(bytes.TrimSpace(data)) == "[DONE]" {
		return nil
	}
	var chunk struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
		Usage *struct {
			PromptTokens     int `json:"prompt_tokens"`
			CompletionTokens int `json:"completion_tokens"`
			Details          *struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return fmt.Errorf("POST /v1/completions: a piece of the answer: %w", err)
	}
	if len(chunk.Error) > 0 {
		return fmt.Errorf("POST /v1/completions: %s", chunk.Error)
	}
	u := chunk.Usage
	if u != nil {
		if u.PromptTokens > 0 && u.PromptTokens != a.prompt {
			return fmt.Errorf("the server counts %d tokens in a prompt of %d token ids; expected as many",
				u.PromptTokens, a.prompt)
		}
		if u.Details != nil {
			a.cached = u.Details.CachedTokens
		}
	}
	switch {
	case len(chunk.Choices) == 0:
	case u != nil && u.CompletionTokens > a.seen:
		a.seen = u.CompletionTokens
		a.arrived = append(a.arrived, at)
	case u == nil && chunk.Choices[0].Text != "":
		a.arrived = append(a.arrived, at)
	}
	return nil
}
