package enginedrive

import (
	"sync"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
)

// Box passes a request's goroutine what happened to the request: the loop reports what the engine did, the body's
// reader what the peer did. A Box holds the latest state and not a queue. So a goroutine that is late sees several
// tokens at once, and the memory for each request is constant.
type Box struct {
	Ready chan struct{} // holds at most one wake-up; kept when the box is reused

	// The engine's lock guards the next three fields.
	filling   bool // the box is in the engine's list filling, and its mu is locked
	wakes     bool // the request is to be woken at the end of the delivery
	forgotten bool // the engine is finished with the box
	// free is forgotten for the request's goroutine, which does not hold the engine's lock.
	free atomic.Bool

	mu                   sync.Mutex
	modelserver.Progress                       // Choices are the request's completions, one for nearly every request
	one                  [1]modelserver.Choice // backs Choices for a request with one completion
	kept                 *enginecore.Hold      // blocks kept for another server
}

// Init prepares a zero box for use.
func (b *Box) Init(choices int) {
	if b.Ready == nil {
		b.Ready = make(chan struct{}, 1)
	}
	if b.Choices = b.one[:]; choices != 1 {
		b.Choices = make([]modelserver.Choice, choices)
	}
}

// Free reports whether the engine will not touch the box and its sequence again, except for a last, empty wake-up.
func (b *Box) Free() bool { return b.free.Load() }

// wake wakes the goroutine that waits for ready.
func wake(ready chan<- struct{}) {
	select {
	case ready <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Put changes the state and wakes the request.
func (b *Box) Put(change func(*modelserver.Progress)) {
	b.mu.Lock()
	change(&b.Progress)
	b.mu.Unlock()
	wake(b.Ready)
}

// Look returns a copy of the state, with the choices copied into into.
func (b *Box) Look(into []modelserver.Choice) (modelserver.Progress, *enginecore.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	copy(into, b.Choices)
	p := b.Progress
	p.Choices = into
	return p, b.kept
}
