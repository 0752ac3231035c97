package plugins

import (
	"github.com/windtunnel/windtunnel/core/picker"
)

// thresholdPrefix is prefix-threshold-scorer, document 003's
// PrecisePrefixCacheScorer: the share of the prompt's blocks that an endpoint
// holds, counted over its first maxPrefixLength tokens. A share below
// cacheHitThreshold scores 0: so little is not worth a detour.
//
// Where a KVCacheMetricScraper with cachePrefixTracking tells how many blocks
// an endpoint can find by hash, no more than these count, so that an engine
// that restarted or dropped its cache loses what the index still believes.
type thresholdPrefix struct {
	named
	Threshold float64 `json:"cacheHitThreshold"`
	MaxPrefix int     `json:"maxPrefixLength"` // tokens; 0 is the whole prompt
	Prefix    string  `json:"prefixMatchInfoProducerName"`

	source prefixSource
}

func newThresholdPrefix(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &thresholdPrefix{named: base("prefix-threshold-scorer", name)}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	if s.Threshold < 0 || s.Threshold > 1 {
		return nil, p.Errorf("cacheHitThreshold must be between 0 and 1, found %v", s.Threshold)
	}
	if s.MaxPrefix < 0 {
		return nil, p.Errorf("maxPrefixLength is a number of tokens and must not be negative, found %d", s.MaxPrefix)
	}
	findPrefix(b, s.Prefix, name, &s.source)
	return s, nil
}

// Score prefers endpoints that hold the prompt's beginning.
func (s *thresholdPrefix) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.match(c)
	if m.total == 0 || m.blockTokens == 0 {
		return
	}
	total := int32(m.total)
	if s.MaxPrefix > 0 {
		total = min(total, int32((s.MaxPrefix+m.blockTokens-1)/m.blockTokens))
	}
	for j, i := range in {
		st := c.State(i)
		n := min(m.of(st), total, findable(st, m.blockTokens))
		if share := float64(n) / float64(total); share >= s.Threshold {
			scores[j] = share
		}
	}
}

// findable is how many of the index's blocks an endpoint can hold at all,
// going by what it says itself.
func findable(s *picker.State, blockTokens int) int32 {
	n, ok := s.Custom[FigureHashes]
	if !ok {
		return 1<<31 - 1
	}
	size := float64(blockTokens)
	if s.CacheBlockSize > 0 {
		size = float64(s.CacheBlockSize)
	}
	return int32(min(max(0, n*size/float64(blockTokens)), 1<<30))
}
