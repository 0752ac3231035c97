package plugins

import (
	"cmp"
	"math"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// active is active-request-scorer: at most idleThreshold requests in flight is
// 1, else (max-n)/max*maxBusyScore.
type active struct {
	named
	IdleThreshold  int64   `json:"idleThreshold"`
	MaxBusyScore   float64 `json:"maxBusyScore"`
	RequestTimeout string  `json:"requestTimeout"` // deprecated, without effect
	Inflight       string  `json:"inFlightLoadProducerName"`

	load *dataproducer.Inflight
}

var newActive = picker.Of(active{MaxBusyScore: 1})

// Complete implements picker.Completer.
func (s *active) Complete(b *picker.Builder, name string) {
	if s.RequestTimeout != "" {
		b.Warn("plugin %s: requestTimeout is deprecated and has no effect", name)
	}
	if s.IdleThreshold < 0 {
		s.IdleThreshold = 0
	}
	if !(s.MaxBusyScore >= 0 && s.MaxBusyScore <= 1) {
		s.MaxBusyScore = 1
	}
	dataproducer.FindInflight(b, s.Inflight, name, &s.load)
}

// Score prefers endpoints with little in flight.
func (s *active) Score(c *picker.Cycle, in []int32, scores []float64) {
	var most int64
	for _, i := range in {
		most = max(most, s.load.RequestsAt(c.View.States[i].Slot()))
	}
	for j, i := range in {
		n := s.load.RequestsAt(c.View.States[i].Slot())
		if n <= s.IdleThreshold {
			scores[j] = 1
			continue
		}
		scores[j] = float64(most-n) / float64(most) * s.MaxBusyScore
	}
}

// tokenLoad is token-load-scorer: 1 - min(1, tokens/threshold). tokens are the uncached tokens in flight and the
// request's own whole prompt.
type tokenLoad struct {
	named
	Threshold int64  `json:"queueThresholdTokens"`
	Inflight  string `json:"inFlightLoadProducerName"`

	load *dataproducer.Inflight
}

var newTokenLoad = picker.Of(tokenLoad{Threshold: 4194304})

// Complete implements picker.Completer.
func (s *tokenLoad) Complete(b *picker.Builder, name string) {
	s.Threshold = cmp.Or(max(s.Threshold, 0), 4194304)
	// Unlike in-flight counts, what a request would cost has no default producer: it must be declared.
	picker.Link(b, &s.load, cmp.Or(s.Inflight, dataproducer.TypeInflight), "", "UncachedRequestTokensDataKey", name,
		dataproducer.TypeInflight)
}

// Score prefers endpoints with few tokens in flight.
func (s *tokenLoad) Score(c *picker.Cycle, in []int32, scores []float64) {
	t := float64(s.Threshold)
	own := int64(c.Request.Tokens) + s.load.Output(c.Request)
	for j, i := range in {
		n := float64(s.load.TokensAt(c.View.States[i].Slot()) + own)
		scores[j] = 1 - math.Min(1, n/t)
	}
}
