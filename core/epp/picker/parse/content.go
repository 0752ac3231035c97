package parse

import (
	"encoding/binary"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// UnitTokens is the default number of tokens in a unit of a prompt (see Prompt.Divide): the smallest block of an
// approximate index.
const UnitTokens = 64

// Prompt is one prompt of a request: its text as bytes or, when the client sent
// them, its token ids. A token is estimated as four bytes of text.
//
// What plug-ins compare of prompts is worked out once, from their content:
// hashes of their beginnings (Divide), and keys of KV blocks (SetKeys). A
// description of a prompt has these and its length, and no content.
type Prompt struct {
	text   []byte
	tokens []uint32

	of        *described.Body // holds the content, which is written out on demand
	described bool            // there is no content, only what follows
	ids       bool            // the client sent, or a renderer made, token ids
	length    int             // bytes of text, four for a token id

	unit  int      // bytes
	heads []uint64 // hash of the prompt's beginning, up to the end of each unit
	own   bool     // never compared with hashes of bytes
	alone bool     // there are none from the first unit on that no other prompt has
	keys  []blockKeys
}

// blockKeys are the keys of a prompt's KV blocks under one rule.
type blockKeys struct {
	hasher kv.Hasher
	model  string
	keys   []kv.Key
}

// TextPrompt keeps text; the caller must not change it later.
func TextPrompt(text []byte) Prompt { return Prompt{text: text, length: len(text)} }

// TokenPrompt returns a prompt of token ids.
func TokenPrompt(ids []uint32) Prompt {
	return Prompt{tokens: ids, ids: true, length: bytesPerToken * len(ids)}
}

// IDs returns the prompt's token ids; nil where it is text, or not known so well.
func (p *Prompt) IDs() []uint32 {
	if p.described {
		return nil
	}
	return p.tokens
}

// DescribedPrompt returns a prompt that is known only by its length in bytes (four for a token id) and by the hashes
// that Divide returned for units of unit bytes.
func DescribedPrompt(ids bool, length, unit int, heads []uint64) Prompt {
	return Prompt{described: true, ids: ids, length: length, unit: unit, heads: heads}
}

// Unknown is the panic value of a described request whose description lacks what a caller reads.
type Unknown struct{ What string }

func (u *Unknown) Error() string {
	return "needs " + u.What + ", and there is only a description of the request"
}

// Text returns the prompt's text; nil where it is token ids.
func (p *Prompt) Text() []byte {
	if p.described && !p.ids {
		panic(&Unknown{"the prompt's text"})
	}
	if p.of != nil && p.text == nil {
		p.text = p.of.AppendPrompt(make([]byte, 0, p.length), &asSent, false)
	}
	return p.text
}

// asSent joins roles and contents, the form in which prompts are compared.
var asSent tokens.Template

// Tokens returns the prompt's token ids; nil where it is text.
func (p *Prompt) Tokens() []uint32 {
	if p.described && p.ids {
		panic(&Unknown{"the prompt's token ids"})
	}
	return p.tokens
}

// IsTokens reports whether the prompt is token ids.
func (p *Prompt) IsTokens() bool { return p.ids }

// Length returns the prompt's length in bytes of text, four for a token id.
func (p *Prompt) Length() int { return p.length }

// EstimatedTokens returns the prompt's length in tokens: real when it is ids, else a
// quarter of its bytes, rounded up.
func (p *Prompt) EstimatedTokens() int { return (p.length + bytesPerToken - 1) / bytesPerToken }

// Bytes returns the content, as it is hashed: the text, or the ids in little-endian order.
func (p *Prompt) Bytes() []byte {
	if p.ids {
		return tokenBytes(p.Tokens())
	}
	return p.Text()
}

// Divide hashes the prompt's beginnings: up to the end of each unit of so many
// tokens, the last one perhaps partial, and no further than limit tokens.
func (p *Prompt) Divide(unitTokens, limit int) {
	if p.described || p.unit > 0 {
		return
	}
	p.unit = unitTokens * bytesPerToken
	p.heads = p.appendHeads(p.unit, min(p.length, limit)*bytesPerToken)
}

// Heads returns the hashes that Divide made, and the size of a unit in bytes.
func (p *Prompt) Heads() (unit int, heads []uint64) { return p.unit, p.heads }

// AppendBlocks appends the hashes of the prompt's beginnings up to the end of each block of so many tokens, at most
// limit, each mixed with seed. It takes them from the units' hashes if a block is a whole number of units, else from
// the content. alone is the number of further blocks that have no hash, since no other prompt has them (DivideAlone).
func (p *Prompt) AppendBlocks(dst []uint64, seed uint64, blockTokens, limit int) (blocks []uint64, alone int) {
	size := blockTokens * bytesPerToken
	n := min((p.length+size-1)/size, limit)
	unit, heads := p.unit, p.heads
	if unit == 0 || size%unit != 0 {
		unit, heads = size, nil
	}
	named := n
	if p.alone {
		if unit != p.unit {
			heads, _ = p.sharedHeads(unit)
		}
		named = min(n, len(heads)/(size/unit))
	} else if len(heads) < (min(n*size, p.length)+unit-1)/unit {
		heads = p.appendHeads(unit, n*size)
	}
	for i := range named {
		if i == 1 { // a second block is another one where the first has another size
			seed = Mix(seed, uint64(size))
		}
		dst = append(dst, Mix(seed, heads[min((i+1)*(size/unit), len(heads))-1]))
	}
	return dst, n - named
}

// DivideAlone is Divide for a reader that only compares prompts with each other: of
// one that is described only what others may have, too, is hashed.
func (p *Prompt) DivideAlone(unitTokens, limit int) {
	p.own = true
	if heads, ok := p.sharedHeads(unitTokens * bytesPerToken); ok && p.unit == 0 {
		p.unit, p.heads, p.alone = unitTokens*bytesPerToken, heads, true
		return
	}
	p.Divide(unitTokens, limit)
}

// sharedHeads returns the hashes of the units that other prompts may have.
func (p *Prompt) sharedHeads(unit int) ([]uint64, bool) {
	if p.of == nil {
		return nil, false
	}
	return p.of.SharedNames(nil, p.rule(unit))
}

// rule returns the names of the units of a prompt that is not written out.
func (p *Prompt) rule(unit int) *described.Rule {
	return &described.Rule{Namer: headNamer{}, Seed: uint64(unit), Unit: unit, Own: p.own}
}

// appendHeads hashes the prompt's beginnings up to the ends of its units, no
// further than limit bytes.
func (p *Prompt) appendHeads(unit, limit int) []uint64 {
	if p.of != nil && (p.own || p.text == nil) && (limit >= p.length || limit%unit == 0) {
		return p.headsOf(unit, limit)
	}
	content := p.Bytes()
	content = content[:min(len(content), limit)]
	heads := make([]uint64, 0, (len(content)+unit-1)/unit)
	h := uint64(unit)
	for len(content) > 0 {
		n := min(unit, len(content))
		h = headNamer{}.Name(h, content[:n])
		heads, content = append(heads, h), content[n:]
	}
	return heads
}

// headNamer names the units of appendHeads.
type headNamer struct{}

// Name implements described.Namer.
func (headNamer) Name(before uint64, unit []byte) uint64 { return Mix(before, xxhash.Sum64(unit)) }

// headsOf is appendHeads for a prompt that is not spelt out.
func (p *Prompt) headsOf(unit, limit int) []uint64 {
	rule := p.rule(unit)
	heads, rest := p.of.Names(make([]uint64, 0, (p.length+unit-1)/unit), rule)
	if len(rest) > 0 {
		last := rule.Seed
		if n := len(heads); n > 0 {
			last = heads[n-1]
		}
		heads = append(heads, headNamer{}.Name(last, rest))
	}
	if limit < p.length {
		heads = heads[:limit/unit]
	}
	return heads
}

// Mix chains two hashes (the finaliser of splitmix64 over their mixture).
func Mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 ^ b
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// SetKeys notes the keys of the prompt's KV blocks under a rule, for a model.
func (p *Prompt) SetKeys(h kv.Hasher, model string, keys []kv.Key) {
	p.keys = append(p.keys, blockKeys{h, model, keys})
}

// Keys returns the keys that SetKeys noted, and whether it did.
func (p *Prompt) Keys(h kv.Hasher, model string) ([]kv.Key, bool) {
	for i := range p.keys {
		if k := &p.keys[i]; k.hasher == h && k.model == model {
			return k.keys, true
		}
	}
	return nil, false
}

// EachKeys yields all keys that SetKeys stored.
func (p *Prompt) EachKeys(yield func(h kv.Hasher, model string, keys []kv.Key)) {
	for _, k := range p.keys {
		yield(k.hasher, k.model, k.keys)
	}
}

// tokenBytes are token ids as little-endian bytes.
func tokenBytes(ids []uint32) []byte {
	if len(ids) == 0 {
		return nil
	}
	if little {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), bytesPerToken*len(ids))
	}
	b := make([]byte, 0, bytesPerToken*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return b
}

var little = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
