package link

import "container/list"

// Store is the external cache of the connectors that travel by one (shared
// storage, LMCache): blocks by their content. A prompt's blocks are in it when
// it is computed; the time that writing them takes is charged to whoever reads
// them first. The zero Store is empty.
type Store struct {
	blocks map[uint64]*list.Element
	order  list.List // of *stockpiled, least recently used first
}

type stockpiled struct {
	hash   uint64
	writer int // its node, -1 once somebody has read the block
}

// maxStored bounds the blocks of a Store.
const maxStored = 1 << 20

// Put stores a prompt's blocks, which a node has computed.
func (x *Store) Put(hashes []uint64, writer int) {
	if x.blocks == nil {
		x.blocks = map[uint64]*list.Element{}
		x.order.Init()
	}
	for _, h := range hashes {
		if e := x.blocks[h]; e != nil {
			x.order.MoveToBack(e)
			continue
		}
		x.blocks[h] = x.order.PushBack(&stockpiled{h, writer})
		if len(x.blocks) > maxStored {
			oldest := x.order.Front()
			delete(x.blocks, x.order.Remove(oldest).(*stockpiled).hash)
		}
	}
}

// Find is how many of a prompt's first blocks are there, and the node from
// which they are still to be written, or -1.
func (x *Store) Find(hashes []uint64, reader int) (n, writer int) {
	writer = -1
	for _, h := range hashes {
		e := x.blocks[h]
		if e == nil {
			break
		}
		n++
		x.order.MoveToBack(e)
		b := e.Value.(*stockpiled)
		if b.writer >= 0 && b.writer != reader {
			writer, b.writer = b.writer, -1
		}
	}
	return n, writer
}
