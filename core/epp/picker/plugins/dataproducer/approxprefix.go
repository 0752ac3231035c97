package dataproducer

import (
	"cmp"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
)

const (
	typeApproxPrefix = "approx-prefix-cache-producer"
	// minBlockTokens is the smallest block of the approximate index: smaller
	// settings are raised to it (llm-d-router issue 1158).
	minBlockTokens     = 64
	defaultLRUCapacity = 31250 // blocks per endpoint
	// PrefillProfile is the default name of the profile of prefill endpoints.
	PrefillProfile = "prefill"
)

// PrefixSource is a producer of prefix matches, approximate or precise.
type PrefixSource interface {
	picker.Plugin
	// Match returns the endpoints that hold the request's prefix. It is computed once for each request.
	Match(c *picker.Cycle) *PrefixMatch
}

var (
	_ PrefixSource = (*approxPrefix)(nil)
	_ PrefixSource = (*PrecisePrefix)(nil)
)

// PrefixMatch counts the blocks of a request's prompts that each endpoint holds.
type PrefixMatch struct {
	matched []int32 // blocks, by slot
	// Holding are the slots that hold any, if Sparse is true.
	Holding []int32
	Sparse  bool
	cached  []int32 // blocks wherever they lie, by slot; nil is matched
	// Total is the number of blocks of all prompts, a last partial one included, and BlockTokens the tokens in a block.
	Total       int
	BlockTokens int
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
func (*PrefixMatch) Reusable() {}

// Of returns the matched blocks of an endpoint.
func (m *PrefixMatch) Of(s *picker.State) int32 {
	if slot := s.Slot(); slot < len(m.matched) {
		return m.matched[slot]
	}
	return 0
}

// Cached returns how many blocks an endpoint has, whatever they are worth.
func (m *PrefixMatch) Cached(s *picker.State) int32 {
	if m.cached == nil {
		return m.Of(s)
	}
	if slot := s.Slot(); slot < len(m.cached) {
		return m.cached[slot]
	}
	return 0
}

// Ratio returns the share of the prompt that an endpoint holds.
func (m *PrefixMatch) Ratio(s *picker.State) float64 {
	if m.Total == 0 {
		return 0
	}
	return float64(m.Of(s)) / float64(m.Total)
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

// NewApproxPrefix makes approx-prefix-cache-producer.
var NewApproxPrefix = picker.Of(approxPrefix{AutoTune: true, BlockToken: 16, MaxBlocks: 2048, MaxTokens: 131072,
	Capacity: defaultLRUCapacity})

// Configure implements picker.Configurer.
func (a *approxPrefix) Configure(b *picker.Builder, name string, p picker.Params) error {
	a.index = newPrefixIndex()
	if a.BlockSize > 0 {
		b.Warn("plugin %s: blockSize is deprecated, use blockSizeTokens", name)
		if a.BlockToken == 16 {
			a.BlockToken = a.BlockSize
		}
	}
	if !a.AutoTune && a.BlockToken <= 0 {
		return p.At("blockSizeTokens").Expected("a whole number above zero, since autoTune is off")
	}
	if a.BlockToken > 0 && a.BlockToken < minBlockTokens {
		b.Warn("plugin %s: blockSizeTokens %d is below %d and is raised to it", name, a.BlockToken, minBlockTokens)
	}
	EnsureTokens(b, name)
	return nil
}

// blockTokens returns the block's length for this request.
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

// PrefixBlocks returns those that it compares unless an engine's are larger.
func (a *approxPrefix) PrefixBlocks() (tokens, limit int) {
	limit = cmp.Or(a.MaxTokens, math.MaxInt)
	return max(a.BlockToken, minBlockTokens), limit
}

// Produce works out the matches of all endpoints.
func (a *approxPrefix) Produce(c *picker.Cycle) { a.Match(c) }

func (a *approxPrefix) Match(c *picker.Cycle) *PrefixMatch {
	m, fresh := picker.Data[PrefixMatch](c.Decision, a)
	if !fresh && m.done {
		return m
	}
	m.done = true
	m.BlockTokens = a.blockTokens(c)
	a.hash(c.Request, m, a.maxBlocks(m.BlockTokens))
	for _, slot := range m.Holding {
		m.matched[slot] = 0
	}
	m.Holding, m.Sparse, m.Total = m.Holding[:0], true, 0
	if slots := len(a.index.lrus); len(m.matched) < slots {
		m.matched = make([]int32, slots, slots+slots/4)
	}
	for _, x := range m.prompts {
		m.Total += len(x.hashes) + x.alone
		m.Holding = a.index.match(x.hashes, m.matched, m.Holding)
	}
	return m
}

// hash names the blocks of every prompt: each block's hash covers all before it,
// the target model and the cache salt.
func (a *approxPrefix) hash(r *picker.Request, m *PrefixMatch, limit int) {
	m.prompts, m.buf = m.prompts[:0], m.buf[:0]
	seed := xxhash.Sum64String(r.TargetModel)
	if salt := r.Body.CacheSalt; salt != "" {
		seed = parse.Mix(seed, xxhash.Sum64String(salt))
	}
	prompts := r.Prompts()
	for i := range prompts {
		start, alone := len(m.buf), 0
		m.buf, alone = prompts[i].AppendBlocks(m.buf, seed, m.BlockTokens, limit)
		m.prompts = append(m.prompts, blocksOf{m.buf[start:len(m.buf):len(m.buf)], alone})
	}
}

// MatchedBlocks serves conditional decode.
func (a *approxPrefix) MatchedBlocks(c *picker.Cycle, i int32) int {
	return int(a.Match(c).Of(c.State(i)))
}

// Commit counts the prompt as cached on the destination, and on the prefill endpoint if there is one.
func (a *approxPrefix) Commit(_ machine.Time, d *picker.Decision) {
	m := picker.Peek[PrefixMatch](d, a)
	if m == nil {
		return
	}
	last := -1
	EachComputing(d, func(s *picker.State) {
		if s.Slot() == last { // it has them as its most recent ones
			return
		}
		last = s.Slot()
		capacity := cmp.Or(max(a.Capacity, 0), defaultLRUCapacity)
		if a.AutoTune && s.CacheBlocks > 0 {
			capacity = int(s.CacheBlocks)
		}
		for _, x := range m.prompts {
			a.index.add(x.hashes, x.alone, s.Slot(), capacity)
		}
	})
}

// EachComputing calls f with the endpoints that compute a decision's prompt: the destination, and the prefill endpoint
// if there is one.
func EachComputing(d *picker.Decision, f func(s *picker.State)) {
	primary, prefill := d.PrimaryProfile(), d.Profile(PrefillProfile)
	if primary.Ok() {
		f(&d.View.States[primary.Picked[0]])
	}
	if prefill.Ok() && prefill != primary {
		f(&d.View.States[prefill.Picked[0]])
	}
}

// EndpointGone keeps the history of an endpoint that may come back.
func (a *approxPrefix) EndpointGone(slot int, forget bool) {
	if forget {
		a.index.forget(slot)
	}
}

// IndexSize returns how many (endpoint, block) pairs are remembered.
func (a *approxPrefix) IndexSize() int { return a.index.total }

// MatchOf returns, for metrics, how much of the prompt an endpoint holds: the matched blocks, all blocks, and the
// tokens in a block.
func (a *approxPrefix) MatchOf(d *picker.Decision, s *picker.State) (matched, total, blockTokens int) {
	m := picker.Peek[PrefixMatch](d, a)
	if m == nil {
		return 0, 0, 0
	}
	return int(m.Of(s)), m.Total, m.BlockTokens
}

// EnsurePrefix makes a prefix producer, unless one is declared.
func EnsurePrefix(b *picker.Builder, consumer string) {
	ensure[PrefixSource](b, typeApproxPrefix, "PrefixCacheMatchInfoDataKey", consumer)
}

// ensure makes a plug-in of a type for a consumer, unless a T is declared.
func ensure[T picker.Plugin](b *picker.Builder, typ, dataKey, consumer string) {
	b.Late(func() error {
		for _, p := range b.Plugins() {
			if _, ok := p.(T); ok {
				return nil
			}
		}
		_, err := b.Ensure(typ, typ, dataKey, consumer)
		return err
	})
}

// FindPrefix links a plug-in to its prefix producer once all are declared.
func FindPrefix(b *picker.Builder, producer, consumer string, to *PrefixSource) {
	picker.Link(b, to, cmp.Or(producer, typeApproxPrefix), typeApproxPrefix, "PrefixCacheMatchInfoDataKey", consumer,
		"producer of prefix matches (wanted by "+consumer+")")
}
