package virtual

import (
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/report"
)

// kvManager is document 003's KV-Cache Manager: an index that knows pods by name, with the answers to a picker's
// KVCacheManagerScorer.
type kvManager struct {
	*kvindex.Index
	hasher kv.Hasher
	scorer *kvindex.Scorer
	lag    report.Lag
}

func newKVManager(blockTokens int) *kvManager {
	m := &kvManager{hasher: kv.Hasher{BlockTokens: blockTokens}}
	m.Index = kvindex.New(kvindex.Config{Hasher: m.hasher})
	m.scorer = m.View().Scorer()
	return m
}

// scores returns the manager's answer to a KVCacheManagerScorer.
func (x *kvWire) scores(r *request) ([]byte, error) {
	keys := x.manager.hasher.PromptKeys(x.pool.Model(), "", r.promptTokens())
	return json.Marshal(x.manager.scorer.Answer(keys, nil, nil))
}
