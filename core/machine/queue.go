package machine

// Queue is the event queue of virtual time: a 4-ary heap of values ordered by
// (time, class, sequence). Items pushed at equal time and class come out in
// the order in which they went in. The zero value is ready to use; pushing and
// popping allocate nothing once the backing slice has grown.
type Queue[T any] struct {
	items []queued[T]
	seq   uint64
}

type queued[T any] struct {
	at    Time
	class Class
	seq   uint64
	value T
}

func (a *queued[T]) before(b *queued[T]) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.class != b.class {
		return a.class < b.class
	}
	return a.seq < b.seq
}

// Len is the number of pending items.
func (q *Queue[T]) Len() int { return len(q.items) }

// Push adds a value that is due at the given time.
func (q *Queue[T]) Push(at Time, class Class, value T) {
	q.seq++
	q.items = append(q.items, queued[T]{at, class, q.seq, value})
	i := len(q.items) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !q.items[i].before(&q.items[parent]) {
			break
		}
		q.items[i], q.items[parent] = q.items[parent], q.items[i]
		i = parent
	}
}

// Next is the time of the earliest item, and whether there is one.
func (q *Queue[T]) Next() (Time, bool) {
	if len(q.items) == 0 {
		return Never, false
	}
	return q.items[0].at, true
}

// Peek is the earliest item, to read or change in place without moving it. It
// is nil on an empty queue.
func (q *Queue[T]) Peek() *T {
	if len(q.items) == 0 {
		return nil
	}
	return &q.items[0].value
}

// Pop removes and returns the earliest item. It panics on an empty queue: ask
// Next or Len first.
func (q *Queue[T]) Pop() (Time, T) {
	top := q.items[0]
	last := len(q.items) - 1
	q.items[0] = q.items[last]
	q.items[last] = queued[T]{}
	q.items = q.items[:last]
	i := 0
	for {
		first := 4*i + 1
		if first >= last {
			break
		}
		best := first
		for c := first + 1; c < first+4 && c < last; c++ {
			if q.items[c].before(&q.items[best]) {
				best = c
			}
		}
		if !q.items[best].before(&q.items[i]) {
			break
		}
		q.items[i], q.items[best] = q.items[best], q.items[i]
		i = best
	}
	return top.at, top.value
}
