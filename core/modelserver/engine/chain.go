package engine

// chain names the content of a sequence of KV blocks: by the hashes that the
// request brought and, past their end, by hashes that nothing else has. Spelling
// out the latter only when somebody asks keeps a generated token free of cost.
type chain struct {
	hashes []uint64
	salt   uint64 // keeps adapters apart; 0 for the base model
	key    uint64 // unique to the submission
}

const golden = 0x9e3779b97f4a7c15

// at is the hash of block number p.
func (c *chain) at(p int32) uint64 {
	if int(p) < len(c.hashes) {
		if c.salt != 0 {
			return mix(c.hashes[p] ^ c.salt)
		}
		return c.hashes[p]
	}
	return mix(c.key + uint64(p)*golden)
}

// same is how many of the blocks from p up to end the two chains share.
func (c *chain) same(d *chain, p, end int32) int32 {
	if c.key == d.key {
		return end - p
	}
	if c.salt == d.salt {
		// The common case, without a call per block.
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

// holding is the blocks of one request, or of a handle that outlives it.
type holding struct {
	chain
	leaf      int32 // deepest node of the prefix tree that it refers to; 0: none
	indexed   int32 // leading blocks that are in the tree
	announced int32 // leading blocks that were reported as stored
	blocks    int32 // all blocks, those in the tree included
}
