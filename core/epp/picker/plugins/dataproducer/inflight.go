package dataproducer

import (
	"cmp"
	"math"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// TypeInflight is the type's name, and the name of the instance that is made if none is declared.
const TypeInflight = "inflight-load-producer"

// Inflight is inflight-load-producer: requests and prompt tokens that the
// picker has sent to each endpoint and not yet seen end.
type Inflight struct {
	named
	AddOutput   bool    `json:"addEstimatedOutputTokens"`
	OutputRatio float64 `json:"outputRatio" min:"0"`
	MaxOutput   *int64  `json:"maxEstimatedOutputTokens" min:"0"`
	Prefix      string  `json:"prefixMatchInfoProducerName"`
	Sync        *bool   `json:"syncCrossReplicaState"`

	source PrefixSource // nil: the whole prompt is charged
	load   []slotLoad   // by slot
}

// slotLoad is the load in flight on one endpoint. The epoch separates requests of an endpoint that left from those of
// the endpoint that came back.
type slotLoad struct {
	Requests int64      `json:"requests,omitempty"`
	Tokens   int64      `json:"tokens,omitempty"`
	Epoch    uint32     `json:"epoch,omitempty"`
	Flows    []flowLoad `json:"flows,omitempty"` // for the metrics
}

// flowLoad is a flow's share of what is in flight on one endpoint.
type flowLoad struct {
	Fairness string `json:"fairness"`
	Priority int    `json:"priority,omitempty"`
	Requests int64  `json:"requests,omitempty"`
	Tokens   int64  `json:"tokens,omitempty"`
}

// maxFlows bounds the flows that are counted separately on one endpoint, since clients name them. Further flows count
// as "other".
const maxFlows = 64

// flow returns the place of a request's flow.
func (l *slotLoad) flow(r *picker.Request) int32 {
	fairness, priority := r.FairnessID, r.Objective.Priority
	for range 2 {
		for i := range l.Flows {
			if f := &l.Flows[i]; f.Priority == priority && f.Fairness == fairness {
				return int32(i)
			}
		}
		if len(l.Flows) < maxFlows {
			break
		}
		fairness, priority = "other", 0
	}
	l.Flows = append(l.Flows, flowLoad{Fairness: fairness, Priority: priority})
	return int32(len(l.Flows) - 1)
}

// charges are the loads that one request adds.
type charges struct{ list []charge }

type charge struct {
	Slot    int32  `json:"slot"`
	Flow    int32  `json:"flow,omitempty"`
	Epoch   uint32 `json:"epoch,omitempty"`
	Tokens  int64  `json:"tokens,omitempty"`
	Request bool   `json:"request,omitempty"`
	Prefill bool   `json:"prefill,omitempty"`
}

// NewInflight makes inflight-load-producer.
var NewInflight = picker.Of(Inflight{OutputRatio: 1.5})

// Configure implements picker.Configurer.
func (f *Inflight) Configure(b *picker.Builder, name string, _ picker.Params) error {
	EnsureTokens(b, name)
	producer := cmp.Or(f.Prefix, typeApproxPrefix)
	// The prefix producer is optional, and may only be made by another
	// plug-in's late link: look twice.
	b.Late(func() error {
		b.Late(func() error {
			f.source, _ = b.Find(producer).(PrefixSource)
			return nil
		})
		return nil
	})
	return nil
}

// FindInflight links a plug-in to the producer of loads in flight once all are declared, and makes one if there is
// none.
func FindInflight(b *picker.Builder, producer, consumer string, to **Inflight) {
	picker.Link(b, to, cmp.Or(producer, TypeInflight), TypeInflight, "InFlightLoadDataKey", consumer, TypeInflight)
}

func (f *Inflight) at(slot int) *slotLoad { return picker.AtSlot(&f.load, slot) }

// RequestsAt returns how many requests are in flight at a slot.
func (f *Inflight) RequestsAt(slot int) int64 {
	if slot < len(f.load) {
		return f.load[slot].Requests
	}
	return 0
}

// TokensAt returns how many tokens are in flight at a slot.
func (f *Inflight) TokensAt(slot int) int64 {
	if slot < len(f.load) {
		return f.load[slot].Tokens
	}
	return 0
}

// Load returns an endpoint's requests and tokens in flight.
func (f *Inflight) Load(slot int) (requests, tokens int64) {
	return f.RequestsAt(slot), f.TokensAt(slot)
}

// EachLoad yields an endpoint's requests and tokens in flight by flow.
func (f *Inflight) EachLoad(slot int, yield func(fairness string, priority int, requests, tokens int64)) {
	if slot >= len(f.load) {
		return
	}
	for _, l := range f.load[slot].Flows {
		yield(l.Fairness, l.Priority, l.Requests, l.Tokens)
	}
}

// cost returns the tokens that a request would add to an endpoint: the blocks of its prompt that are not cached there,
// the tokens beyond the index, and perhaps an estimate of its output.
func (f *Inflight) cost(d *picker.Decision, m *PrefixMatch, s *picker.State) int64 {
	input := int64(d.Request.Tokens)
	tokens := input
	if m != nil && m.BlockTokens > 0 {
		size := int64(m.BlockTokens)
		indexed := int64(m.Total) * size
		tokens = max(0, indexed-int64(m.Of(s))*size) + max(0, input-indexed)
	}
	return tokens + f.Output(d.Request)
}

// Output estimates the tokens of the answer, 0 when they do not count.
func (f *Inflight) Output(r *picker.Request) int64 {
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
func (f *Inflight) Produce(c *picker.Cycle) {
	if f.source != nil {
		f.source.Match(c)
	}
}

// Commit charges the first endpoint of every profile that ran.
func (f *Inflight) Commit(_ machine.Time, d *picker.Decision) {
	ch, _ := picker.Data[charges](d, f)
	ch.list = ch.list[:0]
	var m *PrefixMatch
	if f.source != nil {
		m = picker.Peek[PrefixMatch](d, f.source)
	}
	for i := range d.Profiles {
		r := &d.Profiles[i]
		if !r.Ok() {
			continue
		}
		s := &d.View.States[r.Picked[0]]
		l := f.at(s.Slot())
		cost := f.cost(d, m, s)
		l.Requests++
		l.Tokens += cost
		flow := l.flow(d.Request)
		l.Flows[flow].Requests++
		l.Flows[flow].Tokens += cost
		ch.list = append(ch.list, charge{int32(s.Slot()), flow, l.Epoch, cost, true, r.Name == PrefillProfile})
	}
}

func (f *Inflight) release(ch *charge, request bool) {
	l := f.at(int(ch.Slot))
	if l.Epoch != ch.Epoch {
		ch.Tokens, ch.Request = 0, false
		return
	}
	flow := &l.Flows[ch.Flow]
	l.Tokens -= ch.Tokens
	flow.Tokens -= ch.Tokens
	ch.Tokens = 0
	if request && ch.Request {
		l.Requests--
		flow.Requests--
		ch.Request = false
	}
}

// ReadsProgress implements picker.ProgressReader.
func (*Inflight) ReadsProgress() bool { return true }

// ResponseBody frees the prompt's tokens at the first chunk, when prefill is
// over, and the prefill endpoint altogether. With estimated output only the
// latter: the output is yet to come.
func (f *Inflight) ResponseBody(_ machine.Time, r *picker.Response) {
	if !r.First || !r.Streaming && !r.End {
		return
	}
	if ch := picker.Peek[charges](r.Decision, f); ch != nil {
		for i := range ch.list {
			if c := &ch.list[i]; c.Prefill || !f.AddOutput {
				f.release(c, c.Prefill)
			}
		}
	}
}

// Release frees what is left.
func (f *Inflight) Release(_ machine.Time, d *picker.Decision) {
	if ch := picker.Peek[charges](d, f); ch != nil {
		for i := range ch.list {
			f.release(&ch.list[i], true)
		}
		ch.list = ch.list[:0]
	}
}

// EndpointGone forgets what is in flight there.
func (f *Inflight) EndpointGone(slot int, _ bool) {
	l := f.at(slot)
	l.Requests, l.Tokens, l.Flows = 0, 0, nil
	l.Epoch++
}
