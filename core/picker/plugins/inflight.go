package plugins

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

const typeInflight = "inflight-load-producer"

// inflight is inflight-load-producer: requests and prompt tokens that the
// picker has sent to each endpoint and not yet seen end.
type inflight struct {
	named
	AddOutput   bool    `json:"addEstimatedOutputTokens"`
	OutputRatio float64 `json:"outputRatio" min:"0"`
	MaxOutput   *int64  `json:"maxEstimatedOutputTokens" min:"0"`
	Prefix      string  `json:"prefixMatchInfoProducerName"`
	Sync        *bool   `json:"syncCrossReplicaState"`

	source prefixSource // nil: the whole prompt is charged
	load   []slotLoad   // by slot
}

// slotLoad is what is in flight on one endpoint. The epoch tells requests of
// an endpoint that left from those of the one that came back.
type slotLoad struct {
	requests, tokens int64
	epoch            uint32
	flows            []flowLoad // for the metrics
}

// flowLoad is a flow's share of what is in flight on one endpoint.
type flowLoad struct {
	fairness         string
	priority         int
	requests, tokens int64
}

// maxFlows bounds the flows that are told apart on one endpoint: clients name
// them. What is beyond counts as the flow "other".
const maxFlows = 64

// flow is the place of a request's flow.
func (l *slotLoad) flow(r *picker.Request) int32 {
	fairness, priority := r.FairnessID, r.Objective.Priority
	for range 2 {
		for i := range l.flows {
			if f := &l.flows[i]; f.priority == priority && f.fairness == fairness {
				return int32(i)
			}
		}
		if len(l.flows) < maxFlows {
			break
		}
		fairness, priority = "other", 0
	}
	l.flows = append(l.flows, flowLoad{fairness: fairness, priority: priority})
	return int32(len(l.flows) - 1)
}

// charges are what one request holds.
type charges struct{ list []charge }

type charge struct {
	slot    int32
	flow    int32
	epoch   uint32
	tokens  int64
	request bool
	prefill bool
}

func newInflight(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	f := &inflight{OutputRatio: 1.5}
	if err := p.Decode(f); err != nil {
		return nil, err
	}
	ensureTokens(b, name)
	producer := f.Prefix
	if producer == "" {
		producer = typeApproxPrefix
	}
	// The prefix producer is optional, and may only be made by another
	// plug-in's late link: look twice.
	b.Late(func() error {
		b.Late(func() error {
			f.source, _ = b.Find(producer).(prefixSource)
			return nil
		})
		return nil
	})
	return f, nil
}

func findInflight(b *picker.Builder, producer, consumer string, to **inflight) {
	if producer == "" {
		producer = typeInflight
	}
	b.Late(func() error {
		p, err := b.Ensure(producer, typeInflight, "InFlightLoadDataKey", consumer)
		if err != nil {
			return err
		}
		f, ok := p.(*inflight)
		if !ok {
			return picker.TypeError(p, typeInflight)
		}
		*to = f
		return nil
	})
}

func (f *inflight) at(slot int) *slotLoad {
	for len(f.load) <= slot {
		f.load = append(f.load, slotLoad{})
	}
	return &f.load[slot]
}

func (f *inflight) requestsAt(slot int) int64 {
	if slot < len(f.load) {
		return f.load[slot].requests
	}
	return 0
}

func (f *inflight) tokensAt(slot int) int64 {
	if slot < len(f.load) {
		return f.load[slot].tokens
	}
	return 0
}

// Load is an endpoint's requests and tokens in flight.
func (f *inflight) Load(slot int) (requests, tokens int64) {
	return f.requestsAt(slot), f.tokensAt(slot)
}

// EachLoad tells an endpoint's requests and tokens in flight by flow.
func (f *inflight) EachLoad(slot int, tell func(fairness string, priority int, requests, tokens int64)) {
	if slot >= len(f.load) {
		return
	}
	for _, l := range f.load[slot].flows {
		tell(l.fairness, l.priority, l.requests, l.tokens)
	}
}

// cost is what a request would add to an endpoint: the blocks of its prompt
// that are not cached there, what lies beyond the index, and perhaps an
// estimate of its output.
func (f *inflight) cost(d *picker.Decision, m *prefixMatch, s *picker.State) int64 {
	input := int64(d.Request.Tokens)
	tokens := input
	if m != nil && m.blockTokens > 0 {
		size := int64(m.blockTokens)
		indexed := int64(m.total) * size
		tokens = max(0, indexed-int64(m.of(s))*size) + max(0, input-indexed)
	}
	return tokens + f.output(d.Request)
}

// output estimates the tokens of the answer, 0 when they do not count.
func (f *inflight) output(r *picker.Request) int64 {
	if !f.AddOutput {
		return 0
	}
	out := int64(math.Round(float64(r.Tokens) * f.OutputRatio))
	if r.Body != nil && r.Body.MaxOutputTokens >= 0 {
		out = min(out, r.Body.MaxOutputTokens)
	}
	if f.MaxOutput != nil {
		out = min(out, *f.MaxOutput)
	}
	return out
}

// Produce makes sure that the prefix match exists when Commit charges by it.
func (f *inflight) Produce(c *picker.Cycle) {
	if f.source != nil {
		f.source.match(c)
	}
}

// Commit charges the first endpoint of every profile that ran.
func (f *inflight) Commit(_ machine.Time, d *picker.Decision) {
	ch, _ := picker.Data[charges](d, f)
	ch.list = ch.list[:0]
	var m *prefixMatch
	if f.source != nil {
		m = picker.Peek[prefixMatch](d, f.source)
	}
	for i := range d.Profiles {
		r := &d.Profiles[i]
		if !r.Ok() {
			continue
		}
		s := &d.View.States[r.Picked[0]]
		l := f.at(s.Slot())
		cost := f.cost(d, m, s)
		l.requests++
		l.tokens += cost
		flow := l.flow(d.Request)
		l.flows[flow].requests++
		l.flows[flow].tokens += cost
		ch.list = append(ch.list, charge{int32(s.Slot()), flow, l.epoch, cost, true, r.Name == prefillProfile})
	}
}

func (f *inflight) release(ch *charge, request bool) {
	l := f.at(int(ch.slot))
	if l.epoch != ch.epoch {
		ch.tokens, ch.request = 0, false
		return
	}
	flow := &l.flows[ch.flow]
	l.tokens -= ch.tokens
	flow.tokens -= ch.tokens
	ch.tokens = 0
	if request && ch.request {
		l.requests--
		flow.requests--
		ch.request = false
	}
}

// ReadsProgress implements picker.ProgressReader.
func (*inflight) ReadsProgress() bool { return true }

// ResponseBody frees the prompt's tokens at the first chunk, when prefill is
// over, and the prefill endpoint altogether. With estimated output only the
// latter: the output is yet to come.
func (f *inflight) ResponseBody(_ machine.Time, r *picker.Response) {
	if !r.First || !r.Streaming && !r.End {
		return
	}
	if ch := picker.Peek[charges](r.Decision, f); ch != nil {
		for i := range ch.list {
			if c := &ch.list[i]; c.prefill || !f.AddOutput {
				f.release(c, c.prefill)
			}
		}
	}
}

// Release frees what is left.
func (f *inflight) Release(_ machine.Time, d *picker.Decision) {
	if ch := picker.Peek[charges](d, f); ch != nil {
		for i := range ch.list {
			f.release(&ch.list[i], true)
		}
		ch.list = ch.list[:0]
	}
}

// EndpointGone forgets what is in flight there.
func (f *inflight) EndpointGone(slot int, _ bool) {
	l := f.at(slot)
	l.requests, l.tokens, l.flows = 0, 0, nil
	l.epoch++
}

// active is active-request-scorer: at most idleThreshold requests in flight is
// 1, else (max-n)/max*maxBusyScore.
type active struct {
	named
	IdleThreshold  int64   `json:"idleThreshold"`
	MaxBusyScore   float64 `json:"maxBusyScore"`
	RequestTimeout string  `json:"requestTimeout"` // deprecated, without effect
	Inflight       string  `json:"inFlightLoadProducerName"`

	load *inflight
}

func newActive(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &active{MaxBusyScore: 1}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	if s.RequestTimeout != "" {
		b.Warn("plugin %s: requestTimeout is deprecated and has no effect", name)
	}
	if s.IdleThreshold < 0 {
		s.IdleThreshold = 0
	}
	if !(s.MaxBusyScore >= 0 && s.MaxBusyScore <= 1) {
		s.MaxBusyScore = 1
	}
	findInflight(b, s.Inflight, name, &s.load)
	return s, nil
}

// Score prefers endpoints with little in flight.
func (s *active) Score(c *picker.Cycle, in []int32, scores []float64) {
	var most int64
	for _, i := range in {
		most = max(most, s.load.requestsAt(c.View.States[i].Slot()))
	}
	for j, i := range in {
		n := s.load.requestsAt(c.View.States[i].Slot())
		if n <= s.IdleThreshold {
			scores[j] = 1
			continue
		}
		scores[j] = float64(most-n) / float64(most) * s.MaxBusyScore
	}
}

// tokenLoad is token-load-scorer: 1 - min(1, tokens/threshold), where tokens
// are those in flight, by what is cached of them, and the request's own prompt,
// whole and to the token.
type tokenLoad struct {
	named
	Threshold int64  `json:"queueThresholdTokens"`
	Inflight  string `json:"inFlightLoadProducerName"`

	load *inflight
}

func newTokenLoad(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &tokenLoad{Threshold: 4194304}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	if s.Threshold <= 0 {
		s.Threshold = 4194304
	}
	producer := s.Inflight
	if producer == "" {
		producer = typeInflight
	}
	b.Late(func() error {
		// Unlike in-flight counts, what a request would cost has no default
		// producer: it must be declared.
		pl, err := b.Ensure(producer, "", "UncachedRequestTokensDataKey", name)
		if err != nil {
			return err
		}
		f, ok := pl.(*inflight)
		if !ok {
			return picker.TypeError(pl, typeInflight)
		}
		s.load = f
		return nil
	})
	return s, nil
}

// Score prefers endpoints with few tokens in flight.
func (s *tokenLoad) Score(c *picker.Cycle, in []int32, scores []float64) {
	t := float64(s.Threshold)
	own := int64(c.Request.Tokens) + s.load.output(c.Request)
	for j, i := range in {
		n := float64(s.load.tokensAt(c.View.States[i].Slot()) + own)
		scores[j] = 1 - math.Min(1, n/t)
	}
}
