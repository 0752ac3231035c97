package drive

import (
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Owner is the goroutine in which Run drives a machine.
type Owner[M any] interface {
	// Carry carries out effect number i of the machine's buffer. It may wait. The effects of messages that it passes
	// to the machine's own Input join the list.
	Carry(i int)
	// Over reports whether the machine has nothing more to do.
	Over() bool
	// Woken receives when there is a message. Message returns that message.
	Woken() <-chan struct{}
	Message() M
	// Done is closed when the owner's client has left. Run then calls Left once, which adds a message.
	Done() <-chan struct{}
	Left()
}

// Run drives a machine in the caller's goroutine until it is over. It is for effects that wait for a client, such as
// writing an answer: other senders of messages do not wait for them. The buffer fx may already have effects.
func Run[M any, F machine.Buffer](m machine.Machine[M, F], fx F, now func() machine.Time, o Owner[M]) {
	done := o.Done()
	for {
		for i := 0; i < fx.Len(); i++ {
			o.Carry(i)
		}
		fx.Reset()
		if o.Over() {
			return
		}
		var due <-chan time.Time
		if at, ok := m.Next(); ok {
			due = time.After((at - now()).Duration())
		}
		select {
		case <-o.Woken():
			m.Input(now(), o.Message(), fx)
		case <-due:
			m.Advance(now(), fx)
		case <-done:
			done = nil
			o.Left()
		}
	}
}
