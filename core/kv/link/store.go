package link

import "github.com/hashicorp/golang-lru/v2/simplelru"

// Store is the external cache of connectors that have one (shared storage, LMCache): blocks by their content. A
// prompt's blocks are in it once the prompt is computed. The first reader of a block pays the time of writing it. The
// zero Store is empty.
type Store struct {
	// blocks are the blocks' writers: nodes, -1 once a node has read the block.
	blocks *simplelru.LRU[uint64, int]
}

// maxStored bounds the blocks of a Store.
const maxStored = 1 << 20

// Put stores a prompt's blocks, which a node has computed.
func (x *Store) Put(hashes []uint64, writer int) {
	if x.blocks == nil {
		x.blocks, _ = simplelru.NewLRU[uint64, int](maxStored, nil) // fails for lengths below 1 alone
	}
	for _, h := range hashes {
		if _, there := x.blocks.Get(h); !there {
			x.blocks.Add(h, writer)
		}
	}
}

// Find returns how many of a prompt's first blocks are there, and the node from
// which they are still to be written, or -1.
func (x *Store) Find(hashes []uint64, reader int) (n, writer int) {
	writer = -1
	for ; x.blocks != nil && n < len(hashes); n++ {
		by, there := x.blocks.Get(hashes[n])
		if !there {
			break
		}
		if by >= 0 && by != reader {
			writer = by
			x.blocks.Add(hashes[n], -1)
		}
	}
	return n, writer
}
