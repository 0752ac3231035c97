package link

// The transfers with a due event form a binary heap of indices by (due, seq),
// in which each knows its position, so that a new rate moves it in place.

func (n *Network) before(a, b int32) bool {
	x, y := &n.flows[a], &n.flows[b]
	if x.due != y.due {
		return x.due < y.due
	}
	return x.seq < y.seq
}

// heapFix puts a transfer where its due time belongs, adding it if need be.
func (n *Network) heapFix(id int32) {
	if n.flows[id].slot < 0 {
		n.flows[id].slot = int32(len(n.heap))
		n.heap = append(n.heap, id)
	}
	if i := int(n.flows[id].slot); !n.up(i) {
		n.down(i)
	}
}

func (n *Network) heapRemove(id int32) {
	i := int(n.flows[id].slot)
	if i < 0 {
		return
	}
	last := len(n.heap) - 1
	n.swap(i, last)
	n.heap = n.heap[:last]
	n.flows[id].slot = -1
	if i < last && !n.up(i) {
		n.down(i)
	}
}

func (n *Network) swap(i, j int) {
	n.heap[i], n.heap[j] = n.heap[j], n.heap[i]
	n.flows[n.heap[i]].slot, n.flows[n.heap[j]].slot = int32(i), int32(j)
}

func (n *Network) up(i int) bool {
	moved := false
	for i > 0 {
		parent := (i - 1) / 2
		if !n.before(n.heap[i], n.heap[parent]) {
			break
		}
		n.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (n *Network) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(n.heap) {
			return
		}
		if child+1 < len(n.heap) && n.before(n.heap[child+1], n.heap[child]) {
			child++
		}
		if !n.before(n.heap[child], n.heap[i]) {
			return
		}
		n.swap(i, child)
		i = child
	}
}
