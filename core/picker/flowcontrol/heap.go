package flowcontrol

// node is what lies in a heap: it knows its rank and remembers its slot, so
// that it can be taken out from the middle.
type node[T any] interface {
	before(T) bool
	slot() *int // 1-based; 0 is "not in the heap"
}

// heap is a binary heap of nodes.
type heap[T node[T]] struct{ nodes []T }

func (h *heap[T]) len() int { return len(h.nodes) }

func (h *heap[T]) head() T { return h.nodes[0] }

func (h *heap[T]) push(n T) {
	h.nodes = append(h.nodes, n)
	*n.slot() = len(h.nodes)
	h.up(len(h.nodes) - 1)
}

// remove takes n out, if it is in.
func (h *heap[T]) remove(n T) {
	i := *n.slot() - 1
	if i < 0 {
		return
	}
	*n.slot() = 0
	last := len(h.nodes) - 1
	moved := h.nodes[last]
	var none T
	h.nodes[last] = none
	h.nodes = h.nodes[:last]
	if i == last {
		return
	}
	h.nodes[i] = moved
	*moved.slot() = i + 1
	h.fix(moved)
}

// fix restores the order after n's rank changed.
func (h *heap[T]) fix(n T) {
	i := *n.slot() - 1
	if !h.up(i) {
		h.down(i)
	}
}

func (h *heap[T]) up(i int) bool {
	moved := false
	for i > 0 {
		parent := (i - 1) / 2
		if !h.nodes[i].before(h.nodes[parent]) {
			break
		}
		h.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (h *heap[T]) down(i int) {
	for {
		best := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h.nodes); c++ {
			if h.nodes[c].before(h.nodes[best]) {
				best = c
			}
		}
		if best == i {
			return
		}
		h.swap(i, best)
		i = best
	}
}

func (h *heap[T]) swap(i, j int) {
	h.nodes[i], h.nodes[j] = h.nodes[j], h.nodes[i]
	*h.nodes[i].slot(), *h.nodes[j].slot() = i+1, j+1
}
