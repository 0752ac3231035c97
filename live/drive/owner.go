package drive

import (
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Owner is whose goroutine Run drives a machine in.
type Owner[M any] interface {
	// Carry carries out effect number i of the machine's buffer, and may take its
	// time. What it gives the machine by the machine's own Input joins the list.
	Carry(i int)
	// Over tells whether nothing more will happen.
	Over() bool
	// Woken has something when there is a message, which Message takes.
	Woken() <-chan struct{}
	Message() M
	// Done is closed when nobody waits for the machine any more. Left is told so,
	// once; what comes of it is one more message.
	Done() <-chan struct{}
	Left()
}

// Run drives a machine in the caller's goroutine until it is over: where what is
// carried out waits for somebody outside, as an answer does for its client, and
// so must keep nobody who has a message waiting. fx may have effects already.
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
