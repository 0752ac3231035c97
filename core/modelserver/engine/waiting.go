package engine

// waiting is the queue of requests without a place in the batch, in order of service: by priority (PolicyPriority
// only), then by arrival. A preempted request keeps its arrival, so it is in front again.
type waiting struct {
	slots []int32 // from head on
	head  int
}

func (w *waiting) len() int       { return len(w.slots) - w.head }
func (w *waiting) at(i int) int32 { return w.slots[w.head+i] }

// before reports whether the engine serves request a before b.
func (e *Engine) before(a, b *request) bool {
	if a.priority != b.priority {
		return a.priority < b.priority
	}
	return a.arrival < b.arrival
}

// wait inserts a request into the queue.
func (e *Engine) wait(s int32) {
	w, r := &e.queue, &e.reqs[s]
	r.phase = phaseWaiting
	n := len(w.slots)
	if n == w.head || e.before(&e.reqs[w.slots[n-1]], r) {
		if w.head > 1024 && w.head > n/2 {
			w.slots = w.slots[:copy(w.slots, w.slots[w.head:])]
			w.head = 0
		}
		w.slots = append(w.slots, s)
		return
	}
	i := e.place(r)
	if w.head > 0 && i-w.head < n-i {
		copy(w.slots[w.head-1:], w.slots[w.head:i])
		w.head--
		w.slots[i-1] = s
		return
	}
	w.slots = append(w.slots, 0)
	copy(w.slots[i+1:], w.slots[i:n])
	w.slots[i] = s
}

// place returns the index in the queue's slice of the first request that the engine does not serve before r.
func (e *Engine) place(r *request) int {
	low, high := e.queue.head, len(e.queue.slots)
	for low < high {
		m := (low + high) / 2
		if e.before(&e.reqs[e.queue.slots[m]], r) {
			low = m + 1
		} else {
			high = m
		}
	}
	return low
}

// unwait removes a request from the queue.
func (e *Engine) unwait(s int32) {
	w := &e.queue
	i := e.place(&e.reqs[s])
	if i == w.head {
		w.head++
		if w.head == len(w.slots) {
			w.slots, w.head = w.slots[:0], 0
		}
		return
	}
	w.slots = append(w.slots[:i], w.slots[i+1:]...)
}
