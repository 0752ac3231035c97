package kvindex

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/kv"
)

// Comparison compares an index's blocks of pods with the blocks that their engines truly have.
type Comparison struct {
	// Pods is the number of engines that have blocks, Blocks the number of pairs of block and pod.
	Pods, Blocks int
	// Missing pairs are the engines' and not the index's, Extra ones the
	// reverse.
	Missing, Extra int
}

// Kept describes how an index was kept.
type Kept struct {
	// EngineTokens and Tokens are the tokens in a block of the engines and of the index.
	EngineTokens, Tokens int
	// MaxBlocks bounds the index, and Displaced states that blocks were dropped for others.
	MaxBlocks int
	Displaced bool
	// Lost means that the index started, or restarted, after engines had stored blocks. Replays means that it then
	// requests the earlier events from publishers.
	Lost, Replays bool
	// Deaf means that events of engines were lost on their way.
	Deaf bool
}

// Names maps engines' names of blocks to keys, by the rule of each index. Its indexes miss no event. An index in
// question is compared with the one of its rule.
type Names map[kv.Hasher]*Index

// Understand adds the rule of an index.
func (n Names) Understand(h kv.Hasher) {
	h.BlockTokens = h.Tokens()
	if n[h] == nil {
		n[h] = New(Config{Hasher: h, Orphans: 1 << 20})
	}
}

// Note takes an engine's event.
func (n Names) Note(from kv.Topic, e kv.Event) {
	for _, ix := range n {
		ix.Input(0, &Events{From: from, List: []kv.Event{e}}, new(Effects))
	}
}

// Compare compares an index of a rule with the engines, and returns why it may differ from their union.
func (n Names) Compare(h kv.Hasher, kept Kept, engines [][]kv.EngineHash, held func(engine int) []kv.Key) (Comparison,
	string) {
	h.BlockTokens = h.Tokens()
	kept.Tokens = h.Tokens()
	c := Compare(engines, n[h], held)
	return c, c.Excuse(kept)
}

// Excuse returns why an index that was kept like this cannot be the union of the engines' blocks; "" where
// it is the union, or should be.
func (c Comparison) Excuse(k Kept) string {
	switch {
	case c.Missing+c.Extra == 0:
	case k.EngineTokens%k.Tokens != 0:
		return fmt.Sprintf("the engines' blocks have %d tokens, the index's %d: %s", k.EngineTokens, k.Tokens,
			SizeMismatch(k.Tokens, k.EngineTokens))
	case k.Deaf:
		return "KV events were lost on their way to it"
	case c.Extra > 0:
	case k.Displaced:
		return fmt.Sprintf("it keeps at most %d blocks", k.MaxBlocks)
	case k.Lost && !k.Replays:
		return "it began in the middle of the run, and without replaySocketPort it does not hear what was stored before"
	}
	return ""
}

// SizeMismatch describes the effect of different KV block sizes, in tokens, in an index and an engine.
func SizeMismatch(index, engine int) string {
	switch {
	case engine < index:
		return "what the engine announces block by block never fills one of the picker's, so decoded text is " +
			"never found and prompts only as far as they are announced at once"
	case engine%index != 0:
		return "the engine's blocks do not end where the picker's end, so what follows the first of them is never found"
	}
	return "prompts are found, in finer steps than the engine can use: a match may be up to one engine block too long"
}

// Compare compares an index with the engines. engines are each engine's own names for its blocks, names an index that
// got every event and so knows their keys, and held returns the sorted keys that the compared index has of one engine's
// pod. A block that its engine never announced is missing.
func Compare(engines [][]kv.EngineHash, names *Index, held func(engine int) []kv.Key) Comparison {
	var c Comparison
	for i, hashes := range engines {
		var keys []kv.Key
		for _, hash := range hashes {
			known := names.Names(hash)
			if len(known) == 0 {
				c.Missing++
				c.Blocks++
			}
			keys = append(keys, known...)
		}
		slices.Sort(keys)
		keys = slices.Compact(keys) // two of the engine's blocks may have one content
		c.Blocks += len(keys)
		if len(hashes) > 0 {
			c.Pods++
		}
		missing, extra := difference(keys, held(i))
		c.Missing += missing
		c.Extra += extra
	}
	return c
}

// difference counts what only one of two sorted lists has.
func difference(a, b []kv.Key) (onlyA, onlyB int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			onlyA++
			a = a[1:]
		default:
			onlyB++
			b = b[1:]
		}
	}
	return onlyA + len(a), onlyB + len(b)
}
