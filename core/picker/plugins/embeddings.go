package plugins

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

const typeEmbeddings = "mm-embeddings-cache-producer"

// assetTokenBytes is what the embedding of one token of an image is taken to
// occupy: 4,096 numbers of two bytes.
const assetTokenBytes = 8192

// maxAssets bounds the images remembered per endpoint, whatever their size.
const maxAssets = 1 << 20

// embeddings is mm-embeddings-cache-producer: which images, sounds and films
// each endpoint has seen, as far as its cache may still hold them.
type embeddings struct {
	named
	CacheMB int64 `json:"cacheSizeInMBPerServer"`

	caches []*assetCache // by slot, nil before the first
}

type assetCache struct {
	lru   *simplelru.LRU[uint64, int64]
	bytes int64
}

func newEmbeddings(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	e := &embeddings{named: base(typeEmbeddings, name), CacheMB: 4096}
	if err := p.Decode(e); err != nil {
		return nil, err
	}
	if e.CacheMB <= 0 {
		e.CacheMB = 4096
	}
	return e, nil
}

func (e *embeddings) at(slot int) *assetCache {
	if slot < len(e.caches) {
		return e.caches[slot]
	}
	return nil
}

// Produce has nothing to prepare: the scorer looks at the caches themselves.
func (e *embeddings) Produce(*picker.Cycle) {}

// Commit takes the request's assets for cached wherever it was sent.
func (e *embeddings) Commit(_ machine.Time, d *picker.Decision) {
	if d.Request.Body == nil || len(d.Request.Body.Assets) == 0 {
		return
	}
	for i := range d.Profiles {
		if r := &d.Profiles[i]; r.Ok() {
			e.add(d.View.States[r.Picked[0]].Slot(), d.Request)
		}
	}
}

func (e *embeddings) add(slot int, r *picker.Request) {
	for len(e.caches) <= slot {
		e.caches = append(e.caches, nil)
	}
	c := e.caches[slot]
	if c == nil {
		c = &assetCache{}
		c.lru, _ = simplelru.NewLRU(maxAssets, func(_ uint64, size int64) { c.bytes -= size })
		e.caches[slot] = c
	}
	for _, a := range r.Body.Assets {
		if !c.lru.Contains(a.Hash) {
			c.bytes += int64(a.Tokens) * assetTokenBytes
			c.lru.Add(a.Hash, int64(a.Tokens)*assetTokenBytes)
		}
		c.lru.Get(a.Hash)
	}
	for c.bytes > e.CacheMB<<20 {
		c.lru.RemoveOldest()
	}
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
	Pod     string `json:"pod"`
	Entries int    `json:"entries"`
}

// DumpState tells how many assets are remembered per endpoint.
func (e *embeddings) DumpState(v *picker.View, limit int) any {
	s := embeddingsState{PodList: []string{}, Pods: []podAssets{}, MaxPods: limit}
	for i := range v.States {
		st := &v.States[i]
		s.PodList = append(s.PodList, st.ID())
		if c := e.at(st.Slot()); c != nil && len(s.Pods) < limit {
			s.Pods = append(s.Pods, podAssets{st.ID(), c.lru.Len()})
		}
	}
	s.TotalKnownPods, s.TotalPods = len(s.PodList), len(s.Pods)
	return s
}

// embeddingsScorer is mm-embeddings-cache-scorer: the share of the request's
// images, sounds and films that an endpoint has seen.
type embeddingsScorer struct {
	named
	cache *embeddings
}

func newEmbeddingsScorer(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &embeddingsScorer{named: base("mm-embeddings-cache-scorer", name)}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	b.Late(func() error {
		pl, err := b.Ensure(typeEmbeddings, typeEmbeddings, "EncoderCacheMatchInfoDataKey", name)
		if err != nil {
			return err
		}
		c, ok := pl.(*embeddings)
		if !ok {
			return picker.TypeError(pl, typeEmbeddings)
		}
		s.cache = c
		return nil
	})
	return s, nil
}

// Score is matched/total; 0 without any.
func (s *embeddingsScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	if c.Request.Body == nil || len(c.Request.Body.Assets) == 0 {
		return
	}
	all := c.Request.Body.Assets
	for j, i := range in {
		cache := s.cache.at(c.State(i).Slot())
		if cache == nil {
			continue
		}
		n := 0
		for _, a := range all {
			if cache.lru.Contains(a.Hash) {
				n++
			}
		}
		scores[j] = float64(n) / float64(len(all))
	}
}
