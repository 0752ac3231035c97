package proxy

import "github.com/windtunnel/windtunnel/core/machine"

// Pickers are the replicas of one endpoint picker as Envoy sees them: it asks them in turn, except for those that a
// health check has found dead. The zero value is ready.
type Pickers struct {
	turn int
	dead map[int]bool
}

// Next returns the replica, of n, that Envoy asks about the next request; -1 where it knows none to be alive.
func (p *Pickers) Next(n int) int {
	for range n {
		i := p.turn % n
		if p.turn++; !p.dead[i] {
			return i
		}
	}
	return -1
}

// Checked says that a health check has found a replica dead, or alive.
func (p *Pickers) Checked(replica int, dead bool) {
	if p.dead == nil {
		p.dead = map[int]bool{}
	}
	p.dead[replica] = dead
}

// Checks reports whether Envoy checks the health of n replicas: only where it has a choice to make.
func Checks(n int, failOpen bool) bool { return n > 1 || failOpen }

// NextCheck returns the time of the first health check after now.
func NextCheck(now machine.Time) machine.Time {
	every := machine.FromDuration(HealthInterval)
	return (now/every + 1) * every
}
