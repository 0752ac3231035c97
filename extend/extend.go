// Package extend turns scorers in the two forms of documents 002 and 003 (docs/documents.md) into plug-ins, so that a
// scorer written from these documents runs in windtunnel unchanged.
//
// This is the short way. The full interfaces, one per kind of plug-in (filters, scorers, pickers, profile handlers,
// scrapers, producers, admitters, hooks), are in core/epp/picker. Their flat slices are also faster.
//
//	extend.Scorer("gpu-memory-scorer", func(p picker.Params) (extend.ScorerPlugin, error) { ... })
//	extend.PodsScorer("custom-scorer", func(p picker.Params) (extend.CustomScorer, error) { ... })
//
// Both register a type that an EndpointPickerConfig can name. The profile's weight decides how much a scorer counts.
// Scores are brought into the range from 0 to 1: if a scorer returns values above 1, as with a weight of its own, all
// its scores for a request are divided by the largest one, so that the order of pods stays. Values below 0 count as
// 0. A scorer that panics fails only its own request, and the error names the scorer.
package extend

import (
	"context"
	"math"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
)

// Request has the data of a request that a scorer may use.
type Request struct {
	ID      string
	Model   string            // after rewriting
	Headers map[string]string // names in lower case
	Tokens  int               // of all prompts; an estimate unless a tokenizer counted them

	body *parse.Body
}

// Prompt returns the first prompt's text, or nothing if the client sent token ids. A scorer that uses it cannot be
// replayed from a recording without bodies.
func (r *Request) Prompt() []byte {
	if r.body == nil || len(r.body.Prompts) == 0 {
		return nil
	}
	return r.body.Prompts[0].Text()
}

// Pod is one endpoint with its metrics.
type Pod struct {
	Name    string
	Address string // host:port
	Labels  map[string]string
	Metrics Metrics
}

// Metrics are a pod's latest metrics. Values that no scrape returned are 0.
type Metrics struct {
	QueueLength    int64
	ActiveRequests int64
	KVCacheUsage   float64 // used fraction, 0..1
	// Document 002's metrics, from the custom metrics gpu_memory_used_bytes and gpu_memory_total_bytes (also with the
	// prefix vllm_).
	GPUMemoryUsedBytes, GPUMemoryTotalBytes int64
	// Custom has all other metrics, by the names that the configuration gives them.
	Custom map[string]float64
}

// ScorerPlugin is the interface of document 002, chapter 10.
type ScorerPlugin interface {
	Name() string
	Score(ctx context.Context, request *Request, pod *Pod) float64
}

// CustomScorer is the interface of document 003, feature 3. Pods that are missing in the map score 0. After an error
// all pods score 0, and the other scorers decide.
type CustomScorer interface {
	Score(ctx context.Context, pods []Pod, request Request) (map[string]float64, error)
}

// Scorer registers a scorer of document 002's form under a type name. The factory decodes the parameters
// (picker.Params.Decode). It is called once for each instance in a configuration.
func Scorer(typ string, factory func(p picker.Params) (ScorerPlugin, error)) {
	plugins.Register(typ, picker.Registration{
		New: func(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
			s, err := factory(p)
			return &podScorer{picker.Base{}, s}, err
		}})
}

// PodsScorer registers a scorer of document 003's form under a type name.
func PodsScorer(typ string, factory func(p picker.Params) (CustomScorer, error)) {
	plugins.Register(typ, picker.Registration{
		New: func(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
			s, err := factory(p)
			return &podsScorer{picker.Base{}, s}, err
		}})
}

type podScorer struct {
	picker.Base
	scorer ScorerPlugin
}

// Score calls the scorer for one pod after the other.
func (s *podScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	r := requestOf(c.Request)
	for j, i := range in {
		pod := podOf(c.State(i))
		scores[j] = s.scorer.Score(context.Background(), &r, &pod)
	}
	withinOne(scores)
}

// withinOne divides scores by the largest one, if that exceeds 1. Limiting each of them to 1 instead would make
// different scores equal.
func withinOne(scores []float64) {
	most := 1.0
	for _, s := range scores {
		if s > most && !math.IsInf(s, 1) {
			most = s
		}
	}
	for j := range scores {
		scores[j] /= most
	}
}

type podsScorer struct {
	picker.Base
	scorer CustomScorer
}

// Score calls the scorer once for all pods.
func (s *podsScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	pods := make([]Pod, len(in))
	for j, i := range in {
		pods[j] = podOf(c.State(i))
	}
	said, err := s.scorer.Score(context.Background(), pods, requestOf(c.Request))
	if err != nil {
		return
	}
	for j := range pods {
		scores[j] = said[pods[j].Name]
	}
	withinOne(scores)
}

func requestOf(r *picker.Request) Request {
	out := Request{ID: r.ID, Model: r.TargetModel, Tokens: r.Tokens, Headers: make(map[string]string, len(r.Headers)),
		body: r.Body}
	for _, h := range r.Headers {
		out.Headers[h.Name] = h.Value
	}
	return out
}

func podOf(s *picker.State) Pod {
	bytes := func(name string) int64 {
		v, ok := s.Custom[name]
		if !ok {
			v = s.Custom["vllm_"+name]
		}
		return int64(v)
	}
	return Pod{Name: s.Name, Address: s.HostPort(), Labels: s.Labels,
		Metrics: Metrics{QueueLength: s.Waiting, ActiveRequests: s.Running,
			KVCacheUsage: s.KVUsage, GPUMemoryUsedBytes: bytes("gpu_memory_used_bytes"),
			GPUMemoryTotalBytes: bytes("gpu_memory_total_bytes"), Custom: s.Custom}}
}
