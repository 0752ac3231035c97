package kv

// DefaultBlockTokens is the endpoint picker's block size when its
// configuration names none (precise-prefix-cache-producer, blockSizeTokens).
// Document 003 uses 64 (VLLM_KV_BLOCK_SIZE).
const DefaultBlockTokens = 16

// Key names a block by its content: every token from the beginning of the
// prompt to the block's end, the model (or LoRA adapter) and the cache salt.
type Key uint64

// EngineHash is the name that a model server gave to one of its blocks. It is
// opaque: Index maps it to Keys with the tokens that came with it.
type EngineHash uint64

// Hasher is the one rule by which keys are made. The engine, the endpoint
// picker and the KV-cache manager must agree on both fields.
//
//	key of block i = FNV-64a( canonical CBOR of [key of block i-1, tokens, extra] )
//	key "before block 0" = FNV-64a( CBOR of [FNV-64a(Seed), null, model] )
type Hasher struct {
	BlockTokens int    // tokens per block; 0 means DefaultBlockTokens
	Seed        string // changes every key; hashSeed in the picker's configuration
}

// Tokens returns the block size in use.
func (h Hasher) Tokens() int {
	if h.BlockTokens <= 0 {
		return DefaultBlockTokens
	}
	return h.BlockTokens
}

// Root returns the parent of a prompt's first block: one per model or adapter.
func (h Hasher) Root(model string) Key {
	seed := fnvString(fnvOffset, h.Seed)
	s := fnvByte(fnvOffset, cborArray|3)
	s = cborHead(s, cborUint, seed)
	s = fnvByte(s, cborNull)
	s = cborText(s, model)
	return Key(s)
}

// BlockKey returns the key of the block that follows parent. The number of tokens
// is not checked. Extra distinguishes blocks of equal tokens (cache salt,
// hashes of images); nil for plain text.
func BlockKey(parent Key, tokens []uint32, extra []string) Key {
	s := fnvByte(fnvOffset, cborArray|3)
	s = cborHead(s, cborUint, uint64(parent))
	s = cborHead(s, cborArray, uint64(len(tokens)))
	for _, t := range tokens {
		s = cborHead(s, cborUint, uint64(t))
	}
	if extra == nil {
		return Key(fnvByte(s, cborNull))
	}
	s = cborHead(s, cborArray, uint64(len(extra)))
	for _, e := range extra {
		s = cborText(s, e)
	}
	return Key(s)
}

// AppendKeys appends the keys of every whole block of tokens that follow
// parent; a partial block at the end has no key. Extra[i], where present,
// belongs to block i. Appending into a slice with room allocates nothing.
func (h Hasher) AppendKeys(dst []Key, parent Key, tokens []uint32, extra [][]string) []Key {
	n := h.Tokens()
	for i := 0; len(tokens) >= n; i++ {
		var e []string
		if i < len(extra) {
			e = extra[i]
		}
		parent = BlockKey(parent, tokens[:n], e)
		dst = append(dst, parent)
		tokens = tokens[n:]
	}
	return dst
}

// PromptKeys returns the keys of a whole prompt. A cache salt, where the request
// has one, belongs to the first block only (OpenAI field cache_salt); all
// later keys inherit it through their parent.
func (h Hasher) PromptKeys(model, cacheSalt string, tokens []uint32) []Key {
	var extra [][]string
	if cacheSalt != "" {
		extra = [][]string{{cacheSalt}}
	}
	keys := make([]Key, 0, len(tokens)/h.Tokens())
	return h.AppendKeys(keys, h.Root(model), tokens, extra)
}

// The hash state runs over the CBOR bytes as they would be written; they are
// never put into memory.

const (
	fnvOffset uint64 = 14695981039346656037
	fnvPrime  uint64 = 1099511628211

	cborUint  = 0x00
	cborStr   = 0x60
	cborArray = 0x80
	cborNull  = 0xf6
)

func fnvByte(s uint64, b byte) uint64 { return (s ^ uint64(b)) * fnvPrime }

func fnvString(s uint64, text string) uint64 {
	for i := 0; i < len(text); i++ {
		s = fnvByte(s, text[i])
	}
	return s
}

func cborText(s uint64, text string) uint64 {
	return fnvString(cborHead(s, cborStr, uint64(len(text))), text)
}

// cborHead hashes a major type with its argument in the shortest form, as
// canonical CBOR (RFC 8949, 4.2.1) demands.
func cborHead(s uint64, major byte, v uint64) uint64 {
	switch {
	case v < 24:
		return fnvByte(s, major|byte(v))
	case v < 1<<8:
		return fnvByte(fnvByte(s, major|24), byte(v))
	case v < 1<<16:
		s = fnvByte(fnvByte(s, major|25), byte(v>>8))
		return fnvByte(s, byte(v))
	case v < 1<<32:
		s = fnvByte(fnvByte(s, major|26), byte(v>>24))
		s = fnvByte(s, byte(v>>16))
		s = fnvByte(s, byte(v>>8))
		return fnvByte(s, byte(v))
	default:
		s = fnvByte(s, major|27)
		for shift := 56; shift >= 0; shift -= 8 {
			s = fnvByte(s, byte(v>>shift))
		}
		return s
	}
}
