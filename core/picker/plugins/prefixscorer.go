package plugins

import (
	"math"

	"github.com/windtunnel/windtunnel/core/picker"
)

// prefixScorer is prefix-cache-scorer:
// w*min(1, matched/scale)^2 + (1-w)*matchBlocks/totalBlocks, where matched and
// scale are in tokens.
type prefixScorer struct {
	named
	Weight   float64 `json:"matchLengthWeight" min:"0" max:"1"`
	Scale    int     `json:"matchLengthScaleTokens"`
	Producer string  `json:"prefixMatchInfoProducerName"`

	source prefixSource
}

func newPrefixScorer(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &prefixScorer{named: base("prefix-cache-scorer", name), Scale: 8192}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	if s.Weight > 0 && s.Scale <= 0 {
		return nil, p.At("matchLengthScaleTokens").Expected("a whole number above zero, since matchLengthWeight is")
	}
	findPrefix(b, s.Producer, name, &s.source)
	return s, nil
}

// Score prefers endpoints that hold much of the prompt.
func (s *prefixScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.match(c)
	if m.total == 0 {
		return
	}
	total := float64(m.total)
	states := c.View.States
	for j, i := range in {
		n := m.of(&states[i])
		if n == 0 {
			continue
		}
		ratio := float64(n) / total
		if s.Weight > 0 {
			length := math.Min(1, float64(int(n)*m.blockTokens)/float64(s.Scale))
			ratio = float64(s.Weight*length*length) + float64((1-s.Weight)*ratio)
		}
		scores[j] = ratio
	}
}
