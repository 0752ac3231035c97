package proxy

import "github.com/windtunnel/windtunnel/core/machine"

// Pickers holds the replicas of one endpoint picker as Envoy sees them. Envoy asks them in turn, except those whose
// health check has failed. The zero value is ready to use.
type Pickers struct {
	turn int
	dead map[int]bool
}

// Next returns the replica, out of n, that Envoy asks about the next request, or -1 where no replica is healthy.
func (p *Pickers) Next(n int) int {
	for range n {
		i := p.turn % n
		if p.turn++; !p.dead[i] {
			return i
		}
	}
	return -1
}

// Checked records whether a health check has found a replica dead.
func (p *Pickers) Checked(replica int, dead bool) {
	if p.dead == nil {
		p.dead = map[int]bool{}
	}
	p.dead[replica] = dead
}

// Checks reports whether Envoy checks the health of n replicas: it does only where it can choose.
func Checks(n int, failOpen bool) bool { return n > 1 || failOpen }

// NextCheck returns the time of the first health check after now.
func NextCheck(now machine.Time) machine.Time {
	every := machine.FromDuration(HealthInterval)
	return (now/every + 1) * every
}
