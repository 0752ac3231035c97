package engine

// pool is the KV cache. Blocks are counted and not numbered: what can be told
// apart is only content, and content lives in nodes, each a run of consecutive
// blocks of one chain. Nodes form a tree (prefix.go), and a node that nobody
// refers to stands in the free queue. A request thus costs a few nodes, however
// many blocks it fills.
//
// The free queue is in order of last use, as in vLLM. A request gives back its
// blocks last block first, so a node is evicted from its end, and a node's
// children are always evicted before it.
type pool struct {
	blockSize int32
	total     int
	free      int // blocks in the free queue,
	blank     int // and of these those without content that can be asked for
	named     int // blocks whose content can be asked for
	caching   bool
	forgets   bool // blocks that nobody can ask for any more count as blank

	nodes  []node // nodes[0] stands for none, and for the root of the tree
	unused []int32
	head   int32 // of the free queue: evicted next
	tail   int32
	index  map[uint64]int32 // first block of a node, under its parent

	offload offload
	log     *kvLog // nil: nobody wants events
}

// node is a run of blocks. Without a chain (anonymous) it is free blocks whose
// content nobody can ask for.
type node struct {
	chain
	start    int32 // number of the first block within the chain; -1 is anonymous
	count    int32
	cold     int32 // further blocks of the chain, which are in host memory
	refs     int32 // holdings whose chain includes it
	parent   int32
	children int32
	prev     int32 // free queue
	next     int32
	blanks   int32 // blocks without content right before it in the free queue, where the pool forgets
}

// nobodys is an anonymous node of so many blocks.
func nobodys(count int32) node { return node{start: -1, count: count} }

func (x *node) anonymous() bool { return x.start < 0 }

// blocks is how many blocks of its chain the node has anywhere.
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

// blocksFor is how many blocks hold that many tokens.
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

// take removes n blocks from the free queue for new content, evicting what they
// held. The caller has checked that there are enough.
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

// evicted says where the k blocks after the remaining ones of a node go.
func (p *pool) evicted(i, k int32) {
	if p.offload.total > 0 {
		p.chill(i, k) // told first, so that the blocks are somewhere all the while
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

// give appends a node that nobody refers to any more to the free queue.
func (p *pool) give(i int32) {
	p.free += int(p.nodes[i].count)
	p.link(i)
}

func (p *pool) link(i int32) {
	x := &p.nodes[i]
	if t := p.tail; p.forgets && t != 0 && p.nodes[t].anonymous() { // one node less
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

// linkBehind puts node j into the free queue right behind node i.
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

// grow adds n new blocks to a holding. The caller has checked that there are
// enough.
func (p *pool) grow(h *holding, n int32) {
	p.take(int(n))
	h.blocks += n
}

// drop gives back all blocks of a holding, last block first.
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

// leave is drop for a request that is over and looks for its content no more: what
// nobody else can ask for is forgotten, where nobody counts it either.
func (p *pool) leave(h *holding) {
	known := int32(len(h.hashes))
	x := &p.nodes[h.leaf]
	if !p.forgets || h.leaf == 0 || x.key != h.key || x.refs != 1 || x.children > 0 || x.start+x.count <= known {
		p.drop(h)
		return
	}
	p.giveAnonymous(h.blocks - h.indexed)
	x = &p.nodes[h.leaf] // they may have moved
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
