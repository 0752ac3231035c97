package kvindex

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Saved is the state of an Index without its configuration, in a form that JSON can carry. Load continues from it in
// another Index of the same configuration. Save quickly copies memory as it lies; another goroutine may encode it
// later.
type Saved struct {
	savedIndex
	copied *copied
}

type savedIndex struct {
	Now     machine.Time               `json:"now"`
	Cleanup machine.Time               `json:"cleanup"`
	Stats   Stats                      `json:"stats"`
	Places  []place                    `json:"places"`
	Pods    []savedPod                 `json:"pods,omitempty"` // by number
	Numbers int                        `json:"numbers,omitempty"`
	Rested  []uint16                   `json:"rested,omitempty"`
	Hand    int                        `json:"hand,omitempty"`
	Records machine.Words              `json:"records,omitempty"` // recordWords each, by age
	Aliases machine.Words              `json:"aliases,omitempty"` // hash and key
	Wide    map[kv.EngineHash][]kv.Key `json:"wide,omitempty"`
	Names   map[kv.Key]string          `json:"names,omitempty"`
	Orphans machine.Words              `json:"orphans,omitempty"` // the oldest first
	Awaited []savedExpectation         `json:"awaited,omitempty"`
}

type savedPod struct {
	podState
	Odd    []savedCount  `json:"odd,omitempty"`
	Shared []savedCount  `json:"shared,omitempty"`
	Order  machine.Words `json:"order,omitempty"` // of its records, by their places among all
}

type savedCount struct {
	Of    uint64 `json:"of"` // hash or key
	Place uint16 `json:"place"`
	Count int    `json:"count"`
}

type savedExpectation struct {
	At  machine.Time `json:"at"`
	Pod string       `json:"pod"`
	Key kv.Key       `json:"key"`
}

// copied is memory of an Index.
type copied struct {
	records records
	first   []uint32 // of each saved pod
	aliases [][]tableSlot
}

const recordWords = 5

// Save copies the index.
func (ix *Index) Save() *Saved {
	s := &Saved{savedIndex: savedIndex{Now: ix.now, Cleanup: ix.cleanup, Stats: ix.stats,
		Places: slices.Clone(ix.places), Numbers: len(ix.byNumber), Rested: slices.Clone(ix.rested), Hand: ix.hand,
		Wide: maps.Clone(ix.wide), Names: maps.Clone(ix.names), Orphans: machine.WordsOf(ix.orphans[ix.orphan:])},
		copied: &copied{records: ix.recs}}
	s.Orphans = append(s.Orphans, machine.WordsOf(ix.orphans[:ix.orphan])...)
	for _, p := range ix.byNumber {
		if p != nil {
			p.rate.turn(ix.now) // so that the state does not depend on the last reader
			s.Pods = append(s.Pods, p.save())
			s.copied.first = append(s.copied.first, p.first)
		}
	}
	for x, at := range ix.spec.until {
		if ix.pods[x.pod.Name] == x.pod {
			s.Awaited = append(s.Awaited, savedExpectation{at, x.pod.Name, x.key})
		}
	}
	chunks := make([]*[recordChunk]record, len(ix.recs.chunks))
	for i, c := range ix.recs.chunks {
		chunk := *c
		chunks[i] = &chunk
	}
	s.copied.records.chunks = chunks
	for i := range ix.aliases.shards {
		if p := ix.aliases.shards[i].slots.Load(); p != nil {
			s.copied.aliases = append(s.copied.aliases, slices.Clone(*p))
		}
	}
	return s
}

func (p *pod) save() savedPod {
	s := savedPod{podState: p.podState}
	s.Groups, s.RateLast = maps.Clone(p.Groups), p.rate.last
	if p.rate != (rateWindow{last: p.rate.last}) {
		s.Rate = slices.Clone(p.rate.bins[:])
	}
	s.Odd, s.Shared = saveCounts(p.odd), saveCounts(p.shared)
	return s
}

func saveCounts(counts map[atPlace]int) (list []savedCount) {
	for x, n := range counts {
		list = append(list, savedCount{x.of, x.place, n})
	}
	machine.SortFunc(list, func(a, b savedCount) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Place, b.Place))
	})
	return list
}

// MarshalJSON implements json.Marshaler.
func (s *Saved) MarshalJSON() ([]byte, error) {
	out := s.savedIndex
	if c := s.copied; c != nil {
		out.Pods = slices.Clone(out.Pods)
		c.writeTo(&out)
	}
	machine.SortFunc(out.Awaited, func(a, b savedExpectation) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Key, b.Key))
	})
	return json.Marshal(&out)
}

// writeTo writes records and names in an order that does not depend on how they
// came to lie in memory.
func (c *copied) writeTo(out *savedIndex) {
	place := make([]uint32, c.records.made+1)
	n := uint32(0)
	for id := c.records.oldest; id != 0; n++ {
		r := c.records.at(id)
		place[id] = n
		out.Records = append(out.Records, uint64(r.key), uint64(r.engine), uint64(r.stored), uint64(r.touched),
			uint64(r.hits)<<32|uint64(r.pod)<<16|uint64(r.places))
		id = r.newer
	}
	for i, id := range c.first {
		for ; id != 0; id = c.records.at(id).podNext {
			out.Pods[i].Order = append(out.Pods[i].Order, uint64(place[id]))
		}
	}
	var names []tableSlot
	for _, shard := range c.aliases {
		for _, slot := range shard {
			if slot.word != 0 {
				names = append(names, slot)
			}
		}
	}
	machine.SortFunc(names, func(a, b tableSlot) int { return cmp.Compare(a.name, b.name) })
	for _, slot := range names {
		out.Aliases = append(out.Aliases, slot.name, slot.word)
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Saved) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &s.savedIndex) }

// Load restores a state that was decoded from JSON, before the first message.
func (ix *Index) Load(s *Saved) error {
	ix.now, ix.cleanup, ix.stats, ix.hand, ix.rested = s.Now, s.Cleanup, s.Stats, s.Hand, slices.Clone(s.Rested)
	for _, p := range s.Places {
		if ix.placeOf(p.Medium, p.Group) < 0 {
			return errors.New("too many media and groups")
		}
	}
	if s.Numbers < 0 || s.Numbers > maxPods || len(s.Records)%recordWords != 0 || len(s.Aliases)%2 != 0 {
		return errors.New("pods, records or names are incomplete")
	}
	ix.byNumber = make([]*pod, s.Numbers)
	for n := range ix.byNumber {
		ix.publishPod(n, "")
	}
	for i := range s.Pods {
		if x := &s.Pods[i]; int(x.Number) >= s.Numbers || ix.byNumber[x.Number] != nil {
			return errors.New("a pod has no valid number")
		}
		ix.loadPod(&s.Pods[i])
	}
	for i := 0; i < len(s.Records); i += recordWords {
		if err := ix.loadRecord(s.Records[i : i+recordWords]); err != nil {
			return err
		}
	}
	for i := range s.Pods {
		if err := ix.loadOrder(&s.Pods[i]); err != nil {
			return err
		}
	}
	for i := 0; i < len(s.Aliases); i += 2 {
		ix.aliases.set(ix.aliases.slot(s.Aliases[i]), s.Aliases[i+1])
	}
	maps.Copy(ix.wide, s.Wide)
	maps.Copy(ix.names, s.Names)
	for _, h := range s.Orphans[:min(len(s.Orphans), ix.cfg.Orphans)] {
		ix.orphans = append(ix.orphans, kv.EngineHash(h))
	}
	for _, x := range s.Awaited {
		p := ix.pods[x.Pod]
		if p == nil {
			return errors.New("blocks of a pod that is not there are awaited")
		}
		ix.await(x.At, p, x.Key)
	}
	return nil
}

func (ix *Index) loadPod(x *savedPod) {
	p := &pod{podState: x.podState}
	p.Groups, p.Rate, p.rate.last = maps.Clone(x.Groups), nil, x.RateLast
	copy(p.rate.bins[:], x.Rate)
	for _, o := range x.Odd {
		addTo(&p.odd, atPlace{o.Of, o.Place}, o.Count)
	}
	for _, k := range x.Shared {
		addTo(&p.shared, atPlace{k.Of, k.Place}, k.Count)
	}
	ix.pods[p.Name], ix.byNumber[p.Number] = p, p
	ix.publishPod(int(p.Number), p.Name)
	ix.quiet = min(ix.quiet, ix.silentAt(p))
}

// loadRecord makes the next youngest record; the order of its pod's comes later.
func (ix *Index) loadRecord(w []uint64) error {
	number, places := uint16(w[4]>>16), uint16(w[4])
	if int(number) >= len(ix.byNumber) || ix.byNumber[number] == nil || places == 0 {
		return errors.New("a record has no known pod")
	}
	slot := ix.blocks.table.slot(nameOf(w[0]))
	if ix.blocks.placesOf(slot, number) != 0 {
		return errors.New("two records are of one block and pod")
	}
	id, rec := ix.recs.add()
	*rec = record{key: kv.Key(w[0]), engine: kv.EngineHash(w[1]), stored: machine.Time(w[2]), hits: uint32(w[4] >> 32),
		pod: number, places: places, sibling: ix.blocks.head(slot)}
	ix.recs.young(id, rec, machine.Time(w[3]), true)
	ix.blocks.put(slot, number, places, id)
	ix.byNumber[number].blocks++
	return nil
}

// loadOrder links a pod's records. They were made in the order of their age, from
// number 1.
func (ix *Index) loadOrder(x *savedPod) error {
	p := ix.byNumber[x.Number]
	if len(x.Order) != p.blocks {
		return errors.New("a pod's records are incomplete")
	}
	before := uint32(0)
	for _, place := range x.Order {
		if place >= uint64(ix.recs.live) {
			return errors.New("a pod has an unknown record")
		}
		id := uint32(place) + 1
		rec := ix.recs.at(id)
		if rec.pod != x.Number || rec.podPrev != 0 || id == p.first {
			return errors.New("a pod's record is another's, or stands twice")
		}
		if rec.podPrev = before; before == 0 {
			p.first = id
		} else {
			ix.recs.at(before).podNext = id
		}
		before = id
	}
	return nil
}
