// Package enginedrive drives a model server's engine in wall time. The goroutines of the engine's requests sleep until
// something happens to them.
package enginedrive

import (
	"cmp"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/live/drive"
)

// Engine is one engine in wall time, together with its links to other servers. It is driven as live/drive describes: a
// goroutine that has a message takes the engine's lock, passes the message in, plays the work that is due and delivers
// its effects; a timer does the same at the engine's next time. A request with work due at once needs no switch to
// another goroutine.
type Engine struct {
	// Core may be used only with the engine's lock held, except for its Config.
	Core *enginecore.Core
	// Steps records the engine's steps if it has a recorder. It must be set before the first message.
	Steps lifecycle.EngineSteps
	// Changed, if not nil, is called when the engine's number of requests changes, with the engine's lock held. It must
	// not wait. It must be set before the first message.
	Changed func()

	drive      *drive.Driver[enginecore.Message, *enginecore.Effects]
	done       chan struct{} // closed by Stop
	dead       atomic.Bool   // the engine crashed or lost a rank
	sleepLevel atomic.Int32

	// The engine's lock guards everything below.
	fx       enginecore.Effects
	act      func(*enginecore.Effect)
	waiting  map[*enginecore.Control]chan<- bool // channels for the answers to Controls
	inFlight int                                 // the number of requests at the last call of Changed
	filling  []*Box                              // the boxes of this delivery, locked
}

// Seq is one completion in the engine, with the box of its request.
type Seq struct {
	*modelserver.Sequence
	Box *Box
}

// New drives core. act carries out effects that concern no request. It runs with the engine's lock held, so it must not
// call the engine, except for InputLocked.
func New(core *enginecore.Core, clock func() machine.Time, act func(*enginecore.Effect)) *Engine {
	e := &Engine{Core: core, act: act, waiting: map[*enginecore.Control]chan<- bool{}, done: make(chan struct{})}
	e.dead.Store(core.Dead())
	e.drive = drive.New(drive.Options[enginecore.Message, *enginecore.Effects]{Machine: core, Effects: &e.fx,
		Now:   clock,
		Carry: e.carry, Carried: e.delivered, Gap: wakeGap, Soon: soon})
	return e
}

// soon is a time so short that a sleep would take longer.
const soon = 2 * machine.Microsecond

// wakeGap is the least time between two wake-ups. With a thousand requests, each with its own period, something is due
// every few microseconds, and a wake-up costs as much as the work. A token is late by less than the gap, and the next
// one is on time again.
const wakeGap = 500 * machine.Microsecond

// With locks the engine, plays the work that is due, runs f, and delivers f's effects. After Stop it returns false and
// does not run f.
func (e *Engine) With(f func(now machine.Time)) bool {
	return e.drive.With(func(now machine.Time, _ *enginecore.Effects) { f(now) })
}

// Hold stops the engine until release is called.
func (e *Engine) Hold() (release func()) { return e.drive.Hold() }

// InputLocked gives the engine a message. The caller holds the engine's lock.
func (e *Engine) InputLocked(now machine.Time, m enginecore.Message) { e.Core.Input(now, m, &e.fx) }

// Send gives the engine a message.
func (e *Engine) Send(m enginecore.Message) { e.drive.Input(m) }

// Control makes the server carry out an operation, and waits for the result. False means that the engine refused the
// operation or is being stopped.
func (e *Engine) Control(c *enginecore.Control) bool {
	result := make(chan bool, 1)
	if !e.With(func(now machine.Time) {
		e.waiting[c] = result
		e.InputLocked(now, c)
	}) {
		return false
	}
	select {
	case ok := <-result:
		return ok
	case <-e.done:
		return false
	}
}

// Operate is Control for one of the engine's own operations.
func (e *Engine) Operate(c engine.Control) bool { return e.Control(&enginecore.Control{Control: c}) }

// controlled passes the result of a Control to its caller.
func (e *Engine) controlled(a *enginecore.Controlled) {
	e.dead.Store(e.Core.Dead())
	e.sleepLevel.Store(int32(e.Core.SleepLevel()))
	if to := e.waiting[a.Control]; to != nil {
		to <- a.Done
		delete(e.waiting, a.Control)
	}
}

// Dead reports whether the engine crashed, lost a rank or does not fit into its memory.
func (e *Engine) Dead() bool { return e.dead.Load() }

// SleepLevel returns vLLM's sleep level; 0 is awake.
func (e *Engine) SleepLevel() int { return int(e.sleepLevel.Load()) }

// Stop ends the driving and closes Done.
func (e *Engine) Stop() {
	e.drive.Stop()
	close(e.done)
}

// Done returns a channel that Stop closes.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Submit submits a request's completions to the engine, all at the same time.
func (e *Engine) Submit(seqs []*Seq) {
	e.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Submit{Sequence: q} })
}

// Abort ends completions that are not finished.
func (e *Engine) Abort(seqs []*Seq) {
	e.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Abort{Sequence: q} })
}

// Resume lets held completions continue.
func (e *Engine) Resume(seqs []*Seq) {
	e.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Resume{Sequence: q} })
}

func (e *Engine) all(seqs []*Seq, message func(*enginecore.Sequence) enginecore.Message) {
	e.With(func(now machine.Time) {
		for _, s := range seqs {
			e.InputLocked(now, message(&s.Sequence.Sequence))
		}
	})
}

// carry passes an effect to the request that it concerns, or to the server.
func (e *Engine) carry(_ machine.Time, fx *enginecore.Effects, i int) {
	x := &fx.List[i]
	switch a := x.Do.(type) {
	case nil:
	case enginecore.Controlled:
		e.controlled(&a)
		return
	case enginecore.Fetched:
		e.hold(x.Sequence.Owner.(*Seq).Box).GotKV(a.Took, a.Bytes)
		e.act(x)
		return
	default:
		e.act(x)
		return
	}
	f := fx.OfEngine(x)
	if f.Kind == engine.Stepped {
		e.Steps.Record(&fx.Engine, f)
	}
	if x.Sequence == nil {
		return
	}
	s := x.Sequence.Owner.(*Seq)
	b := e.hold(s.Box)
	if b.ApplyEffect(s.Sequence, f) && s.Wants(f.Kind) {
		b.wakes = true
	}
	switch f.Kind {
	case engine.FirstToken:
		b.FirstAt = cmp.Or(b.FirstAt, f.At)
	case engine.KVHeld:
		b.kept = s.Hold
	case engine.Finished:
		b.EndedAt = f.At
		b.forgotten = len(b.Choices) == 1 && s.Forgotten()
	}
}

// hold locks a request's box until the delivery is complete. So the request sees the last token and the end together,
// even if it is about to look.
func (e *Engine) hold(b *Box) *Box {
	if !b.filling {
		b.mu.Lock()
		b.filling = true
		e.filling = append(e.filling, b)
	}
	return b
}

// delivered unlocks the boxes, and wakes each request that waits for one of the effects once.
func (e *Engine) delivered() {
	for i, b := range e.filling {
		ready, wakes := b.Ready, b.wakes
		b.filling, b.wakes = false, false
		b.mu.Unlock()
		if b.forgotten {
			b.free.Store(true) // the box may be reused from here on, but its channel stays the same
		}
		if wakes {
			wake(ready)
		}
		e.filling[i] = nil
	}
	e.filling = e.filling[:0]
	if e.Changed == nil {
		return
	}
	st := e.Core.Engine().Stats()
	if n := st.Running + st.Waiting; n != e.inFlight {
		e.inFlight = n
		e.Changed()
	}
}
