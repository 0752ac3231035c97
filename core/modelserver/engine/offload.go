package engine

import "maps"

// The CPU tier (document 003's swap space; in vLLM V1 the offloading connector). A block that is evicted from the
// accelerator moves to host memory, if there is space, and returns when a prompt needs it. Within a node, the blocks on
// the accelerator come first and the cold ones follow, because eviction proceeds from the end. A node with cold blocks
// is not in any request's chain.
//
// Cold nodes are in a queue of their own, in the order in which they were last evicted, children before parents as in
// the free queue.
type offload struct {
	total int // blocks of host memory; 0: none
	used  int
	head  int32 // the next to drop
	tail  int32
	queue []besides // of cold nodes, by number

	loads, stores Moves
}

// besides holds a cold node's neighbours in the queue.
type besides struct{ colder, warmer int32 }

// beside returns the neighbours of node i.
func (o *offload) beside(i int32) *besides {
	for int(i) >= len(o.queue) {
		o.queue = append(o.queue, besides{})
	}
	return &o.queue[i]
}

// Moves maps a number of blocks to the number of moves of so many blocks.
type Moves map[int]uint64

func (m *Moves) count(blocks int32) {
	if *m == nil {
		*m = Moves{}
	}
	(*m)[int(blocks)]++
}

// CPUMoves returns the moves from and to host memory until now. A store is one eviction from one prefix; a load is the
// blocks that one request brings back.
func (e *Engine) CPUMoves() (loads, stores Moves) {
	if e.pool == nil {
		return nil, nil
	}
	return maps.Clone(e.pool.offload.loads), maps.Clone(e.pool.offload.stores)
}

// chill moves the last k blocks that a node has on the accelerator to host memory. They are being evicted.
func (p *pool) chill(i, k int32) {
	x := &p.nodes[i]
	if x.cold > 0 {
		p.uncool(i)
	}
	x.cold += k
	p.cool(i)
	p.offload.used += int(k)
	p.offload.stores.count(k)
	if p.log != nil {
		p.log.stored(&x.chain, x.start+x.count, k, 0, TierCPU)
	}
}

// overflow drops the blocks for which host memory has no space.
func (p *pool) overflow() {
	o := &p.offload
	for o.used > o.total {
		i := o.head
		x := &p.nodes[i]
		k := min(int32(o.used-o.total), x.cold)
		x.cold -= k
		o.used -= int(k)
		if p.log != nil {
			p.log.removed(&x.chain, x.start+x.count+x.cold, k, TierCPU)
		}
		if x.cold > 0 {
			continue
		}
		p.uncool(i)
		if x.count == 0 {
			p.unindex(i)
			p.dropNode(i)
		}
	}
}

// warm brings all cold blocks of a node back, into blocks that the caller takes from the free queue or already owns.
func (p *pool) warm(i int32, owner RequestID) {
	x := &p.nodes[i]
	if x.cold == 0 {
		return
	}
	p.uncool(i)
	p.offload.used -= int(x.cold)
	if p.log != nil {
		p.log.stored(&x.chain, x.start+x.count, x.cold, owner, TierGPU)
		p.log.removed(&x.chain, x.start+x.count, x.cold, TierCPU)
	}
	p.named += int(x.cold)
	x.count += x.cold
	x.cold = 0
}

// cool and uncool insert a node into the queue of cold ones and remove it.
func (p *pool) cool(i int32) {
	o := &p.offload
	*o.beside(i) = besides{colder: o.tail}
	if o.tail != 0 {
		o.queue[o.tail].warmer = i
	} else {
		o.head = i
	}
	o.tail = i
}

// coolBehind inserts node j into the queue right after node i.
func (p *pool) coolBehind(i, j int32) {
	o := &p.offload
	next := o.beside(i).warmer
	*o.beside(j) = besides{i, next}
	if next != 0 {
		o.queue[next].colder = j
	} else {
		o.tail = j
	}
	o.queue[i].warmer = j
}

func (p *pool) uncool(i int32) {
	o := &p.offload
	x := *o.beside(i)
	if x.colder != 0 {
		o.queue[x.colder].warmer = x.warmer
	} else {
		o.head = x.warmer
	}
	if x.warmer != 0 {
		o.queue[x.warmer].colder = x.colder
	} else {
		o.tail = x.colder
	}
	o.queue[i] = besides{}
}
