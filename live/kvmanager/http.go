package kvmanager

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/serve"
)

func (m *Manager) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/score", m.score)
	mux.HandleFunc("GET /api/v1/cache/state", m.state)
	mux.HandleFunc("GET /api/v1/cache/pod/{id...}", m.pod)
	mux.HandleFunc("GET /api/v1/cache/block/{hash...}", m.block)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", m.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.metrics.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("/", elsewhere)
	return mux
}

// elsewhere answers requests for which there is no handler.
func elsewhere(w http.ResponseWriter, r *http.Request) {
	const here = "POST /api/v1/score, GET /api/v1/cache/state, /api/v1/cache/pod/{id}, /api/v1/cache/block/{hash}, " +
		"/healthz, /readyz and /metrics"
	method := ""
	switch path := r.URL.Path; {
	case path == "/api/v1/score":
		method = http.MethodPost
	case path == "/api/v1/cache/state", path == "/healthz", path == "/readyz", path == "/metrics",
		strings.HasPrefix(path, "/api/v1/cache/pod/"), strings.HasPrefix(path, "/api/v1/cache/block/"):
		method = http.MethodGet
	}
	if method == "" {
		fail(w, http.StatusNotFound, fmt.Errorf("there is no %.200s; there are %s", r.URL.Path, here))
		return
	}
	w.Header().Set("Allow", method)
	fail(w, http.StatusMethodNotAllowed,
		fmt.Errorf("%.20s is not answered at %.200s: expected %s", r.Method, r.URL.Path, method))
}

// ready answers 200 once the manager has started.
func (m *Manager) ready(w http.ResponseWriter, _ *http.Request) {
	if !m.index.Do(func(machine.Time, *kvindex.Index) {}) {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

type decimal = kvindex.Decimal

func cut(v float64, n int) decimal { return kvindex.Cut(v, n) }

// The bodies of document 003 (docs/documents.md#document-003), field by field. Model, cache_salt and messages are
// additions: a prompt's keys depend on them.
type (
	scoreRequest struct {
		Prompt        prompt   `json:"prompt"`
		PromptBlocks  []string `json:"prompt_blocks"`
		CandidatePods []string `json:"candidate_pods"`
		Model         string   `json:"model"`
		CacheSalt     string   `json:"cache_salt"`
		// Messages is the chat whose text Prompt is. The engine tokenizes the chat as the model's template renders
		// it.
		Messages json.RawMessage `json:"messages"`
	}
	stateResponse struct {
		TotalBlocks             int       `json:"total_blocks"`
		UniqueBlocks            int       `json:"unique_blocks"`
		TotalPods               int       `json:"total_pods"`
		AverageCacheUtilization decimal   `json:"average_cache_utilization"`
		GlobalHitRate           decimal   `json:"global_hit_rate"`
		CacheSizeTotalGB        decimal   `json:"cache_size_total_gb"`
		LastUpdated             time.Time `json:"last_updated"`
	}
	podResponse struct {
		PodID              string     `json:"pod_id"`
		BlocksCached       int        `json:"blocks_cached"`
		CacheUtilization   decimal    `json:"cache_utilization"`
		CacheSizeGB        decimal    `json:"cache_size_gb"`
		HitRate            decimal    `json:"hit_rate"`
		EvictionRatePerSec decimal    `json:"eviction_rate_per_sec"`
		TopBlocks          []topBlock `json:"top_blocks"`
		Status             string     `json:"status"`
		LastHeartbeat      time.Time  `json:"last_heartbeat"` // as in the document's pod_statistics
	}
	// blockResponse is an entry of the document's kv_block_index.
	blockResponse struct {
		BlockHash       string     `json:"block_hash"`
		Pods            []blockPod `json:"pods"`
		BlockSize       int        `json:"block_size"` // tokens, as the pods report it; 0 if they do not
		TotalCopies     int        `json:"total_copies"`
		PopularityScore decimal    `json:"popularity_score"`
	}
	blockPod struct {
		PodID       string    `json:"pod_id"`
		Timestamp   time.Time `json:"timestamp"` // when the pod stored it
		AccessCount int       `json:"access_count"`
		LastAccess  time.Time `json:"last_access"`
	}
	topBlock struct {
		BlockHash   string    `json:"block_hash"`
		AccessCount int       `json:"access_count"`
		LastAccess  time.Time `json:"last_access"`
	}
)

// prompt is text, or token ids as engines and the picker's renderer return them.
type prompt struct {
	text string
	ids  []uint32
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *prompt) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &p.text) == nil || json.Unmarshal(b, &p.ids) == nil {
		return nil
	}
	return errors.New("prompt: expected a string or an array of token ids from 0 to 4294967295")
}

const (
	maxCandidates = 32767
	topBlocks     = 10
)

func (m *Manager) score(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	req, status, err := m.readScore(w, r)
	if err != nil {
		fail(w, status, err)
		return
	}
	if len(req.CandidatePods) > maxCandidates {
		fail(w, http.StatusBadRequest,
			fmt.Errorf("candidate_pods has %d elements, the limit is %d", len(req.CandidatePods), maxCandidates))
		return
	}
	known := m.latest.Load()
	keys, err := m.keys(req)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if req.CandidatePods == nil {
		req.CandidatePods = known.names
	}
	resp := m.scores(keys, req.CandidatePods, known)
	m.metrics.requests.Inc()
	m.metrics.scoreTime.Observe(time.Since(began).Seconds())
	answer(w, resp)
	pod, found := resp.Recommendation, resp.Scores[resp.Recommendation].BlocksPresent
	// The message only updates statistics. The index may drop it rather than delay the answer.
	m.index.Post(kvindex.Asked{Pod: pod, Keys: keys, Found: found})
}

// readScore reads a score request. With an error it returns the status of the answer.
func (m *Manager) readScore(w http.ResponseWriter, r *http.Request) (*scoreRequest, int, error) {
	req := &scoreRequest{}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, m.opts.MaxBodyBytes))
	err := d.Decode(req)
	if err == nil {
		if _, end := d.Token(); end == nil || !errors.Is(end, io.EOF) {
			err = errors.New("found more text after the object's closing brace")
			if errors.As(end, new(*http.MaxBytesError)) {
				err = end
			}
		}
	}
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return req, 0, nil
	case errors.As(err, new(*serve.SlowBodyError)):
		return nil, http.StatusRequestTimeout, err
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", large.Limit)
	case errors.Is(err, io.EOF):
		err = errors.New(`it is empty; expected JSON such as {"prompt": "…", "candidate_pods": ["…"]}`)
	case errors.As(err, &kind) && kind.Field == "":
		err = fmt.Errorf("found a JSON %s, expected an object", kind.Value)
	case errors.As(err, &kind):
		err = fmt.Errorf("%s: found a JSON %s, expected %s", kind.Field, kind.Value, fieldKinds[kind.Field])
	}
	return nil, http.StatusBadRequest, fmt.Errorf("the body is not a score request: %w", err)
}

// fieldKinds names the type of each field of a score request, for errors.
var fieldKinds = map[string]string{"prompt_blocks": "a list of block hashes", "candidate_pods": "a list of pods' names",
	"model": "a string", "cache_salt": "a string"}

// text returns the prompt's text as the engine tokenizes it.
func (req *scoreRequest) text(model string) string {
	var chat []openai.Message
	if len(req.Messages) == 0 || json.Unmarshal(req.Messages, &chat) != nil || len(chat) == 0 {
		return req.Prompt.text
	}
	turns := make([]tokens.Message, len(chat))
	for i, msg := range chat {
		turns[i] = tokens.Message{Role: msg.Role, Content: msg.Content.Text}
	}
	return tokens.TemplateFor(model).Render(turns, "", true)
}

// keys returns the keys of a request's blocks: the named ones, or those of its prompt.
func (m *Manager) keys(req *scoreRequest) ([]kv.Key, error) {
	if len(req.PromptBlocks) > 0 {
		keys := make([]kv.Key, len(req.PromptBlocks))
		for i, name := range req.PromptBlocks {
			keys[i] = m.index.View().Resolve(kv.Named(name))
		}
		return keys, nil
	}
	if req.Prompt.text == "" && len(req.Prompt.ids) == 0 {
		return nil, errors.New("neither prompt_blocks nor prompt is there: expected one of them")
	}
	model := cmp.Or(req.Model, m.opts.Model)
	if models := *m.models.Load(); model == "" && len(models) == 1 {
		model = models[0]
	} else if model == "" && len(models) > 1 {
		return nil, fmt.Errorf("the index has %d models and the request names none: name one in the field \"model\"",
			len(models))
	}
	ids := req.Prompt.ids
	if ids == nil {
		ids = m.opts.Tokenizer.Encode(nil, req.text(model))
	}
	return m.opts.Index.Hasher.PromptKeys(model, req.CacheSalt, ids), nil
}

func (m *Manager) scores(keys []kv.Key, candidates []string, known *snapshot) kvindex.Answer {
	scorer := m.scorers.Get().(*kvindex.Scorer)
	defer m.scorers.Put(scorer)
	return scorer.Answer(keys, candidates, known.pods)
}

// read calls f with the index, or answers that the manager is stopping and returns false.
func (m *Manager) read(w http.ResponseWriter, f func(ix *kvindex.Index)) bool {
	ok := m.index.Do(func(_ machine.Time, ix *kvindex.Index) { f(ix) })
	if !ok {
		fail(w, http.StatusServiceUnavailable, errors.New("stopping"))
	}
	return ok
}

func (m *Manager) state(w http.ResponseWriter, _ *http.Request) {
	var s kvindex.State
	updated := machine.Time(0)
	if !m.read(w, func(ix *kvindex.Index) {
		s = ix.State()
		for _, name := range ix.PodNames() {
			p, _ := ix.Pod(name)
			updated = max(updated, p.LastMessage)
		}
	}) {
		return
	}
	answer(w, stateResponse{TotalBlocks: s.Pairs, UniqueBlocks: s.Blocks, TotalPods: s.Pods,
		AverageCacheUtilization: cut(s.Utilization, 2),
		GlobalHitRate:           cut(s.HitRate, 2), CacheSizeTotalGB: cut(float64(s.Bytes)/(1<<30), 1),
		LastUpdated: m.second(updated)})
}

func (m *Manager) pod(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	var p kvindex.PodInfo
	var top []kvindex.Holding
	known := false
	if !m.read(w, func(ix *kvindex.Index) {
		p, known = ix.Pod(id)
		top = ix.Top(id, topBlocks)
	}) {
		return
	}
	if !known {
		fail(w, http.StatusNotFound, fmt.Errorf("no events came from a pod %.200q", id))
		return
	}
	resp := podResponse{PodID: id, BlocksCached: p.Blocks, CacheUtilization: cut(p.Utilization, 2),
		CacheSizeGB: cut(float64(p.Bytes)/(1<<30), 1),
		HitRate:     cut(p.HitRate, 2), EvictionRatePerSec: cut(p.EvictionRate, 2), TopBlocks: []topBlock{},
		Status: "healthy", LastHeartbeat: m.second(p.LastMessage)}
	if !p.Healthy {
		resp.Status = "unhealthy"
	}
	for _, h := range top {
		resp.TopBlocks = append(resp.TopBlocks, topBlock{h.Name, h.Hits, m.second(h.Touched)})
	}
	answer(w, resp)
}

// block reports which pods hold a block.
func (m *Manager) block(w http.ResponseWriter, r *http.Request) {
	hash := r.PathValue("hash")
	var held []kvindex.Holding
	var popularity float64
	if !m.read(w, func(ix *kvindex.Index) {
		held, popularity = ix.Holders(ix.View().Resolve(kv.Named(hash)))
	}) {
		return
	}
	if len(held) == 0 {
		fail(w, http.StatusNotFound, fmt.Errorf("no pod holds a block %.200q", hash))
		return
	}
	resp := blockResponse{BlockHash: hash, TotalCopies: len(held), PopularityScore: cut(popularity, 2)}
	for _, h := range held {
		resp.BlockSize = max(resp.BlockSize, h.Tokens)
		resp.Pods = append(resp.Pods, blockPod{h.Pod, m.second(h.Stored), h.Hits, m.second(h.Touched)})
	}
	answer(w, resp)
}

// second converts a time of the index to the document's format of times.
func (m *Manager) second(t machine.Time) time.Time {
	return m.index.Wall(t).UTC().Truncate(time.Second)
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client has closed the connection.
	_ = json.NewEncoder(w).Encode(body)
}

// fail answers with an error in JSON: {"error": "…"}.
func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}
