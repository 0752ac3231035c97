package dataproducer

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/predictor"
)

// What plug-ins remember, for picker.StateKeeper: by slot where it is about
// endpoints. A state is a copy, which somebody else puts into the form of JSON
// later.

// maxSlot bounds what a saved state may say of slots.
const maxSlot = 1 << 20

var errSlot = errors.New("a slot is beyond all endpoints")

// savedHistory is the approximate index of prompts.
type savedHistory []*savedBlocks

// savedBlocks is what one slot was sent.
type savedBlocks struct {
	Slot    int           `json:"slot"`
	Cap     int           `json:"cap"`
	Blocks  machine.Words `json:"blocks,omitempty"`  // the oldest first
	Spill   machine.Words `json:"spill,omitempty"`   // pushed out by their own prompt
	Spilled machine.Words `json:"spilled,omitempty"` // of these, those that still count

	nodes []lruNode
}

// MarshalJSON writes it.
func (s *savedBlocks) MarshalJSON() ([]byte, error) {
	type plain savedBlocks
	out := plain(*s)
	if s.nodes != nil {
		for n := s.nodes[0].prev; n != 0; n = s.nodes[n].prev {
			out.Blocks = append(out.Blocks, s.nodes[n].hash)
		}
	}
	return json.Marshal(&out)
}

// SaveState copies the index.
func (a *approxPrefix) SaveState() any {
	var out savedHistory
	for slot, l := range a.index.lrus {
		if l == nil {
			continue
		}
		s := &savedBlocks{Slot: slot, Cap: l.cap, Spill: slices.Clone(l.spill), nodes: slices.Clone(l.nodes)}
		for _, h := range l.spill {
			if node, ok := a.index.node(h, uint32(slot)); ok && node == spilled {
				s.Spilled = append(s.Spilled, h)
			}
		}
		out = append(out, s)
	}
	return out
}

// LoadState fills the index.
func (a *approxPrefix) LoadState(text []byte) error {
	var list savedHistory
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, s := range list {
		if s.Slot < 0 || s.Slot > maxSlot {
			return errSlot
		}
		l := a.index.lru(s.Slot, max(s.Cap, 1))
		for _, h := range s.Spilled {
			a.index.set(h, uint32(s.Slot), spilled)
		}
		for _, h := range s.Blocks {
			a.index.set(h, uint32(s.Slot), l.push(h))
		}
		l.spill = s.Spill
	}
	return nil
}

type savedLoad struct {
	Requests int64       `json:"requests,omitempty"`
	Tokens   int64       `json:"tokens,omitempty"`
	Epoch    uint32      `json:"epoch,omitempty"`
	Flows    []savedFlow `json:"flows,omitempty"`
}

type savedFlow struct {
	Fairness string `json:"fairness"`
	Priority int    `json:"priority,omitempty"`
	Requests int64  `json:"requests,omitempty"`
	Tokens   int64  `json:"tokens,omitempty"`
}

// SaveState copies what is in flight.
func (f *Inflight) SaveState() any {
	out := make([]savedLoad, len(f.load))
	for i := range f.load {
		l := &f.load[i]
		out[i] = savedLoad{Requests: l.requests, Tokens: l.tokens, Epoch: l.epoch}
		for _, x := range l.flows {
			out[i].Flows = append(out[i].Flows, savedFlow{x.fairness, x.priority, x.requests, x.tokens})
		}
	}
	return out
}

// LoadState takes it over.
func (f *Inflight) LoadState(text []byte) error {
	var list []savedLoad
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	f.load = make([]slotLoad, len(list))
	for i, l := range list {
		f.load[i] = slotLoad{requests: l.Requests, tokens: l.Tokens, epoch: l.Epoch}
		for _, x := range l.Flows {
			f.load[i].flows = append(f.load[i].flows, flowLoad{x.Fairness, x.Priority, x.Requests, x.Tokens})
		}
	}
	return nil
}

type savedCharge struct {
	Slot    int32  `json:"slot"`
	Flow    int32  `json:"flow,omitempty"`
	Epoch   uint32 `json:"epoch,omitempty"`
	Tokens  int64  `json:"tokens,omitempty"`
	Request bool   `json:"request,omitempty"`
	Prefill bool   `json:"prefill,omitempty"`
}

// SaveDecision copies what a request holds.
func (f *Inflight) SaveDecision(d *picker.Decision) any {
	ch := picker.Peek[charges](d, f)
	if ch == nil {
		return nil
	}
	out := make([]savedCharge, len(ch.list))
	for i, c := range ch.list {
		out[i] = savedCharge{c.slot, c.flow, c.epoch, c.tokens, c.request, c.prefill}
	}
	return out
}

// LoadDecision takes it over.
func (f *Inflight) LoadDecision(d *picker.Decision, text []byte) error {
	var list []savedCharge
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	ch, _ := picker.Data[charges](d, f)
	ch.list = ch.list[:0]
	for _, c := range list {
		if c.Slot < 0 || int(c.Slot) >= len(f.load) {
			return errSlot
		}
		if l := &f.load[c.Slot]; l.epoch == c.Epoch && (c.Flow < 0 || int(c.Flow) >= len(l.flows)) {
			return errors.New("a request's flow is none")
		}
		ch.list = append(ch.list, charge{c.Slot, c.Flow, c.Epoch, c.Tokens, c.Request, c.Prefill})
	}
	return nil
}

// savedQueues are the objectives of what runs at each endpoint, by slot.
type savedQueues [][]machine.Float

// SaveState copies what runs where. Samples that wait to be sent change no decision.
func (s *Predicted) SaveState() any {
	out := make(savedQueues, len(s.running))
	for i, q := range s.running {
		for _, slo := range q.slos {
			out[i] = append(out[i], machine.Float(slo))
		}
	}
	return out
}

// LoadState takes it over.
func (s *Predicted) LoadState(text []byte) error {
	var list savedQueues
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	s.running = make([]runningQueue, len(list))
	for i, slos := range list {
		for _, slo := range slos {
			s.running[i].add(float64(slo))
		}
	}
	return nil
}

// savedFlight is a request that is under way.
type savedFlight struct {
	Slot     int                `json:"slot"`
	Queued   bool               `json:"queued,omitempty"`
	At       machine.Time       `json:"at"`
	SLO      machine.Float      `json:"slo,omitempty"`
	Row      predictor.Features `json:"row"`
	Decode   predictor.Features `json:"decode"`
	Told     bool               `json:"told,omitempty"`
	Foretold [2]machine.Float   `json:"foretold"`
	TTFT     machine.Float      `json:"ttft,omitempty"`
}

// SaveDecision copies what is known of a request that is under way.
func (s *Predicted) SaveDecision(d *picker.Decision) any {
	f := s.contexts[d]
	if f == nil {
		return nil
	}
	return savedFlight{f.slot, f.queued, f.at, machine.Float(f.slo), f.row, f.decode, f.told,
		[2]machine.Float{machine.Float(f.foretold.TTFTMs), machine.Float(f.foretold.TPOTMs)}, machine.Float(f.ttft)}
}

// LoadDecision takes it over.
func (s *Predicted) LoadDecision(d *picker.Decision, text []byte) error {
	var x savedFlight
	if err := json.Unmarshal(text, &x); err != nil {
		return err
	}
	r := d.PrimaryProfile()
	if x.Slot < 0 || x.Slot > maxSlot || !r.Ok() {
		return errSlot
	}
	f := &flight{d: d, slot: x.Slot, endpoint: r.Picked[0], queued: x.Queued, at: x.At, slo: float64(x.SLO), row: x.Row, decode: x.Decode, told: x.Told,
		foretold: Prediction{TTFTMs: float64(x.Foretold[0]), TPOTMs: float64(x.Foretold[1])}, ttft: float64(x.TTFT)}
	s.contexts[d] = f
	s.oldest = append(s.oldest, f)
	return nil
}
