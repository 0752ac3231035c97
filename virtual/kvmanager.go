package virtual

import (
	"encoding/json"
	"math"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/report"
)

// kvManager is document 003's KV-Cache Manager: an index that knows pods by
// name, and what it answers to a picker's KVCacheManagerScorer.
type kvManager struct {
	index
	hasher kv.Hasher
	scorer *kvindex.Scorer
	lag    report.Lag
}

func newKVManager(blockTokens int) *kvManager {
	m := &kvManager{hasher: kv.Hasher{BlockTokens: blockTokens}}
	m.index = index{kvindex.New(kvindex.Config{Hasher: m.hasher})}
	m.scorer = m.View().Scorer()
	return m
}

// scores is what the manager answers to a KVCacheManagerScorer. Rates have two
// digits, as on the wire.
func (x *kvWire) scores(r *request) ([]byte, error) {
	type score struct {
		HitRate float64 `json:"cache_hit_rate"`
	}
	scores := map[string]score{}
	keys := x.manager.hasher.PromptKeys(x.pool.Model(), "", r.promptTokens())
	for _, pod := range x.manager.scorer.Score(keys) {
		scores[pod.Pod] = score{math.Floor(100*float64(pod.Blocks)/float64(len(keys))+1e-9) / 100}
	}
	return json.Marshal(map[string]any{"scores": scores})
}
