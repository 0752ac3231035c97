package engine

// pool is the KV cache. It counts blocks and does not number them. Only content distinguishes blocks, and content lives
// in nodes, each a run of consecutive blocks of one chain. Nodes form a tree (prefix.go). A node that no request refers
// to is in the free queue. A request thus costs a few nodes, however many blocks it fills.
//
// The free queue is in order of last use, as in vLLM. A request gives back its last block first, so the pool evicts a
// node from its end, and a node's children always before the node.
type pool struct {
	blockSize int32
	total     int
	free      int // blocks in the free queue
	blank     int // blocks in the free queue without content that a request can look up
	named     int // blocks with content that a request can look up
	caching   bool
	forgets   bool // blocks whose content no request can look up any more count as blank

	nodes  []node // nodes[0] stands for none, and for the root of the tree
	unused []int32
	head   int32 // of the free queue: the next to evict
	tail   int32
	index  map[uint64]int32 // first block of a node, under its parent

	offload offload
	log     *kvLog // nil: no consumer of events
}

// node is a run of blocks. A node without a chain (anonymous) holds free blocks whose content no request can look up.
type node struct {
	chain
	start    int32 // index of the first block within the chain; -1 is anonymous
	count    int32
	cold     int32 // further blocks of the chain, in host memory
	refs     int32 // holdings whose chain includes the node
	parent   int32
	children int32
	prev     int32 // free queue
	next     int32
	blanks   int32 // blocks without content just before it in the free queue, if the pool forgets
}

// nobodys returns an anonymous node with a number of blocks.
func nobodys(count int32) node { return node{start: -1, count: count} }

func (x *node) anonymous() bool { return x.start < 0 }

// blocks returns the number of blocks of the node in all tiers.
func (x *node) blocks() int32 { return x.count + x.cold }

func newPool(c *Config) *pool {
	p := &pool{blockSize: int32(c.BlockSize), total: c.NumGPUBlocks, caching: !c.DisablePrefixCaching}
	if p.caching {
		p.offload.total = c.NumCPUBlocks
	}
	if c.KVEvents && p.caching {
		p.log = &kvLog{}
	}
	p.clear()
	return p
}

// clear makes all blocks free and forgets their content.
func (p *pool) clear() {
	clear(p.nodes)
	p.nodes, p.unused = append(p.nodes[:0], node{}), p.unused[:0]
	p.head, p.tail, p.free, p.blank, p.named = 0, 0, 0, 0, 0
	p.offload = offload{total: p.offload.total, loads: p.offload.loads, stores: p.offload.stores}
	p.index = make(map[uint64]int32)
	p.giveAnonymous(int32(p.total))
}

func (p *pool) used() int { return p.total - p.free }

// blocksFor returns the number of blocks that hold a number of tokens.
func (p *pool) blocksFor(tokens int32) int32 { return (tokens + p.blockSize - 1) / p.blockSize }

func (p *pool) newNode() int32 {
	if n := len(p.unused); n > 0 {
		i := p.unused[n-1]
		p.unused = p.unused[:n-1]
		return i
	}
	p.nodes = append(p.nodes, node{})
	return int32(len(p.nodes) - 1)
}

func (p *pool) dropNode(i int32) {
	p.nodes[i] = node{}
	p.unused = append(p.unused, i)
}

// take removes n blocks from the free queue for new content, and evicts their old content. The caller has checked that
// there are enough.
func (p *pool) take(n int) {
	p.free -= n
	for n > 0 {
		i := p.head
		x := &p.nodes[i]
		if k := min(n, int(x.blanks)); k > 0 {
			x.blanks -= int32(k)
			p.blank -= k
			n -= k
			continue
		}
		k := min(n, int(x.count))
		n -= k
		x.count -= int32(k)
		if x.anonymous() {
			p.blank -= k
		} else {
			p.named -= k
			p.evicted(i, int32(k))
		}
		if x.count == 0 {
			p.unlink(i)
			if x.cold == 0 {
				if !x.anonymous() {
					p.unindex(i)
				}
				p.dropNode(i)
			}
		}
	}
	p.overflow()
}

// evicted handles the k evicted blocks after the remaining ones of a node. It moves them to host memory, if there is
// any, and logs their removal.
func (p *pool) evicted(i, k int32) {
	if p.offload.total > 0 {
		p.chill(i, k) // reported first, so that the blocks are always in some tier
	}
	if x := &p.nodes[i]; p.log != nil {
		p.log.removed(&x.chain, x.start+x.count, k, TierGPU)
	}
}

// giveAnonymous appends blocks without content to the free queue.
func (p *pool) giveAnonymous(n int32) {
	if n == 0 {
		return
	}
	p.free += int(n)
	p.blank += int(n)
	if t := &p.nodes[p.tail]; p.tail != 0 && t.anonymous() {
		t.count += n
		return
	}
	i := p.newNode()
	p.nodes[i] = nobodys(n)
	p.link(i)
}

// give appends a node that no request refers to any more to the free queue.
func (p *pool) give(i int32) {
	p.free += int(p.nodes[i].count)
	p.link(i)
}

func (p *pool) link(i int32) {
	x := &p.nodes[i]
	if t := p.tail; p.forgets && t != 0 && p.nodes[t].anonymous() { // merges with the last node
		x.blanks = p.nodes[t].blanks + p.nodes[t].count
		p.nodes[t].blanks = 0
		p.unlink(t)
		p.dropNode(t)
	}
	x.prev, x.next = p.tail, 0
	if p.tail != 0 {
		p.nodes[p.tail].next = i
	} else {
		p.head = i
	}
	p.tail = i
}

// linkBehind inserts node j into the free queue right after node i.
func (p *pool) linkBehind(i, j int32) {
	x, y := &p.nodes[i], &p.nodes[j]
	y.prev, y.next = i, x.next
	if x.next != 0 {
		p.nodes[x.next].prev = j
	} else {
		p.tail = j
	}
	x.next = j
}

func (p *pool) unlink(i int32) {
	x := &p.nodes[i]
	if x.prev != 0 {
		p.nodes[x.prev].next = x.next
	} else {
		p.head = x.next
	}
	if x.next != 0 {
		p.nodes[x.next].prev = x.prev
	} else {
		p.tail = x.prev
	}
	next, blanks := x.next, x.blanks
	x.prev, x.next, x.blanks = 0, 0, 0
	switch {
	case blanks == 0:
	case next != 0: // they stay where they are
		p.nodes[next].blanks += blanks
	default:
		p.free, p.blank = p.free-int(blanks), p.blank-int(blanks)
		p.giveAnonymous(blanks)
	}
}

// grow adds n new blocks to a holding. The caller has checked that there are enough.
func (p *pool) grow(h *holding, n int32) {
	p.take(int(n))
	h.blocks += n
}

// drop gives back all blocks of a holding, the last block first.
func (p *pool) drop(h *holding) {
	p.giveAnonymous(h.blocks - h.indexed)
	for i := h.leaf; i != 0; {
		x := &p.nodes[i]
		parent := x.parent
		x.refs--
		if x.refs == 0 {
			p.give(i)
		}
		i = parent
	}
	h.leaf, h.indexed, h.announced, h.blocks = 0, 0, 0, 0
}

// leave is drop for a finished request that never looks up its content again. Content that no other request can look up
// is forgotten, if the pool forgets.
func (p *pool) leave(h *holding) {
	known := int32(len(h.hashes))
	x := &p.nodes[h.leaf]
	if !p.forgets || h.leaf == 0 || x.key != h.key || x.refs != 1 || x.children > 0 || x.start+x.count <= known {
		p.drop(h)
		return
	}
	p.giveAnonymous(h.blocks - h.indexed)
	x = &p.nodes[h.leaf] // giveAnonymous may have moved the nodes
	n := x.count
	if x.start < known { // the rest of the node stays
		n = x.start + x.count - known
		x.count -= n
	} else {
		gone := h.leaf
		p.unindex(gone)
		h.leaf = x.parent
		p.dropNode(gone)
	}
	p.named -= int(n)
	h.indexed -= n
	h.blocks = h.indexed
	p.giveAnonymous(n)
	p.drop(h)
}
