package dataproducer

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// The state of plug-ins, for picker.StateKeeper: by slot if it belongs to endpoints. SaveState returns a copy, which
// another goroutine encodes as JSON later.

// maxSlot bounds the slots in a saved state.
const maxSlot = 1 << 20

var errSlot = errors.New("a slot is beyond all endpoints")

// savedHistory is the approximate index of prompts.
type savedHistory struct {
	Runs  []savedRun    `json:"runs,omitempty"`
	Slots []savedBlocks `json:"slots,omitempty"`

	runs []run // of the index
}

// savedRun is a run of blocks, and the number of the one before it among those saved, 0 for none;
// the first is 1.
type savedRun struct {
	Before uint32        `json:"before,omitempty"`
	Hashes machine.Words `json:"hashes"`
}

// savedBlocks are the blocks sent to one slot, the oldest first. Each entry has a run's number, 0 for blocks that no
// other prompt has, and in the lower half the number of blocks.
type savedBlocks struct {
	Slot   int           `json:"slot"`
	Cap    int           `json:"cap"`
	Blocks machine.Words `json:"blocks,omitempty"`
	Spill  machine.Words `json:"spill,omitempty"` // pushed out by their own prompt

	entries []entry
}

// MarshalJSON writes it, each run behind the one before it, in the order in which slots
// have them: two indexes that hold the same in the same order are written alike, wherever
// their runs lie.
func (s *savedHistory) MarshalJSON() ([]byte, error) {
	type plain savedHistory
	var out plain
	number := make([]uint32, len(s.runs))
	var path []uint32
	for _, b := range s.Slots {
		for ring, list := range [anchors]*machine.Words{recent: &b.Blocks, spill: &b.Spill} {
			for i := b.entries[ring].prev; i != uint32(ring); i = b.entries[i].prev {
				e := &b.entries[i]
				path = path[:0]
				for id := e.run; id != 0 && number[id] == 0; id = s.runs[id].parent {
					path = append(path, id)
				}
				for _, id := range slices.Backward(path) {
					out.Runs = append(out.Runs, savedRun{number[s.runs[id].parent], s.runs[id].hashes})
					number[id] = uint32(len(out.Runs))
				}
				*list = append(*list, uint64(number[e.run])<<32|uint64(e.blocks))
			}
		}
		out.Slots = append(out.Slots, b)
	}
	return json.Marshal(&out)
}

// SaveState copies the index.
func (a *approxPrefix) SaveState() any {
	out := &savedHistory{runs: slices.Clone(a.index.runs)}
	for slot, l := range a.index.lrus {
		if l != nil {
			out.Slots = append(out.Slots, savedBlocks{Slot: slot, Cap: l.cap, entries: slices.Clone(l.entries)})
		}
	}
	return out
}

var errHistory = errors.New(
	"the history of prompts is none: expected runs each once and behind the one before it, and of each slot's no " +
		"more than it has blocks")

// LoadState fills the index.
func (a *approxPrefix) LoadState(text []byte) error {
	var saved savedHistory
	if err := json.Unmarshal(text, &saved); err != nil {
		return err
	}
	a.index = newPrefixIndex()
	for i, r := range saved.Runs {
		if len(r.Hashes) == 0 || int(r.Before) > i || a.index.first[r.Hashes[0]] != 0 {
			return errHistory
		}
		a.index.first[r.Hashes[0]] = a.index.newRun(run{hashes: r.Hashes, parent: r.Before})
		if r.Before != 0 {
			a.index.runs[r.Before].children++
		}
	}
	for i := range saved.Slots {
		s := &saved.Slots[i]
		if s.Slot < 0 || s.Slot > maxSlot {
			return errSlot
		}
		l := a.index.lru(s.Slot, max(s.Cap, 1))
		if l.len+l.spilled > 0 || !a.index.load(l, uint32(s.Slot), spill, s.Spill) ||
			!a.index.load(l, uint32(s.Slot), recent, s.Blocks) {
			return errHistory
		}
		a.index.shrink(l, uint32(s.Slot), l.cap)
	}
	return nil
}

// load fills a ring of a slot, and reports whether the saved entries were valid.
func (x *prefixIndex) load(l *blockLRU, slot, ring uint32, saved []uint64) bool {
	for _, v := range saved {
		id, n := uint32(v>>32), uint32(v)
		if n == 0 || n > 1<<31 || int(id) >= len(x.runs) {
			return false
		}
		e := l.newEntry(entry{run: id, blocks: n})
		l.link(ring, e)
		if x.total += int(n); ring == recent {
			l.len += int(n)
		} else {
			l.spilled += int(n)
		}
		if id == 0 {
			continue
		}
		h, r := x.runs[id].hold(slot), &x.runs[id]
		switch {
		case ring == recent && h.entry == 0:
			h.entry = e
		case ring == spill && h.spilled == 0:
			h.spilled = e
		default:
			return false
		}
		if from, to := x.part(r, h); from < to || to > len(r.hashes) {
			return false
		}
	}
	return true
}

// SaveState copies what is in flight.
func (f *Inflight) SaveState() any {
	out := append([]slotLoad{}, f.load...)
	for i := range out {
		out[i].Flows = slices.Clone(out[i].Flows)
	}
	return out
}

// LoadState implements picker.StateKeeper.
func (f *Inflight) LoadState(text []byte) error {
	f.load = nil
	return json.Unmarshal(text, &f.load)
}

// SaveDecision copies what a request holds.
func (f *Inflight) SaveDecision(d *picker.Decision) any {
	if ch := picker.Peek[charges](d, f); ch != nil {
		return append([]charge{}, ch.list...)
	}
	return nil
}

// LoadDecision implements picker.DecisionKeeper.
func (f *Inflight) LoadDecision(d *picker.Decision, text []byte) error {
	ch, _ := picker.Data[charges](d, f)
	ch.list = nil
	if err := json.Unmarshal(text, &ch.list); err != nil {
		return err
	}
	for _, c := range ch.list {
		if c.Slot < 0 || int(c.Slot) >= len(f.load) {
			return errSlot
		}
		if l := &f.load[c.Slot]; l.Epoch == c.Epoch && (c.Flow < 0 || int(c.Flow) >= len(l.Flows)) {
			return errors.New("a request has an unknown flow")
		}
	}
	return nil
}

// SaveState copies what runs where. Samples that wait to be sent change no decision.
func (s *Predicted) SaveState() any {
	out := make([][]machine.Float, len(s.running))
	for i, q := range s.running {
		for _, slo := range q.slos {
			out[i] = append(out[i], machine.Float(slo))
		}
	}
	return out
}

// LoadState implements picker.StateKeeper.
func (s *Predicted) LoadState(text []byte) error {
	var list [][]machine.Float
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

// SaveDecision copies what is known of a request that is under way.
func (s *Predicted) SaveDecision(d *picker.Decision) any {
	f := s.contexts[d]
	if f == nil {
		return nil
	}
	return f.flightState
}

// LoadDecision implements picker.DecisionKeeper.
func (s *Predicted) LoadDecision(d *picker.Decision, text []byte) error {
	f := &flight{d: d}
	if err := json.Unmarshal(text, &f.flightState); err != nil {
		return err
	}
	r := d.PrimaryProfile()
	if f.Slot < 0 || f.Slot > maxSlot || !r.Ok() {
		return errSlot
	}
	f.endpoint = r.Picked[0]
	s.contexts[d] = f
	s.oldest = append(s.oldest, f)
	return nil
}
