package modelserver

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
)

// box is where a request's goroutine learns what happened to it: the loop puts
// in what the engine did, the body's reader what the peer did. It holds the
// latest state and not a queue, so a goroutine that is late sees several
// tokens at once and memory per request is constant.
type box struct {
	ready chan struct{} // one pending wake-up at most

	mu sync.Mutex
	boxState
	// choices are the request's completions; one for nearly every request.
	choices []choiceState
	one     [1]choiceState // what choices stands on where it is one
}

type boxState struct {
	code     engine.Code // why the engine rejected it, if it did
	rejected bool

	started   bool // the engine began the prompt
	startedAt machine.Time
	cached    int // prompt tokens found in the prefix cache
	firstAt   machine.Time
	endedAt   machine.Time // its last completion was

	part2Begun bool // bytes came behind part 1
	part2      bool // part 2 and the end of the request are here
	metadata   string
	violation  string // how the body broke the contract
	gone       string // why the peer is gone, if it is

	kv *enginecore.Hold // blocks kept for another server
}

// choiceState is one completion's progress.
type choiceState struct {
	tokens   int // output tokens so far
	finished bool
	aborted  bool
	reason   engine.Reason
}

func newBox(choices int) *box {
	b := new(box)
	b.init(choices)
	return b
}

// init makes a zero box ready.
func (b *box) init(choices int) {
	b.ready = make(chan struct{}, 1)
	if b.choices = b.one[:]; choices != 1 {
		b.choices = make([]choiceState, choices)
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
func (b *box) put(change func(*boxState)) {
	b.mu.Lock()
	change(&b.boxState)
	b.mu.Unlock()
	b.wake()
}

// look copies the state; choices are copied into into.
func (b *box) look(into []choiceState) boxState {
	b.mu.Lock()
	copy(into, b.choices)
	s := b.boxState
	b.mu.Unlock()
	return s
}
