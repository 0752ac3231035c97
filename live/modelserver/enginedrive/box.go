package enginedrive

import (
	"sync"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
)

// Box is where a request's goroutine learns what happened to it: the loop puts
// in what the engine did, the body's reader what the peer did. It holds the
// latest state and not a queue, so a goroutine that is late sees several
// tokens at once and memory per request is constant.
type Box struct {
	Ready chan struct{} // one pending wake-up at most; kept when the box is used again

	// For who has the engine in hand.
	filling   bool // it is among the engine's filling, which has mu
	told      bool // the request is to be woken at the end of the delivery
	forgotten bool // the engine has no more to do with it
	// free says the same to the request, once that is so.
	free atomic.Bool

	mu                   sync.Mutex
	modelserver.Progress                       // Choices are the request's completions; one for nearly every request
	one                  [1]modelserver.Choice // what they stand on where it is one
	kept                 *enginecore.Hold      // blocks kept for another server
}

// Init makes a zero box ready.
func (b *Box) Init(choices int) {
	if b.Ready == nil {
		b.Ready = make(chan struct{}, 1)
	}
	if b.Choices = b.one[:]; choices != 1 {
		b.Choices = make([]modelserver.Choice, choices)
	}
}

// Free tells whether the engine will not touch the box and its sequence again,
// but for a last, empty wake-up.
func (b *Box) Free() bool { return b.free.Load() }

// wake makes the goroutine that waits for ready look.
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

// Look copies the state; choices are copied into into.
func (b *Box) Look(into []modelserver.Choice) (modelserver.Progress, *enginecore.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	copy(into, b.Choices)
	p := b.Progress
	p.Choices = into
	return p, b.kept
}
