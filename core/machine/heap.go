package machine

// Key orders a Heap: by First, then by Second.
type Key struct {
	First  int64
	Second uint64
}

func (k *Key) before(o *Key) bool {
	return k.First < o.First || k.First == o.First && k.Second < o.Second
}

// Handle identifies an item of a Heap, to move or remove it. 0 identifies none.
type Handle int32

// Heap is a 4-ary heap of values by their keys. With keys that all differ, the order in which values come out depends
// on the keys only, not on the heap's history. The zero value is ready to use. The heap allocates nothing once its
// memory has grown.
type Heap[T any] struct {
	items []heaped[T]
	slots []int32 // positions in items, by handle
	free  []Handle
	open  bool // items[0] was popped and is empty until the next call
}

type heaped[T any] struct {
	key    Key
	handle Handle
	value  T
}

func (h *Heap[T]) Len() int {
	if h.open {
		return len(h.items) - 1
	}
	return len(h.items)
}

// Peek returns the first item; the caller may read or change its value in place. The heap must not be empty.
func (h *Heap[T]) Peek() (Key, *T) {
	h.close()
	return h.items[0].key, &h.items[0].value
}

// Push adds an item without a handle.
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

// Pop removes the first item. The heap must not be empty. Pop leaves the first place empty: an item that is pushed next
// fills it, and moves once instead of twice.
func (h *Heap[T]) Pop() (Key, T) {
	h.close()
	first := h.items[0]
	if first.handle != 0 {
		h.free = append(h.free, first.handle)
	}
	h.items[0], h.open = heaped[T]{}, true
	return first.key, first.value
}

// close moves the last item into an empty first place.
func (h *Heap[T]) close() {
	if h.open {
		h.open = false
		h.fill(0)
	}
}

// Put adds an item and sets the handle if that is 0. Otherwise it gives the handle's item another key and value.
func (h *Heap[T]) Put(handle *Handle, k Key, v T) {
	if *handle == 0 {
		if n := len(h.free); n > 0 {
			*handle, h.free = h.free[n-1], h.free[:n-1]
		} else {
			if len(h.slots) == 0 {
				h.slots = append(h.slots, 0) // slot 0 stays unused
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

// Remove removes a handle's item, if it has one, and sets the handle to 0.
func (h *Heap[T]) Remove(handle *Handle) {
	if *handle != 0 {
		h.close()
		h.free = append(h.free, *handle)
		h.fill(int(h.slots[*handle]))
		*handle = 0
	}
}

// Keep removes all items for which keep returns false.
func (h *Heap[T]) Keep(keep func(Key, *T) bool) {
	h.close()
	old := h.items
	h.items = old[:0]
	for i := range old { // writes stay behind the read position
		if it := old[i]; keep(it.key, &it.value) {
			h.items = h.items[:len(h.items)+1]
			h.up(len(h.items)-1, &it)
		} else if it.handle != 0 {
			h.free = append(h.free, it.handle)
		}
	}
	clear(old[len(h.items):])
}

// fill moves the last item into place i.
func (h *Heap[T]) fill(i int) {
	last := len(h.items) - 1
	moved := h.items[last]
	h.items[last] = heaped[T]{}
	h.items = h.items[:last]
	if i < last {
		h.move(i, &moved)
	}
}

// move puts an item where it belongs, up or down from the free place i.
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
