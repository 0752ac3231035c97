package punctual

// onTime means that this package's timers are more punctual than Go's.
const onTime = true

// kept returns how many of these timers are still in the heap.
func kept(timers []*Timer) int {
	mu.Lock()
	defer mu.Unlock()
	n := 0
	for _, t := range timers {
		if t.place >= 0 {
			n++
		}
	}
	return n
}
