package engine

// chain identifies the content of a sequence of KV blocks: by the hashes of the request and, past their end, by hashes
// that are unique to the chain. chain computes the latter only when they are needed, so that a generated token costs
// nothing.
type chain struct {
	hashes []uint64
	salt   uint64 // separates adapters; 0 for the base model
	key    uint64 // unique to the submission
}

const golden = 0x9e3779b97f4a7c15

// at returns the hash of block number p.
func (c *chain) at(p int32) uint64 {
	if int(p) < len(c.hashes) {
		if c.salt != 0 {
			return mix(c.hashes[p] ^ c.salt)
		}
		return c.hashes[p]
	}
	return mix(c.key + uint64(p)*golden)
}

// same returns the number of blocks from p up to end that the two chains share.
func (c *chain) same(d *chain, p, end int32) int32 {
	if c.key == d.key {
		return end - p
	}
	if c.salt == d.salt {
		// In the common case, compare without a call per block.
		known := int32(min(len(c.hashes), len(d.hashes)))
		q := p
		for q < min(end, known) {
			if c.hashes[q] != d.hashes[q] {
				return q - p
			}
			q++
		}
		if q == end {
			return end - p
		}
		for q < end && c.at(q) == d.at(q) {
			q++
		}
		return q - p
	}
	q := p
	for q < end && c.at(q) == d.at(q) {
		q++
	}
	return q - p
}

// holding holds the blocks of one request, or of a handle that outlives it.
type holding struct {
	chain
	leaf      int32 // deepest node of the prefix tree that the holding refers to; 0: none
	indexed   int32 // leading blocks that are in the tree
	announced int32 // leading blocks reported as stored
	blocks    int32 // all blocks, those in the tree included
}
