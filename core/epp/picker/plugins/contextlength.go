package plugins

import (
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// contextLength is context-length-aware: endpoints say by a label which prompt
// lengths they are for ("0-2048"). In range scores (.3, 1], more for tight
// ranges and room above; out of range [0, .3) by distance; no label .5. With
// enableFiltering endpoints out of range are taken out.
type contextLength struct {
	named
	Label     string `json:"label"`
	Filtering bool   `json:"enableFiltering"`
}

var newContextLength = picker.Of(contextLength{Label: "llm-d.ai/context-length-range"})

// Configure implements picker.Configurer.
func (s *contextLength) Configure(_ *picker.Builder, name string, p picker.Params) error {
	if s.Label == "" {
		return p.At("label").Expected("the label's name")
	}
	return nil
}

func lengthRange(text string) (low, high int, ok bool) {
	a, b, found := strings.Cut(text, "-")
	low, err1 := strconv.Atoi(strings.TrimSpace(a))
	high, err2 := strconv.Atoi(strings.TrimSpace(b))
	return low, high, found && err1 == nil && err2 == nil && low <= high
}

// Filter keeps endpoints that are for prompts of this length.
func (s *contextLength) Filter(c *picker.Cycle, in []int32) []int32 {
	if !s.Filtering {
		return in
	}
	n := c.Request.Tokens
	return keep(in, func(i int32) bool {
		text, labeled := c.State(i).Labels[s.Label]
		if !labeled {
			return true
		}
		low, high, ok := lengthRange(text)
		return ok && n >= low && n <= high
	})
}

// Score prefers the tightest range.
func (s *contextLength) Score(c *picker.Cycle, in []int32, scores []float64) {
	n := c.Request.Tokens
	for j, i := range in {
		text, labeled := c.State(i).Labels[s.Label]
		if !labeled {
			scores[j] = .5
			continue
		}
		if low, high, ok := lengthRange(text); ok {
			scores[j] = rangeScore(n, low, high)
		}
	}
}

func rangeScore(n, low, high int) float64 {
	const outside = .3
	if n >= low && n <= high {
		width := high - low
		if width == 0 {
			return 1
		}
		tight := 1 / (1 + float64(width)/10000)
		room := float64(high-n) / float64(width)
		inner := float64(.7*tight) + float64(.3*room)
		return outside + float64(inner*(1-outside))
	}
	distance := low - n
	if n > high {
		distance = n - high
	}
	return outside / (1 + float64(distance)/1000)
}
