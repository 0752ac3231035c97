// Package extend takes scorers in the two forms that documents 002 and 003 (docs/documents.md)
// print and makes plug-ins of them, so that a scorer written after these pages
// runs in windtunnel as it is.
//
// It is the short way. The full interfaces, one per kind of plug-in (filters,
// scorers, pickers, profile handlers, scrapers, producers, admitters, hooks),
// are those of core/epp/picker, whose flat slices are also the fast way.
//
//	extend.Scorer("gpu-memory-scorer", func(p picker.Params) (extend.ScorerPlugin, error) { ... })
//	extend.PodsScorer("custom-scorer", func(p picker.Params) (extend.CustomScorer, error) { ... })
//
// Both register a type that an EndpointPickerConfig then names. How much a scorer
// counts is the profile's weight: what it gives is brought into 0..1. Where one
// multiplies by a weight of its own and goes beyond 1, its scores for a request are
// divided by the largest of them, so that the order of pods is the scorer's; below
// 0 they count as 0. A scorer that panics fails its own request only, by name.
package extend

import (
	"context"
	"math"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
)

// Request is what a scorer may know of a request.
type Request struct {
	ID      string
	Model   string            // after rewriting
	Headers map[string]string // names in lower case
	Tokens  int               // of all prompts, estimated unless a tokeniser counted

	body *parse.Body
}

// Prompt is the first prompt's text; empty where the client sent token ids. A
// scorer that asks for it cannot be played again from a recording without
// bodies, which has none.
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

// Metrics are a pod's newest metrics. What no scrape has brought is 0.
type Metrics struct {
	QueueLength    int64
	ActiveRequests int64
	KVCacheUsage   float64 // share, 0..1
	// Document 002's metrics, read from the custom metrics
	// gpu_memory_used_bytes and gpu_memory_total_bytes (also with the prefix
	// vllm_).
	GPUMemoryUsedBytes, GPUMemoryTotalBytes int64
	// Custom are all further metrics under the names that the configuration
	// gave them.
	Custom map[string]float64
}

// ScorerPlugin is the interface of document 002, chapter 10.
type ScorerPlugin interface {
	Name() string
	Score(ctx context.Context, request *Request, pod *Pod) float64
}

// CustomScorer is the interface of document 003, feature 3. A pod that is not
// in the map scores 0; with an error all do, and the other scorers decide.
type CustomScorer interface {
	Score(ctx context.Context, pods []Pod, request Request) (map[string]float64, error)
}

// Scorer registers a scorer of document 002's form under a type name. The
// factory reads the parameters (picker.Params.Decode) and is called once for
// each instance that a configuration declares.
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

// Score asks for one pod after the other.
func (s *podScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	r := requestOf(c.Request)
	for j, i := range in {
		pod := podOf(c.State(i))
		scores[j] = s.scorer.Score(context.Background(), &r, &pod)
	}
	withinOne(scores)
}

// withinOne divides scores by the largest of them, where that is beyond 1. Clamping
// would make equals of those that are.
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

// Score asks for all pods at once.
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
