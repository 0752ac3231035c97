package tokens

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// BPE is a byte pair encoding (Sennrich et al., 2016). It splits a text into pieces. Within a piece, it merges the pair
// of neighbours that training merged first, until no pair is left.
type BPE struct {
	bytes      [256]uint32 // the token of each single byte
	merges     map[pair]merge
	vocabulary map[string]uint32
	text       map[uint32]string // the bytes of each token, with added ones
	whole      bool              // a piece that is a token stays whole (ignore_merges)
	splitters  []splitter
	prefix     bool // encoding adds a space before text that has none
	// byCharacter, metaspace and strip are for SentencePiece; see sentencepiece.go.
	byCharacter bool
	metaspace   metaspace
	strip       bool // decoding drops the space that encoding added
	normalize   []func(string) string
	added       []added // longest first
	firsts      [256]bool
	special     map[uint32]bool
}

type pair struct{ a, b uint32 }

type merge struct {
	rank int32
	to   uint32
}

type added struct {
	text string
	id   uint32
	left bool // covers the white space on its left
	tail bool // and on its right
	word bool // only between non-letters
}

// VocabularySize returns the number of different tokens.
func (t *BPE) VocabularySize() int { return len(t.text) }

// ID returns the id of a token by its text. It is mostly for special tokens.
func (t *BPE) ID(text string) (uint32, bool) {
	for _, a := range t.added {
		if a.text == text {
			return a.id, true
		}
	}
	id, ok := t.vocabulary[text]
	return id, ok
}

// Decode implements Tokenizer.
func (t *BPE) Decode(dst []byte, id uint32) []byte { return append(dst, t.text[id]...) }

// Encode implements Tokenizer. It recognises added tokens in the text.
func (t *BPE) Encode(dst []uint32, text string) []uint32 {
	from := 0
	for at := 0; at < len(text); {
		a, start, end := t.addedAt(text, from, at)
		if a == nil {
			at++
			continue
		}
		dst = t.encodeText(dst, text[from:start], from == 0)
		dst = append(dst, a.id)
		from, at = end, end
	}
	return t.encodeText(dst, text[from:], from == 0)
}

func (t *BPE) encodeText(dst []uint32, text string, first bool) []uint32 {
	if text == "" {
		return dst
	}
	for _, n := range t.normalize {
		text = n(text)
	}
	if t.prefix && text[0] != ' ' {
		text = " " + text
	}
	if (t.metaspace == metaspaceAlways || t.metaspace == metaspaceFirst && first) &&
		!strings.HasPrefix(text, lowerBlock) {
		text = lowerBlock + text
	}
	return t.encodePieces(dst, text, t.splitters)
}

func (t *BPE) encodePieces(dst []uint32, text string, splitters []splitter) []uint32 {
	if len(splitters) == 0 {
		return t.encodePiece(dst, text)
	}
	for len(text) > 0 {
		n := splitters[0](text)
		dst = t.encodePieces(dst, text[:n], splitters[1:])
		text = text[n:]
	}
	return dst
}

// shortPiece is the length up to which a linear scan for the best pair is faster than a heap.
const shortPiece = 48

func (t *BPE) encodePiece(dst []uint32, piece string) []uint32 {
	if t.whole {
		if id, ok := t.vocabulary[piece]; ok {
			return append(dst, id)
		}
	}
	from := len(dst)
	if t.byCharacter {
		dst = t.characters(dst, piece)
	} else {
		for i := range len(piece) {
			dst = append(dst, t.bytes[piece[i]])
		}
	}
	if len(piece) > shortPiece {
		return append(dst[:from], t.mergeLong(dst[from:])...)
	}
	part := dst[from:]
	for len(part) > 1 {
		best, at := merge{rank: -1}, 0
		for i := range len(part) - 1 {
			if m, ok := t.merges[pair{part[i], part[i+1]}]; ok && (best.rank < 0 || m.rank < best.rank) {
				best, at = m, i
			}
		}
		if best.rank < 0 {
			break
		}
		part[at] = best.to
		part = append(part[:at+1], part[at+2:]...)
	}
	return dst[:from+len(part)]
}

// mergeLong does the same for long pieces, in n log n. The linear scan would take far too long for a megabyte of one
// letter.
func (t *BPE) mergeLong(ids []uint32) []uint32 {
	prev, next := make([]int32, len(ids)), make([]int32, len(ids))
	for i := range ids {
		prev[i], next[i] = int32(i-1), int32(i+1)
	}
	next[len(ids)-1] = -1
	gone := make([]bool, len(ids))
	var q machine.Heap[candidate] // by rank, then from left to right
	consider := func(i int32) {
		if i < 0 || next[i] < 0 {
			return
		}
		if m, ok := t.merges[pair{ids[i], ids[next[i]]}]; ok {
			q.Push(machine.Key{First: int64(m.rank), Second: uint64(i)}, candidate{m, i, ids[i], ids[next[i]]})
		}
	}
	for i := range ids {
		consider(int32(i))
	}
	for q.Len() > 0 {
		_, c := q.Pop()
		if gone[c.at] || next[c.at] < 0 || ids[c.at] != c.a || ids[next[c.at]] != c.b {
			continue // another merge has used one of the two
		}
		right := next[c.at]
		ids[c.at], gone[right] = c.to, true
		if next[c.at] = next[right]; next[c.at] >= 0 {
			prev[next[c.at]] = c.at
		}
		consider(prev[c.at])
		consider(c.at)
	}
	out := ids[:0]
	for i := range ids {
		if !gone[i] {
			out = append(out, ids[i])
		}
	}
	return out
}

type candidate struct {
	merge
	at   int32
	a, b uint32
}
