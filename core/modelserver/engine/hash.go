package engine

import "encoding/binary"

// BlockHashes appends to dst the chained hashes of the full blocks of tokens. Each hash identifies its block's content
// and everything before it. parent is the hash before the first block. A chain starts with a salt (0, or a value that
// separates tenants: vLLM's cache_salt). A partial last block has no hash.
//
// The hash is this engine's own. To a consumer of KV events it is an opaque name; llm-d's index recomputes its own from
// the token ids of BlockStored.
func BlockHashes(dst []uint64, parent uint64, tokens []uint32, blockSize int) []uint64 {
	if blockSize < 1 {
		return dst
	}
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		h := mix(parent + golden)
		for _, t := range tokens[:blockSize] {
			h = take(h, t)
		}
		parent = mix(h)
		dst = append(dst, parent)
	}
	return dst
}

// take adds a token to a block's hash.
func take(h uint64, token uint32) uint64 {
	h = (h ^ uint64(token)) * 0x9fb21c651e98df25
	return h ^ h>>35
}

// PackedBlocks computes the hashes of BlockHashes from the bytes of a block's tokens, four to each token, in
// little-endian order.
type PackedBlocks struct{}

// Name returns the hash of a block that follows parent.
func (PackedBlocks) Name(parent uint64, block []byte) uint64 {
	h := mix(parent + golden)
	for ; len(block) >= 4; block = block[4:] {
		h = take(h, binary.LittleEndian.Uint32(block))
	}
	return mix(h)
}

// mix scrambles a word (the finaliser of splitmix64).
func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
