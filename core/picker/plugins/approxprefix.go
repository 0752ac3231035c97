package plugins

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

const (
	typeApproxPrefix = "approx-prefix-cache-producer"
	// minBlockTokens is the smallest block of the approximate index: smaller
	// settings are raised to it (llm-d-router issue 1158).
	minBlockTokens     = 64
	defaultLRUCapacity = 31250 // blocks per endpoint
	prefillProfile     = "prefill"
)

// prefixSource is a producer of prefix matches, approximate or precise.
type prefixSource interface {
	picker.Plugin
	match(c *picker.Cycle) *prefixMatch
}

// prefixMatch is how much of a request's prompts each endpoint holds.
type prefixMatch struct {
	matched     []int32 // blocks, by slot
	holding     []int32 // the slots that hold any, where sparse says so
	sparse      bool
	cached      []int32 // blocks wherever they lie, by slot; nil is matched
	total       int     // blocks of all prompts, a last partial one included
	blockTokens int
	prompts     []blocksOf
	buf         []uint64
	done        bool
}

// blocksOf are a prompt's blocks: those with a hash, and how many follow that no
// other prompt has.
type blocksOf struct {
	hashes []uint64
	alone  int
}

// Spare implements picker.Spare.
func (*prefixMatch) Spare() {}

// of is the matched blocks of an endpoint.
func (m *prefixMatch) of(s *picker.State) int32 {
	if slot := s.Slot(); slot < len(m.matched) {
		return m.matched[slot]
	}
	return 0
}

// held is how many blocks an endpoint has, whatever they are worth.
func (m *prefixMatch) held(s *picker.State) int32 {
	if m.cached == nil {
		return m.of(s)
	}
	if slot := s.Slot(); slot < len(m.cached) {
		return m.cached[slot]
	}
	return 0
}

// ratio is the share of the prompt that an endpoint holds.
func (m *prefixMatch) ratio(s *picker.State) float64 {
	if m.total == 0 {
		return 0
	}
	return float64(m.of(s)) / float64(m.total)
}

// approxPrefix is approx-prefix-cache-producer: it remembers where prompts
// were sent and takes what was sent for what is cached.
type approxPrefix struct {
	named
	AutoTune   bool `json:"autoTune"`
	BlockSize  int  `json:"blockSize"` // deprecated
	BlockToken int  `json:"blockSizeTokens"`
	MaxBlocks  int  `json:"maxPrefixBlocksToMatch"`
	MaxTokens  int  `json:"maxPrefixTokensToMatch" min:"0"`
	Capacity   int  `json:"lruCapacityPerServer"`

	index *prefixIndex
}

func newApproxPrefix(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	a := &approxPrefix{AutoTune: true, BlockToken: 16, MaxBlocks: 2048,
		MaxTokens: 131072, Capacity: defaultLRUCapacity, index: newPrefixIndex()}
	if err := p.Decode(a); err != nil {
		return nil, err
	}
	if a.BlockSize > 0 {
		b.Warn("plugin %s: blockSize is deprecated, use blockSizeTokens", name)
		if a.BlockToken == 16 {
			a.BlockToken = a.BlockSize
		}
	}
	if !a.AutoTune && a.BlockToken <= 0 {
		return nil, p.At("blockSizeTokens").Expected("a whole number above zero, since autoTune is off")
	}
	if a.BlockToken > 0 && a.BlockToken < minBlockTokens {
		b.Warn("plugin %s: blockSizeTokens %d is below %d and is raised to it", name, a.BlockToken, minBlockTokens)
	}
	ensureTokens(b, name)
	return a, nil
}

// blockTokens is the block's length for this request.
func (a *approxPrefix) blockTokens(c *picker.Cycle) int {
	size := a.BlockToken
	if a.AutoTune && len(c.Candidates) > 0 {
		if n := c.State(c.Candidates[0]).CacheBlockSize; n > 0 {
			size = int(n)
		}
	}
	return max(size, minBlockTokens)
}

func (a *approxPrefix) maxBlocks(blockTokens int) int {
	if a.MaxTokens > 0 {
		return a.MaxTokens / blockTokens
	}
	if a.MaxBlocks != 0 {
		return max(a.MaxBlocks, 0)
	}
	return math.MaxInt
}

// PrefixBlocks are those that it compares unless an engine's are larger.
func (a *approxPrefix) PrefixBlocks() (tokens, limit int) {
	if limit = a.MaxTokens; limit == 0 {
		limit = math.MaxInt
	}
	return max(a.BlockToken, minBlockTokens), limit
}

// Produce works out the matches of all endpoints.
func (a *approxPrefix) Produce(c *picker.Cycle) { a.match(c) }

func (a *approxPrefix) match(c *picker.Cycle) *prefixMatch {
	m, fresh := picker.Data[prefixMatch](c.Decision, a)
	if !fresh && m.done {
		return m
	}
	m.done = true
	m.blockTokens = a.blockTokens(c)
	a.hash(c.Request, m, a.maxBlocks(m.blockTokens))
	for _, slot := range m.holding {
		m.matched[slot] = 0
	}
	m.holding, m.sparse, m.total = m.holding[:0], true, 0
	if slots := len(a.index.lrus); len(m.matched) < slots {
		m.matched = make([]int32, slots, slots+slots/4)
	}
	for _, x := range m.prompts {
		m.total += len(x.hashes) + x.alone
		m.holding = a.index.match(x.hashes, m.matched, m.holding)
	}
	return m
}

// hash names the blocks of every prompt: each block's hash covers all before it,
// the target model and the cache salt.
func (a *approxPrefix) hash(r *picker.Request, m *prefixMatch, limit int) {
	m.prompts, m.buf = m.prompts[:0], m.buf[:0]
	seed := xxhash.Sum64String(r.TargetModel)
	if salt := r.Body.CacheSalt; salt != "" {
		seed = parse.Mix(seed, xxhash.Sum64String(salt))
	}
	prompts := r.Prompts()
	for i := range prompts {
		start, alone := len(m.buf), 0
		m.buf, alone = prompts[i].AppendBlocks(m.buf, seed, m.blockTokens, limit)
		m.prompts = append(m.prompts, blocksOf{m.buf[start:len(m.buf):len(m.buf)], alone})
	}
}

// MatchedBlocks serves conditional decode.
func (a *approxPrefix) MatchedBlocks(c *picker.Cycle, i int32) int {
	return int(a.match(c).of(c.State(i)))
}

// Commit takes the prompt for cached on the destination, and on the prefill
// endpoint if there is one.
func (a *approxPrefix) Commit(_ machine.Time, d *picker.Decision) {
	m := picker.Peek[prefixMatch](d, a)
	if m == nil {
		return
	}
	last := -1
	record := func(i int32) {
		s := &d.View.States[i]
		if s.Slot() == last { // it has them as its most recent ones
			return
		}
		last = s.Slot()
		capacity := a.Capacity
		if capacity <= 0 {
			capacity = defaultLRUCapacity
		}
		if a.AutoTune && s.CacheBlocks > 0 {
			capacity = int(s.CacheBlocks)
		}
		for _, x := range m.prompts {
			a.index.add(x.hashes, x.alone, s.Slot(), capacity)
		}
	}
	if p := d.PrimaryProfile(); p.Ok() {
		record(p.Picked[0])
	}
	if p := d.Profile(prefillProfile); p.Ok() && p != d.PrimaryProfile() {
		record(p.Picked[0])
	}
}

// EndpointGone keeps the history of an endpoint that may come back.
func (a *approxPrefix) EndpointGone(slot int, forget bool) {
	if forget {
		a.index.forget(slot)
	}
}

// Blocks is how many blocks a slot's history holds, for the debug page.
func (a *approxPrefix) Blocks(slot int) int { return a.index.held(slot) }

// IndexSize is how many (endpoint, block) pairs are remembered.
func (a *approxPrefix) IndexSize() int { return a.index.total }

// MatchOf is what the prompt matched on an endpoint, for metrics: blocks,
// blocks in all, and tokens per block.
func (a *approxPrefix) MatchOf(d *picker.Decision, s *picker.State) (matched, total, blockTokens int) {
	m := picker.Peek[prefixMatch](d, a)
	if m == nil {
		return 0, 0, 0
	}
	return int(m.of(s)), m.total, m.blockTokens
}

// ensurePrefix makes a prefix producer, unless one is declared.
func ensurePrefix(b *picker.Builder, consumer string) {
	b.Late(func() error {
		for _, p := range b.Plugins() {
			if _, ok := p.(prefixSource); ok {
				return nil
			}
		}
		_, err := b.Ensure(typeApproxPrefix, typeApproxPrefix, "PrefixCacheMatchInfoDataKey", consumer)
		return err
	})
}

// findPrefix links a plug-in to its prefix producer once all are declared.
func findPrefix(b *picker.Builder, producer, consumer string, to *prefixSource) {
	if producer == "" {
		producer = typeApproxPrefix
	}
	b.Late(func() error {
		p, err := b.Ensure(producer, typeApproxPrefix, "PrefixCacheMatchInfoDataKey", consumer)
		if err != nil {
			return err
		}
		s, ok := p.(prefixSource)
		if !ok {
			return picker.TypeError(p, "producer of prefix matches (wanted by "+consumer+")")
		}
		*to = s
		return nil
	})
}
