package machine

// Queue is the event queue of virtual time: values ordered by (time, class, sequence). Items of equal time and class
// come out in the order in which they went in. The zero value is ready to use. Pushing and popping allocate nothing
// once the queue's memory has grown.
type Queue[T any] struct {
	heap Heap[T]
	seq  uint64
}

const classShift = 56 // the sequence uses the bits below

func (q *Queue[T]) Len() int { return q.heap.Len() }

// Push adds a value that is due at a time.
func (q *Queue[T]) Push(at Time, class Class, value T) {
	q.seq++
	q.heap.Push(Key{int64(at), uint64(class)<<classShift | q.seq}, value)
}

// Put adds a value and sets the handle if that is 0. Otherwise it moves the handle's value to another time, as if it
// were pushed now. A caller that pops the value must set its handle to 0.
func (q *Queue[T]) Put(handle *Handle, at Time, class Class, value T) {
	q.seq++
	q.heap.Put(handle, Key{int64(at), uint64(class)<<classShift | q.seq}, value)
}

// PutRanked is Put for a class whose values all have ranks. Values of one time come out in the order of their ranks,
// whenever they were put.
func (q *Queue[T]) PutRanked(handle *Handle, at Time, class Class, rank uint32, value T) {
	q.heap.Put(handle, Key{int64(at), uint64(class)<<classShift | uint64(rank)}, value)
}

// Next returns the time of the earliest item; false if the queue is empty.
func (q *Queue[T]) Next() (Time, bool) {
	if q.heap.Len() == 0 {
		return Never, false
	}
	k, _ := q.heap.Peek()
	return Time(k.First), true
}

// Peek returns the earliest item, to read or change in place without moving it; nil if the queue is empty.
func (q *Queue[T]) Peek() *T {
	if q.heap.Len() == 0 {
		return nil
	}
	_, v := q.heap.Peek()
	return v
}

// Pop removes and returns the earliest item. It panics on an empty queue: call Next or Len first.
func (q *Queue[T]) Pop() (Time, T) {
	k, v := q.heap.Pop()
	return Time(k.First), v
}
