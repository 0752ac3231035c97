package kvindex

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/kv"
)

// Decimal is a number that keeps its point in JSON, as document 003 (docs/documents.md) writes it: 100.0 and not 100.
type Decimal float64

// MarshalJSON implements json.Marshaler.
func (d Decimal) MarshalJSON() ([]byte, error) {
	s := strconv.FormatFloat(float64(d), 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return []byte(s), nil
}

// Cut leaves n digits after the point, without rounding up: 2 of 3 is 0.66.
func Cut(v float64, n int) Decimal {
	p := math.Pow10(n)
	return Decimal(math.Floor(v*p+1e-9) / p)
}

// Answer is the answer of document 003's KV-Cache Manager to a request for scores.
type Answer struct {
	Scores         map[string]PodAnswer `json:"scores"`
	Recommendation string               `json:"recommendation"`
}

// PodAnswer is an Answer's part about one pod.
type PodAnswer struct {
	CacheHitRate  Decimal `json:"cache_hit_rate"` // 0 to 1, in hundredths
	BlocksPresent int     `json:"blocks_present"`
	BlocksTotal   int     `json:"blocks_total"`
	Score         Decimal `json:"score"` // 0 to 100
	CacheSizeMB   Decimal `json:"cache_size_mb"`
}

// Answer scores the candidates for a prompt with these keys. It recommends the healthy pod that holds most of the
// prompt, or an unhealthy one where no other holds any. A pod that pods does not know counts as healthy. Without
// candidates, it scores the pods that hold something.
func (s *Scorer) Answer(keys []kv.Key, candidates []string, pods map[string]PodInfo) Answer {
	found := make(map[string]int, len(candidates))
	for _, x := range s.Score(keys) {
		found[x.Pod] = x.Blocks
	}
	if candidates == nil {
		candidates = slices.Sorted(maps.Keys(found))
	}
	out := Answer{Scores: make(map[string]PodAnswer, len(candidates))}
	best, bestHealthy := 0, false
	for _, pod := range candidates {
		n := found[pod]
		a := PodAnswer{BlocksPresent: n, BlocksTotal: len(keys)}
		if len(keys) > 0 {
			a.CacheHitRate = Cut(float64(n)/float64(len(keys)), 2)
			a.Score = Cut(float64(a.CacheHitRate)*100, 1)
		}
		info, known := pods[pod]
		a.CacheSizeMB = Cut(float64(info.Bytes)/(1<<20), 1)
		out.Scores[pod] = a
		healthy := info.Healthy || !known
		if n > 0 && (healthy && !bestHealthy || healthy == bestHealthy && n > best) {
			best, bestHealthy, out.Recommendation = n, healthy, pod
		}
	}
	return out
}
