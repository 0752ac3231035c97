package punctual

// onTime: Go's own timers are late here.
const onTime = true

// kept is how many of these wait for their moment.
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
