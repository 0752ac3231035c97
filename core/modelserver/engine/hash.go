package engine

import "encoding/binary"

// BlockHashes appends to dst the chained hashes of the full blocks of tokens:
// each names its block's content and everything before it. parent is the hash
// before the first block; start a chain with a salt (0, or whatever keeps
// tenants apart: vLLM's cache_salt). A partial last block has no hash.
//
// The hash is this engine's own. To a consumer of KV events it is an opaque
// name; llm-d's index recomputes its own from the token ids of BlockStored.
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

// take has a block's hash cover another token.
func take(h uint64, token uint32) uint64 {
	h = (h ^ uint64(token)) * 0x9fb21c651e98df25
	return h ^ h>>35
}

// PackedBlocks gives blocks the hashes of BlockHashes, by the bytes of their
// tokens, four to each, in little-endian order.
type PackedBlocks struct{}

// Name is the hash of a block behind another one.
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
