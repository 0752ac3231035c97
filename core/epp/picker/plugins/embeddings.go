package plugins

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

const typeEmbeddings = "mm-embeddings-cache-producer"

// assetBytes is the assumed size of one image's embedding.
const assetBytes = 2 << 20

// embeddings is mm-embeddings-cache-producer: which images, sounds and films
// each endpoint has seen, as far as its cache may still hold them.
type embeddings struct {
	named
	CacheMB int64 `json:"cacheSizeInMBPerServer"`

	capacity int
	caches   []*simplelru.LRU[uint64, struct{}] // by slot, nil before the first
}

// Complete implements picker.Completer.
func (e *embeddings) Complete(_ *picker.Builder, _ string) {
	e.CacheMB = cmp.Or(max(e.CacheMB, 0), 4096)
	e.capacity = int(max(1, min(e.CacheMB, 1<<30)<<20/assetBytes))
}

func (e *embeddings) at(slot int) *simplelru.LRU[uint64, struct{}] {
	if slot < len(e.caches) {
		return e.caches[slot]
	}
	return nil
}

// Produce has nothing to prepare: the scorer looks at the caches themselves.
func (e *embeddings) Produce(*picker.Cycle) {}

// Commit takes the request's assets for cached on its destinations.
func (e *embeddings) Commit(_ machine.Time, d *picker.Decision) {
	if d.Request.Body == nil || len(d.Request.Body.Assets) == 0 {
		return
	}
	if r := d.PrimaryProfile(); r.Ok() {
		for _, i := range r.Picked {
			for _, a := range d.Request.Body.Assets {
				e.cache(d.View.States[i].Slot()).Add(a.Hash, struct{}{})
			}
		}
	}
}

// cache returns a slot's cache, and makes it if it is missing.
func (e *embeddings) cache(slot int) *simplelru.LRU[uint64, struct{}] {
	c := picker.AtSlot(&e.caches, slot)
	if *c == nil {
		*c, _ = simplelru.NewLRU[uint64, struct{}](e.capacity, nil) // the capacity is positive
	}
	return *c
}

// EndpointGone keeps the history of an endpoint that may come back.
func (e *embeddings) EndpointGone(slot int, forget bool) {
	if forget && slot < len(e.caches) {
		e.caches[slot] = nil
	}
}

type embeddingsState struct {
	PodList        []string    `json:"podList"`
	TotalKnownPods int         `json:"totalKnownPods"`
	Pods           []podAssets `json:"pods"`
	TotalPods      int         `json:"totalPods"`
	MaxPods        int         `json:"maxPods"`
}

type podAssets struct {
	Pod   string `json:"pod"`
	Items int    `json:"items"`
}

// DumpState returns how many assets are remembered per endpoint.
func (e *embeddings) DumpState(v *picker.View, limit int) any {
	s := embeddingsState{PodList: []string{}, Pods: []podAssets{}, MaxPods: limit}
	for i := range v.States {
		st := &v.States[i]
		s.PodList = append(s.PodList, st.ID())
		if c := e.at(st.Slot()); c != nil && len(s.Pods) < limit {
			s.Pods = append(s.Pods, podAssets{st.ID(), c.Len()})
		}
	}
	s.TotalKnownPods, s.TotalPods = len(s.PodList), len(s.Pods)
	return s
}

// embeddingsScorer is mm-embeddings-cache-scorer: the share of the request's
// different images, sounds and films that an endpoint has seen.
type embeddingsScorer struct {
	named
	Producer string `json:"producerName"`

	cache *embeddings
}

// Complete implements picker.Completer.
func (s *embeddingsScorer) Complete(b *picker.Builder, name string) {
	picker.Link(b, &s.cache, cmp.Or(s.Producer, typeEmbeddings), typeEmbeddings, "EncoderCacheMatchInfoDataKey", name,
		typeEmbeddings)
}

// ScoresCache implements picker.CacheScorer.
func (s *embeddingsScorer) ScoresCache() {}

// Score is matched/total; 0 without any.
func (s *embeddingsScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	if c.Request.Body == nil || len(c.Request.Body.Assets) == 0 {
		return
	}
	different := make([]uint64, 0, len(c.Request.Body.Assets))
	for _, a := range c.Request.Body.Assets {
		different = append(different, a.Hash)
	}
	slices.Sort(different)
	different = slices.Compact(different)
	for j, i := range in {
		cache := s.cache.at(c.State(i).Slot())
		if cache == nil {
			continue
		}
		n := 0
		for _, hash := range different {
			if cache.Contains(hash) {
				n++
			}
		}
		scores[j] = float64(n) / float64(len(different))
	}
}

// SaveState copies which assets were sent where, the oldest first.
func (e *embeddings) SaveState() any {
	out := make([]machine.Words, len(e.caches))
	for slot, c := range e.caches {
		if c != nil {
			out[slot] = c.Keys()
		}
	}
	return out
}

// LoadState implements picker.StateKeeper.
func (e *embeddings) LoadState(text []byte) error {
	var list []machine.Words
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	e.caches = make([]*simplelru.LRU[uint64, struct{}], len(list))
	for slot, hashes := range list {
		for _, h := range hashes {
			e.cache(slot).Add(h, struct{}{})
		}
	}
	return nil
}
