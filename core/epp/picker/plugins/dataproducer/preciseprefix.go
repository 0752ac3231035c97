package dataproducer

import (
	"math"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// TypePrecisePrefix is the type's name today.
const TypePrecisePrefix = "precise-prefix-cache-producer"

// PrecisePrefix is precise-prefix-cache-producer. It takes the blocks that each endpoint holds from the model servers'
// events, and not from earlier decisions. As precise-prefix-cache-scorer (deprecated) it scores, too.
//
// The driver owns the index: Connect gives the producer one to look blocks up in. Without one, as in a preview, no
// endpoint holds anything.
type PrecisePrefix struct {
	named
	// Took, if there is a stopwatch, gets the time of each look-up. Set it before the first request.
	Took func(machine.Time)

	cfg preciseConfig

	rendered bool // a token-producer asks a renderer; else tokens are estimated

	index  KVIndex
	scorer *kvindex.Scorer
	lookup LookupStats
	clock  func() machine.Time
	view   *picker.View     // for which slots was made
	slots  map[string]int32 // by "address:port"
}

// KVIndex is the interface of PrecisePrefix to an index of KV blocks, whose pods are named "address:port".
type KVIndex struct {
	View kvindex.View
	// Speculate counts keys as held by a pod for ttl. It is called when a
	// decision takes effect, and has taken effect itself when it returns.
	Speculate func(pod string, keys []kv.Key, ttl machine.Time)
}

// LookupStats are counts of look-ups since the start.
type LookupStats struct {
	Requests uint64 // prompts looked up
	Hits     uint64 // of their blocks, on the pod with most (kvindex.Scorer.MostHeld); 0 without EnableMetrics
}

// NewPrecisePrefix makes precise-prefix-cache-producer, under one of its two types.
func NewPrecisePrefix(typ string) picker.Factory {
	return func(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
		s := &PrecisePrefix{clock: b.Options().Stopwatch}
		if err := s.cfg.read(b, name, p); err != nil {
			return nil, err
		}
		b.Late(func() error {
			producers := false
			for _, pl := range b.Plugins() {
				if t, ok := pl.(*tokenProducer); ok {
					producers = true
					s.rendered = s.rendered || t.VLLM != nil
				}
			}
			if !s.rendered {
				why := "no token-producer is declared"
				if producers {
					why = "the token-producer has no vllm"
				}
				b.Warn("plugin %s: %s, so tokens are estimated at four bytes each and match only engines that "+
					"tokenise like that", name, why)
			}
			s.cfg.reach(b, name)
			return nil
		})
		if typ == TypePrecisePrefix {
			return s, nil
		}
		return &preciseScorer{s}, nil
	}
}

// Connect gives the producer its index.
func (s *PrecisePrefix) Connect(x KVIndex) {
	s.index, s.scorer = x, x.View.Scorer()
}

// Index returns the configuration of the producer's index.
func (s *PrecisePrefix) Index() kvindex.Config { return s.cfg.index() }

// Sources returns the configuration of the producer's events.
func (s *PrecisePrefix) Sources() KVSources { return s.cfg.sources() }

// EnableMetrics reports whether the configuration asks for the index's metrics.
func (s *PrecisePrefix) EnableMetrics() bool { return s.cfg.IndexerConfig.BlockIndex.EnableMetrics }

// Lookups returns the counts of look-ups.
func (s *PrecisePrefix) Lookups() LookupStats { return s.lookup }

// preciseMatch is a prefixMatch with the keys that it was made of.
type preciseMatch struct {
	PrefixMatch
	keys    [][]kv.Key // of each prompt that has any
	weights []float64  // of what was found, by slot
}

// Produce works out the matches of all endpoints.
func (s *PrecisePrefix) Produce(c *picker.Cycle) { s.Match(c) }

func (s *PrecisePrefix) Match(c *picker.Cycle) *PrefixMatch {
	m, fresh := picker.Data[preciseMatch](c.Decision, s)
	if !fresh && m.done {
		return &m.PrefixMatch
	}
	h := s.cfg.hasher()
	m.done, m.BlockTokens = true, h.Tokens()
	m.keys, m.Total = m.keys[:0], 0
	prompts := c.Request.Prompts()
	for i := range prompts {
		if keys := s.keys(c.Request, &prompts[i], c.Request.TargetModel); len(keys) > 0 {
			m.keys = append(m.keys, keys)
			m.Total += len(keys)
		}
	}
	s.find(c, m)
	return &m.PrefixMatch
}

// ReadPrompt makes the keys of a prompt's blocks, for the model that the client
// asks for.
func (s *PrecisePrefix) ReadPrompt(r *picker.Request, p *parse.Prompt) {
	h, model := s.cfg.hasher(), r.AskedModel()
	if _, made := p.Keys(h, model); !made && (p.IsTokens() || !s.rendered) {
		p.SetKeys(h, model, s.keys(r, p, model))
	}
}

// keys returns the keys of a prompt's whole blocks. It returns none if a renderer should have returned the text's
// tokens and did not.
func (s *PrecisePrefix) keys(r *picker.Request, p *parse.Prompt, model string) []kv.Key {
	h := s.cfg.hasher()
	if keys, ok := p.Keys(h, model); ok || !p.IsTokens() && s.rendered {
		return keys
	}
	ids := p.Tokens()
	if !p.IsTokens() {
		ids = tokens.Packed{}.Encode(nil, string(p.Text()))
	}
	return h.PromptKeys(model, r.Body.CacheSalt, ids)
}

// find looks the keys up, each prompt's by themselves, and adds up what was
// found. As recorded from llm-d-router, the whole part of the blocks' weights
// counts.
func (s *PrecisePrefix) find(c *picker.Cycle, m *preciseMatch) {
	if s.view != c.View {
		s.know(c.View)
	}
	if cap(m.matched) < len(c.View.States) {
		m.matched = make([]int32, 0, len(c.View.States))
		m.cached, m.weights = m.cached[:0], m.weights[:0]
	}
	clear(m.matched)
	clear(m.cached)
	clear(m.weights)
	if s.scorer == nil || len(m.keys) == 0 {
		return
	}
	if s.clock != nil && s.Took != nil {
		began := s.clock()
		defer func() { s.Took(s.clock() - began) }()
	}
	for _, keys := range m.keys {
		for _, held := range s.scorer.Score(keys) {
			if slot, ok := s.slots[held.Pod]; ok {
				m.add(int(slot), held)
			}
		}
		s.lookup.Requests++
		if s.EnableMetrics() {
			s.lookup.Hits += uint64(s.scorer.MostHeld(keys))
		}
	}
	for slot, w := range m.weights {
		m.matched[slot] = int32(math.Floor(w))
	}
}

// add counts what an endpoint holds of one prompt.
func (m *preciseMatch) add(slot int, held kvindex.PodScore) {
	picker.AtSlot(&m.matched, slot)
	*picker.AtSlot(&m.weights, slot) += held.Weight
	*picker.AtSlot(&m.cached, slot) += int32(held.Blocks)
}

// know notes the slots of a view's endpoints.
func (s *PrecisePrefix) know(v *picker.View) {
	if s.view != nil && len(s.view.States) == len(v.States) {
		same := true
		for i := range v.States {
			same = same && s.view.States[i].Endpoint == v.States[i].Endpoint
		}
		if same { // a scrape brings new metrics, most often not new endpoints
			s.view = v
			return
		}
	}
	s.view, s.slots = v, make(map[string]int32, len(v.States))
	for i := range v.States {
		s.slots[v.States[i].HostPort()] = int32(v.States[i].Slot())
	}
}

// MatchedBlocks serves conditional decode.
func (s *PrecisePrefix) MatchedBlocks(c *picker.Cycle, i int32) int {
	return int(s.Match(c).Of(c.State(i)))
}

// Commit counts the prompt's blocks as stored at its destination, until the engine's events replace them
// (speculativeIndexing).
func (s *PrecisePrefix) Commit(_ machine.Time, d *picker.Decision) {
	m := picker.Peek[preciseMatch](d, s)
	if m == nil || len(m.keys) == 0 || !s.cfg.Speculative || s.index.Speculate == nil {
		return
	}
	EachComputing(d, func(e *picker.State) {
		for _, keys := range m.keys {
			s.index.Speculate(e.HostPort(), keys, s.cfg.SpeculativeTTL.Time())
		}
	})
}

// MatchOf returns, for metrics, how much of the prompt an endpoint holds: the matched blocks, all blocks, and the
// tokens in a block.
func (s *PrecisePrefix) MatchOf(d *picker.Decision, st *picker.State) (matched, total, blockTokens int) {
	m := picker.Peek[preciseMatch](d, s)
	if m == nil {
		return 0, 0, 0
	}
	return int(m.Of(st)), m.Total, m.BlockTokens
}

// Precise returns the producer within a plug-in, nil if there is none.
func Precise(p picker.Plugin) *PrecisePrefix {
	switch x := p.(type) {
	case *PrecisePrefix:
		return x
	case *preciseScorer:
		return x.PrecisePrefix
	}
	return nil
}

// preciseScorer is precise-prefix-cache-scorer, the older form that produces
// and scores in one.
type preciseScorer struct{ *PrecisePrefix }

// ScoresCache implements picker.CacheScorer.
func (s *preciseScorer) ScoresCache() {}

// Score is the share of the prompt's blocks that an endpoint holds.
func (s *preciseScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.Match(c)
	for j, i := range in {
		scores[j] = m.Ratio(c.State(i))
	}
}
