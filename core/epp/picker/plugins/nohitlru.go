package plugins

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/machine"
)

// noHitLRU is no-hit-lru-scorer. A request whose prefix no endpoint holds goes to the endpoint that got such a request
// longest ago (1 - rank/(N-1); unused endpoints come first). A request whose prefix an endpoint holds is neutral (.5).
type noHitLRU struct {
	named
	Size       int    `json:"lruSize"`
	Producer   string `json:"prefixMatchInfoProducerName"`
	PluginType string `json:"prefixPluginType"` // older names of the producer
	PluginName string `json:"prefixPluginName"`

	source dataproducer.PrefixSource
	used   []int32 // slots, least recently used first
}

type coldness struct{ cold bool }

// Complete implements picker.Completer.
func (s *noHitLRU) Complete(b *picker.Builder, name string) {
	s.Size = cmp.Or(max(s.Size, 0), 1024)
	dataproducer.FindPrefix(b, s.Producer, name, &s.source)
}

// Score ranks endpoints for a cold request.
func (s *noHitLRU) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.Match(c)
	cold, _ := picker.Data[coldness](c.Decision, s)
	cold.cold = true
	for _, i := range in {
		if m.Of(c.State(i)) > 0 {
			cold.cold = false
			for j := range scores {
				scores[j] = .5
			}
			return
		}
	}
	if len(in) == 1 {
		scores[0] = 1
		return
	}
	last := float64(len(in) - 1)
	fresh := 0
	for j, i := range in {
		if !slices.Contains(s.used, int32(c.State(i).Slot())) {
			scores[j] = 1 - float64(fresh)/last
			fresh++
		}
	}
	for j, i := range in {
		if k := slices.Index(s.used, int32(c.State(i).Slot())); k >= 0 {
			scores[j] = max(0, 1-float64(fresh+k)/last)
		}
	}
}

// Commit moves the endpoints of a cold request to the end.
func (s *noHitLRU) Commit(_ machine.Time, d *picker.Decision) {
	if cold := picker.Peek[coldness](d, s); cold == nil || !cold.cold {
		return
	}
	dataproducer.EachComputing(d, func(e *picker.State) {
		slot := int32(e.Slot())
		if k := slices.Index(s.used, slot); k >= 0 {
			s.used = slices.Delete(s.used, k, k+1)
		} else if len(s.used) >= s.Size {
			s.used = slices.Delete(s.used, 0, 1)
		}
		s.used = append(s.used, slot)
	})
}

// EndpointGone forgets a slot that will be another endpoint's.
func (s *noHitLRU) EndpointGone(slot int, forget bool) {
	if k := slices.Index(s.used, int32(slot)); forget && k >= 0 {
		s.used = slices.Delete(s.used, k, k+1)
	}
}

// SaveState copies the order of use.
func (s *noHitLRU) SaveState() any { return slices.Clone(s.used) }

// LoadState implements picker.StateKeeper.
func (s *noHitLRU) LoadState(text []byte) error { return json.Unmarshal(text, &s.used) }

type lruState struct {
	Endpoints      []string `json:"endpoints"`
	TotalEndpoints int      `json:"totalEndpoints"`
	MaxEndpoints   int      `json:"maxEndpoints"`
}

// DumpState returns the order in which endpoints got cold requests.
func (s *noHitLRU) DumpState(v *picker.View, limit int) any {
	out := lruState{Endpoints: []string{}, TotalEndpoints: len(s.used), MaxEndpoints: limit}
	for _, slot := range s.used {
		for i := range v.States {
			if v.States[i].Slot() == int(slot) && len(out.Endpoints) < limit {
				out.Endpoints = append(out.Endpoints, v.States[i].ID())
			}
		}
	}
	return out
}
