package modelserver

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
)

// box is where a request's goroutine learns what happened to it: the loop puts
// in what the engine did, the body's reader what the peer did. It holds the
// latest state and not a queue, so a goroutine that is late sees several
// tokens at once and memory per request is constant.
type box struct {
	ready chan struct{} // one pending wake-up at most

	mu                   sync.Mutex
	modelserver.Progress                       // Choices are the request's completions; one for nearly every request
	one                  [1]modelserver.Choice // what they stand on where it is one
	kept                 *enginecore.Hold      // blocks kept for another server
}

// init makes a zero box ready.
func (b *box) init(choices int) {
	b.ready = make(chan struct{}, 1)
	if b.Choices = b.one[:]; choices != 1 {
		b.Choices = make([]modelserver.Choice, choices)
	}
}

// wake makes the request's goroutine look.
func (b *box) wake() {
	select {
	case b.ready <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// put changes the state and wakes the request.
func (b *box) put(change func(*modelserver.Progress)) {
	b.mu.Lock()
	change(&b.Progress)
	b.mu.Unlock()
	b.wake()
}

// look copies the state; choices are copied into into.
func (b *box) look(into []modelserver.Choice) (modelserver.Progress, *enginecore.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	copy(into, b.Choices)
	p := b.Progress
	p.Choices = into
	return p, b.kept
}
