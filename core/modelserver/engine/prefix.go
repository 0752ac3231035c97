package engine

// The prefix tree indexes the content of the cache. A node's parent holds the blocks before it, so a walk from the root
// always finds a contiguous prefix. The tree never stores the content of a full block twice: a second holder shares the
// first copy.

// hit is the result of a lookup: the last node that the walk reached, the number of its leading blocks that match
// (part; all of them unless the walk ended inside), the number of blocks found, and how many of the found blocks are
// now in the free queue and how many in host memory.
type hit struct {
	leaf   int32
	part   int32
	blocks int32
	idle   int32
	cold   int32
}

// taken returns the number of free blocks that the use of the found blocks takes.
func (h *hit) taken() int32 { return h.idle + h.cold }

func (p *pool) childKey(parent int32, hash uint64) uint64 {
	return mix(hash + uint64(parent)*0xd6e8feb86659fd93)
}

// child returns the node that continues parent with the given block, or 0. taken reports that another node has its
// place in the index, which takes a collision of 64-bit hashes.
func (p *pool) child(parent int32, c *chain, pos int32) (i int32, taken bool) {
	h := c.at(pos)
	i = p.index[p.childKey(parent, h)]
	if i == 0 {
		return 0, false
	}
	if x := &p.nodes[i]; x.parent != parent || x.start != pos || x.chain.at(pos) != h {
		return 0, true
	}
	return i, true
}

// lookup finds the longest cached prefix of at most limit blocks.
func (p *pool) lookup(c *chain, limit int32) (found hit) {
	if !p.caching {
		return found
	}
	for found.blocks < limit {
		i, _ := p.child(found.leaf, c, found.blocks)
		if i == 0 {
			return found
		}
		x := &p.nodes[i]
		n := 1 + x.chain.same(c, found.blocks+1, min(limit, found.blocks+x.blocks()))
		found.leaf, found.part = i, n
		found.blocks += n
		found.cold += max(0, n-x.count)
		if x.refs == 0 {
			found.idle += min(n, x.count)
		}
		if n < x.blocks() {
			return found
		}
	}
	return found
}

// share makes an empty holding refer to the found blocks. The caller has checked that there are free blocks for those
// from host memory.
func (p *pool) share(h *holding, found hit, owner RequestID) {
	if found.blocks == 0 {
		return
	}
	leaf := found.leaf
	if found.part < p.nodes[leaf].blocks() {
		leaf = p.split(leaf, found.part)
	}
	for i := leaf; i != 0; i = p.nodes[i].parent {
		p.refer(i)
		p.warm(i, owner)
	}
	p.take(int(found.cold))
	h.leaf, h.indexed, h.announced, h.blocks = leaf, found.blocks, found.blocks, found.blocks
}

func (p *pool) refer(i int32) {
	x := &p.nodes[i]
	if x.refs == 0 && x.count > 0 {
		p.free -= int(x.count)
		p.unlink(i)
	}
	p.nodes[i].refs++
}

// split cuts a node after its first n blocks and returns a new node that holds these. The old node keeps the rest, its
// places in the queues, and everything that refers to it. The new node follows right after it in the queues, because
// the pool must not evict it first.
func (p *pool) split(i, n int32) int32 {
	j := p.newNode()
	x, y := &p.nodes[i], &p.nodes[j]
	*y = node{chain: x.chain, start: x.start, count: min(n, x.count), refs: x.refs, parent: x.parent, children: 1}
	y.cold = n - y.count
	p.index[p.childKey(x.parent, x.chain.at(x.start))] = j
	x.start += n
	x.count -= y.count
	x.cold -= y.cold
	x.parent = j
	p.index[p.childKey(j, x.chain.at(x.start))] = i
	if x.refs == 0 && y.count > 0 {
		p.linkBehind(i, j)
		if x.count == 0 {
			p.unlink(i)
		}
	}
	if y.cold > 0 {
		p.coolBehind(i, j)
	}
	return j
}

// commit enters the blocks of a holding up to number full, which are full now, into the tree, where other requests can
// find them. If the content is in the tree already, the holding shares it and gives back its own copy.
func (p *pool) commit(h *holding, full int32, owner RequestID) {
	if !p.caching || full <= h.indexed {
		return
	}
	for h.indexed < full {
		if p.lengthen(h, full) {
			p.announce(h, full, owner)
			return
		}
		pos := h.indexed
		i, taken := p.child(h.leaf, &h.chain, pos)
		if i != 0 {
			x := &p.nodes[i]
			n := 1 + x.chain.same(&h.chain, pos+1, min(full, pos+x.blocks()))
			if n < x.blocks() {
				i = p.split(i, n)
			}
			p.adopt(i, owner)
			h.leaf, h.indexed = i, pos+n
			if own := min(h.announced, h.indexed) - pos; own > 0 && p.log != nil {
				// The engine announces generated blocks when they are filled. The same content was therefore announced
				// twice, and the copy that goes takes one announcement back: consumers count (vLLM also removes each
				// copy by itself).
				p.log.removed(&h.chain, pos, own, TierGPU)
			}
			h.announced = max(h.announced, h.indexed)
			continue
		}
		if !p.extend(h, full, taken) {
			return
		}
		p.announce(h, full, owner)
	}
}

// adopt makes a holding share a node whose content the holding has computed itself. The holding's blocks become free:
// in the node's place in the free queue if it was there. (vLLM would leave the old blocks there and use the new ones;
// for all other requests, the effect is the same.) The holding's blocks replace those in host memory.
func (p *pool) adopt(i int32, owner RequestID) {
	switch x := &p.nodes[i]; {
	case x.refs > 0:
		p.giveAnonymous(x.count)
	case x.count > 0:
		j := p.newNode()
		p.nodes[j] = nobodys(p.nodes[i].count)
		p.blank += int(p.nodes[j].count)
		p.linkBehind(i, j)
		p.unlink(i)
	}
	p.warm(i, owner)
	p.nodes[i].refs++
}

// lengthen adds the blocks from h.indexed up to full to the holding's own last node, if it has one that no node
// follows.
func (p *pool) lengthen(h *holding, full int32) bool {
	x := &p.nodes[h.leaf]
	if h.leaf == 0 || x.key != h.key || x.refs != 1 || x.children > 0 {
		return false
	}
	n := full - h.indexed
	x.count += n
	p.named += int(n)
	h.indexed = full
	return true
}

// extend adds the blocks from h.indexed up to full to the tree, in a new node. If the place in the index is taken, it
// returns false and the blocks stay anonymous.
func (p *pool) extend(h *holding, full int32, taken bool) bool {
	n := full - h.indexed
	if taken {
		return false
	}
	i := p.newNode()
	p.nodes[i] = node{chain: h.chain, start: h.indexed, count: n, refs: 1, parent: h.leaf}
	p.named += int(n)
	p.index[p.childKey(h.leaf, h.chain.at(h.indexed))] = i
	p.nodes[h.leaf].children++
	h.leaf, h.indexed = i, full
	return true
}

// announce reports the blocks of a holding up to full as stored, once.
func (p *pool) announce(h *holding, full int32, owner RequestID) {
	if p.log != nil && full > h.announced {
		p.log.stored(&h.chain, h.announced, full-h.announced, owner, TierGPU)
	}
	h.announced = max(h.announced, full)
}

// unindex removes an evicted node from the tree.
func (p *pool) unindex(i int32) {
	x := &p.nodes[i]
	delete(p.index, p.childKey(x.parent, x.chain.at(x.start)))
	p.nodes[x.parent].children--
}
