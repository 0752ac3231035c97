package modelserver

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
)

// A server that does not fit into its memory is killed while it starts, and
// Kubernetes starts it again: at once, and then after pauses that double from
// 10 s to 5 min (CrashLoopBackOff). It never serves.

const (
	firstBackOff = 10 * machine.Second
	lastBackOff  = 300 * machine.Second
)

// BackOff is how long Kubernetes waits before it starts such a server again that
// has been restarted so many times.
func BackOff(restarts int) machine.Time {
	if restarts > 5 { // 10 s doubled as often is more
		return lastBackOff
	}
	return min(lastBackOff, firstBackOff<<max(restarts, 0))
}

// Restarts is how many times it has been restarted, so long after its start.
func Restarts(up machine.Time) int {
	n := 0
	for at := BackOff(0); at <= up; at += BackOff(n) {
		n++
	}
	return n
}

// Killed answers a request to such a server; why is what does not fit.
func Killed(restarts int, why error) *openai.Error {
	return openai.Errorf(503, "", "OOMKilled (CrashLoopBackOff, %d restarts): %v.", restarts, why)
}
