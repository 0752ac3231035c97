package machine

// Key orders a Heap: by First, then by Second.
type Key struct {
	First  int64
	Second uint64
}

func (k *Key) before(o *Key) bool {
	return k.First < o.First || k.First == o.First && k.Second < o.Second
}

// Handle finds an item of a Heap again, to move it or take it out. 0 is none.
type Handle int32

// Heap is a 4-ary heap of values by their keys. Keys that are all different
// make the order in which values come out a fact of theirs, not of the heap's
// history. The zero value is ready to use; it allocates nothing once its memory
// has grown.
type Heap[T any] struct {
	items []heaped[T]
	slots []int32 // by handle
	free  []Handle
	open  bool // the first item has been taken out, and nothing has its place yet
}

type heaped[T any] struct {
	key    Key
	handle Handle
	value  T
}

// Len is the number of items.
func (h *Heap[T]) Len() int {
	if h.open {
		return len(h.items) - 1
	}
	return len(h.items)
}

// Peek is the first item, its value to read or change in place. The heap must not
// be empty.
func (h *Heap[T]) Peek() (Key, *T) {
	h.close()
	return h.items[0].key, &h.items[0].value
}

// Push adds an item that nobody looks for.
func (h *Heap[T]) Push(k Key, v T) { h.add(&heaped[T]{k, 0, v}) }

func (h *Heap[T]) add(it *heaped[T]) {
	if h.open {
		h.open = false
		h.move(0, it)
		return
	}
	h.items = append(h.items, heaped[T]{})
	h.up(len(h.items)-1, it)
}

// Pop takes the first item out. The heap must not be empty. The item that is added
// next is put into its place, and moved once and not twice.
func (h *Heap[T]) Pop() (Key, T) {
	h.close()
	first := h.items[0]
	if first.handle != 0 {
		h.free = append(h.free, first.handle)
	}
	h.items[0], h.open = heaped[T]{}, true
	return first.key, first.value
}

// close has the last item take an open place.
func (h *Heap[T]) close() {
	if h.open {
		h.open = false
		h.fill(0)
	}
}

// Put adds an item under a handle that is 0, or gives the handle's item another
// key and value.
func (h *Heap[T]) Put(handle *Handle, k Key, v T) {
	if *handle == 0 {
		if n := len(h.free); n > 0 {
			*handle, h.free = h.free[n-1], h.free[:n-1]
		} else {
			if len(h.slots) == 0 {
				h.slots = append(h.slots, 0) // nobody's
			}
			*handle = Handle(len(h.slots))
			h.slots = append(h.slots, 0)
		}
		h.add(&heaped[T]{k, *handle, v})
		return
	}
	h.close()
	h.move(int(h.slots[*handle]), &heaped[T]{k, *handle, v})
}

// Remove takes a handle's item out, if it has one, and makes the handle 0.
func (h *Heap[T]) Remove(handle *Handle) {
	if *handle != 0 {
		h.close()
		h.free = append(h.free, *handle)
		h.fill(int(h.slots[*handle]))
		*handle = 0
	}
}

// Keep takes out all items for which keep is false.
func (h *Heap[T]) Keep(keep func(Key, *T) bool) {
	h.close()
	old := h.items
	h.items = old[:0]
	for i := range old { // the heap is refilled behind the reader
		if it := old[i]; keep(it.key, &it.value) {
			h.items = h.items[:len(h.items)+1]
			h.up(len(h.items)-1, &it)
		} else if it.handle != 0 {
			h.free = append(h.free, it.handle)
		}
	}
	clear(old[len(h.items):])
}

// fill has the last item take a place.
func (h *Heap[T]) fill(i int) {
	last := len(h.items) - 1
	moved := h.items[last]
	h.items[last] = heaped[T]{}
	h.items = h.items[:last]
	if i < last {
		h.move(i, &moved)
	}
}

// move puts an item where it belongs, up or down from a place that is free.
func (h *Heap[T]) move(i int, it *heaped[T]) {
	items := h.items
	if i > 0 && it.key.before(&items[(i-1)/4].key) {
		h.up(i, it)
		return
	}
	for first := 4*i + 1; first < len(items); first = 4*i + 1 {
		best := first
		for c := first + 1; c < first+4 && c < len(items); c++ {
			if items[c].key.before(&items[best].key) {
				best = c
			}
		}
		if !items[best].key.before(&it.key) {
			break
		}
		items[i] = items[best]
		if n := items[i].handle; n != 0 {
			h.slots[n] = int32(i)
		}
		i = best
	}
	h.set(i, it)
}

func (h *Heap[T]) up(i int, it *heaped[T]) {
	items := h.items
	for i > 0 {
		parent := (i - 1) / 4
		if !it.key.before(&items[parent].key) {
			break
		}
		items[i] = items[parent]
		if n := items[i].handle; n != 0 {
			h.slots[n] = int32(i)
		}
		i = parent
	}
	h.set(i, it)
}

func (h *Heap[T]) set(i int, it *heaped[T]) {
	h.items[i] = *it
	if it.handle != 0 {
		h.slots[it.handle] = int32(i)
	}
}
