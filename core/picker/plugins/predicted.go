package plugins

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

const typePredicted = "predicted-latency-producer"

// prediction is what one endpoint would do with a request. Headroom is the
// objective minus the prediction, in milliseconds.
type prediction struct {
	TTFTMs, TPOTMs             float64
	TTFTHeadroom, TPOTHeadroom float64
	Dispatched                 int64
}

func (p *prediction) negative() bool { return p.TTFTHeadroom < 0 || p.TPOTHeadroom < 0 }

// Predictor estimates time to first token and time per output token, in
// milliseconds, of a request at an endpoint whose state is known; ok is false
// when it cannot tell. cachedTokens is how much of the prompt is there already.
type Predictor interface {
	Predict(r *picker.Request, s *picker.State, cachedTokens int) (ttftMs, tpotMs float64, ok bool)
}

// predicted is predicted-latency-producer. Without a Predictor it predicts
// nothing and its consumers fall back.
type predicted struct {
	named
	SamplingMean     float64 `json:"samplingMean"`
	MaxDecodeSamples int     `json:"maxDecodeTokenSamplesForPrediction"`
	BufferFactor     float64 `json:"sloBufferFactor" above:"0"`
	ContextTTL       int     `json:"contextTTL"` // nanoseconds
	Streaming        bool    `json:"streamingMode"`
	RoleLabel        string  `json:"endpointRoleLabel"`
	InProduce        bool    `json:"predictInProduce"`
	Prefix           string  `json:"prefixMatchInfoProducerName"`
	InFlight         string  `json:"inFlightLoadProducerName"`
	UseEncoderCache  bool    `json:"useEncoderCacheFeatures"`
	EncoderCache     string  `json:"encoderCacheMatchInfoProducerName"`

	source     prefixSource
	predictor  Predictor
	dispatched []int64 // by slot
}

type predictions struct {
	list []prediction // by view index
	ok   []bool
}

func newPredicted(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &predicted{SamplingMean: 1000, BufferFactor: 1, InProduce: true}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	findPrefix(b, s.Prefix, name, &s.source)
	if s.InFlight != "" { // Predictors read the in-flight load from the state; the name must exist.
		var load *inflight
		findInflight(b, s.InFlight, name, &load)
	}
	return s, nil
}

func findPredicted(b *picker.Builder, producer, consumer string, to **predicted) {
	if producer == "" {
		producer = typePredicted
	}
	b.Late(func() error {
		p, err := b.Ensure(producer, typePredicted, "LatencyPredictionInfoDataKey", consumer)
		if err != nil {
			return err
		}
		s, ok := p.(*predicted)
		if !ok {
			return picker.TypeError(p, typePredicted)
		}
		*to = s
		return nil
	})
}

// SetPredictor gives the producer something to predict with.
func (s *predicted) SetPredictor(p Predictor) { s.predictor = p }

// Produce predicts for every candidate.
func (s *predicted) Produce(c *picker.Cycle) {
	if s.predictor == nil {
		return
	}
	p, _ := picker.Data[predictions](c.Decision, s)
	p.list = append(p.list[:0], make([]prediction, len(c.View.States))...)
	p.ok = append(p.ok[:0], make([]bool, len(c.View.States))...)
	m := s.source.match(c)
	for _, i := range c.Candidates {
		st := c.State(i)
		ttft, tpot, ok := s.predictor.Predict(c.Request, st, int(m.of(st))*m.blockTokens)
		if !ok {
			continue
		}
		q := prediction{TTFTMs: ttft, TPOTMs: tpot}
		if slot := st.Slot(); slot < len(s.dispatched) {
			q.Dispatched = s.dispatched[slot]
		}
		// Without an objective there is nothing to miss.
		if c.Request.TTFTMs > 0 {
			q.TTFTHeadroom = c.Request.TTFTMs*s.BufferFactor - ttft
		}
		if c.Request.TPOTMs > 0 {
			q.TPOTHeadroom = c.Request.TPOTMs*s.BufferFactor - tpot
		}
		p.list[i], p.ok[i] = q, true
	}
}

// of is the prediction for an endpoint, nil when there is none.
func (s *predicted) of(c *picker.Cycle, i int32) *prediction {
	p := picker.Peek[predictions](c.Decision, s)
	if p == nil || int(i) >= len(p.list) || !p.ok[i] {
		return nil
	}
	return &p.list[i]
}

// Commit counts what was sent where.
func (s *predicted) Commit(_ machine.Time, d *picker.Decision) { s.count(d, 1) }

// Release counts it down.
func (s *predicted) Release(_ machine.Time, d *picker.Decision) { s.count(d, -1) }

func (s *predicted) count(d *picker.Decision, by int64) {
	r := d.PrimaryProfile()
	if !r.Ok() {
		return
	}
	slot := d.View.States[r.Picked[0]].Slot()
	for len(s.dispatched) <= slot {
		s.dispatched = append(s.dispatched, 0)
	}
	s.dispatched[slot] = max(0, s.dispatched[slot]+by)
}

// EndpointGone forgets what was sent there.
func (s *predicted) EndpointGone(slot int, _ bool) {
	if slot < len(s.dispatched) {
		s.dispatched[slot] = 0
	}
}

// PredictionOf is what was foretold of an endpoint, for metrics: time to first
// token and per output token, in milliseconds.
func (s *predicted) PredictionOf(d *picker.Decision, endpoint int32) (ttftMs, tpotMs float64, ok bool) {
	p := picker.Peek[predictions](d, s)
	if p == nil || int(endpoint) >= len(p.list) || !p.ok[endpoint] {
		return 0, 0, false
	}
	q := &p.list[endpoint]
	return q.TTFTMs, q.TPOTMs, true
}
