package plugins

import (
	"math"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/datalayer"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// prefixScorer is prefix-cache-scorer:
// w*min(1, matched/scale)^2 + (1-w)*matchBlocks/totalBlocks, where matched and
// scale are in tokens.
type prefixScorer struct {
	named
	Weight   float64 `json:"matchLengthWeight" min:"0" max:"1"`
	Scale    int     `json:"matchLengthScaleTokens"`
	Producer string  `json:"prefixMatchInfoProducerName"`

	source dataproducer.PrefixSource
}

var newPrefixScorer = picker.Of(prefixScorer{Scale: 8192})

// Configure implements picker.Configurer.
func (s *prefixScorer) Configure(b *picker.Builder, name string, p picker.Params) error {
	if s.Weight > 0 && s.Scale <= 0 {
		return p.At("matchLengthScaleTokens").Expected("a whole number above zero, since matchLengthWeight is")
	}
	dataproducer.FindPrefix(b, s.Producer, name, &s.source)
	return nil
}

// ScoresCache implements picker.CacheScorer.
func (s *prefixScorer) ScoresCache() {}

// Score prefers endpoints that hold much of the prompt.
func (s *prefixScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.Match(c)
	if m.Total == 0 {
		return
	}
	total := float64(m.Total)
	states := c.View.States
	for j, i := range in {
		n := m.Of(&states[i])
		if n == 0 {
			continue
		}
		ratio := float64(n) / total
		if s.Weight > 0 {
			length := math.Min(1, float64(int(n)*m.BlockTokens)/float64(s.Scale))
			ratio = float64(s.Weight*length*length) + float64((1-s.Weight)*ratio)
		}
		scores[j] = ratio
	}
}

// Scored implements picker.SparseScorer.
func (s *prefixScorer) Scored(c *picker.Cycle) (slots []int32, known bool) {
	m := s.source.Match(c)
	return m.Holding, m.Sparse
}

// thresholdPrefix is PrecisePrefixCacheScorer with document 003's arguments: the share of the prompt's first
// maxPrefixLength tokens that an endpoint holds. A share below cacheHitThreshold counts as nothing.
//
// A KVCacheMetricScraper with cachePrefixTracking reports how many blocks an endpoint can find by hash. Then at most so
// many count, so that an engine that restarted or reset its cache loses the blocks that the index still lists.
type thresholdPrefix struct {
	named
	HitThreshold float64 `json:"cacheHitThreshold" min:"0" max:"1"`
	MaxPrefix    int     `json:"maxPrefixLength" min:"0"`

	source dataproducer.PrefixSource
}

// Complete implements picker.Completer.
func (s *thresholdPrefix) Complete(b *picker.Builder, name string) {
	dataproducer.FindPrefix(b, "", name, &s.source)
}

// ScoresCache implements picker.CacheScorer.
func (s *thresholdPrefix) ScoresCache() {}

// Score prefers endpoints that hold enough of the prompt.
func (s *thresholdPrefix) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.Match(c)
	total := m.Total
	if s.MaxPrefix > 0 && m.BlockTokens > 0 {
		total = min(total, max(1, s.MaxPrefix/m.BlockTokens))
	}
	if total == 0 {
		return
	}
	for j, i := range in {
		st := c.State(i)
		share := math.Min(1, min(float64(m.Of(st)), findable(st, m.BlockTokens))/float64(total))
		if share >= s.HitThreshold {
			scores[j] = share
		}
	}
}

// findable returns how many of the index's blocks an endpoint can hold at all, going
// by what it says itself.
func findable(s *picker.State, blockTokens int) float64 {
	n, ok := s.Custom[datalayer.MetricHashes]
	if !ok {
		return math.Inf(1)
	}
	size := float64(blockTokens)
	if s.CacheBlockSize > 0 {
		size = float64(s.CacheBlockSize)
	}
	return math.Max(0, math.Floor(n*size/float64(blockTokens)))
}
