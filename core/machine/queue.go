package machine

// Queue is the event queue of virtual time: values ordered by (time, class,
// sequence). Items pushed at equal time and class come out in the order in
// which they went in. The zero value is ready to use; pushing and popping
// allocate nothing once its memory has grown.
type Queue[T any] struct {
	heap Heap[T]
	seq  uint64
}

const classShift = 56 // the sequence has the bits below

// Len is the number of pending items.
func (q *Queue[T]) Len() int { return q.heap.Len() }

// Push adds a value that is due at the given time.
func (q *Queue[T]) Push(at Time, class Class, value T) {
	q.seq++
	q.heap.Push(Key{int64(at), uint64(class)<<classShift | q.seq}, value)
}

// Put adds a value under a handle that is 0, or has the handle's value come at
// another time, as if it were pushed now. Whoever pops it makes its handle 0.
func (q *Queue[T]) Put(handle *Handle, at Time, class Class, value T) {
	q.seq++
	q.heap.Put(handle, Key{int64(at), uint64(class)<<classShift | q.seq}, value)
}

// PutRanked is Put for values of one class that all have a rank: those of the same time come in the order
// of their ranks, whenever they were put.
func (q *Queue[T]) PutRanked(handle *Handle, at Time, class Class, rank uint32, value T) {
	q.heap.Put(handle, Key{int64(at), uint64(class)<<classShift | uint64(rank)}, value)
}

// Next is the time of the earliest item, and whether there is one.
func (q *Queue[T]) Next() (Time, bool) {
	if q.heap.Len() == 0 {
		return Never, false
	}
	k, _ := q.heap.Peek()
	return Time(k.First), true
}

// Peek is the earliest item, to read or change in place without moving it. It
// is nil on an empty queue.
func (q *Queue[T]) Peek() *T {
	if q.heap.Len() == 0 {
		return nil
	}
	_, v := q.heap.Peek()
	return v
}

// Pop removes and returns the earliest item. It panics on an empty queue: ask
// Next or Len first.
func (q *Queue[T]) Pop() (Time, T) {
	k, v := q.heap.Pop()
	return Time(k.First), v
}
