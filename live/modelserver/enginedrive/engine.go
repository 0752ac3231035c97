// Package enginedrive drives a model server's engine in wall time, and lets the
// goroutines of its requests sleep until something has happened to them.
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

// Engine is one engine, with what joins it to other servers, in wall time
// (live/drive): whoever has a message for it gives it, plays what is due and
// hands out what happened, and a timer rings at its next moment. A request that
// is due at once costs no switch to another goroutine.
type Engine struct {
	// Core is for who has the engine in hand, but for its Config.
	Core *enginecore.Core
	// Steps are told of, where they have a recorder. To be set before the first
	// message.
	Steps lifecycle.EngineSteps
	// Changed, if not nil, is called when the engine has more or fewer requests in hand, by
	// who has it in hand: it must not wait. To be set before the first message.
	Changed func()

	drive      *drive.Driver[enginecore.Message, *enginecore.Effects]
	done       chan struct{} // closed when it has been stopped
	dead       atomic.Bool   // it crashed or lost a rank
	sleepLevel atomic.Int32

	// Everything below is for who has the engine in hand.
	fx      enginecore.Effects
	act     func(*enginecore.Effect)
	waiting map[*enginecore.Control]chan<- bool // who waits for the answer to a Control
	inHand  int                                 // requests, as Changed was told
	filling []*Box                              // what this delivery has put something in
}

// Seq is one completion in the engine, and who is told of it.
type Seq struct {
	*modelserver.Sequence
	Box *Box
}

// New drives core. act carries out what is not for a request; it has the engine
// in hand and must not enter it again, but by Tell.
func New(core *enginecore.Core, clock func() machine.Time, act func(*enginecore.Effect)) *Engine {
	e := &Engine{Core: core, act: act, waiting: map[*enginecore.Control]chan<- bool{}, done: make(chan struct{})}
	e.dead.Store(core.Dead())
	e.drive = drive.New(drive.Options[enginecore.Message, *enginecore.Effects]{Machine: core, Effects: &e.fx,
		Now:   clock,
		Carry: e.carry, Carried: e.delivered, Gap: wakeGap, Soon: soon})
	return e
}

// soon is so near that sleeping for it takes longer.
const soon = 2 * machine.Microsecond

// wakeGap is the least time between two wake-ups. Where a thousand requests each
// have their own rhythm something is due every few microseconds; that costs as
// much as sending it. A token is late by less than the gap, and the one after it
// is on time again.
const wakeGap = 500 * machine.Microsecond

// With runs f with the engine in hand, which has played what was due, and then
// delivers what f brought about. It is false when the engine has been stopped.
func (e *Engine) With(f func(now machine.Time)) bool {
	return e.drive.With(func(now machine.Time, _ *enginecore.Effects) { f(now) })
}

// Tell gives the engine a message; it is for who has it in hand.
func (e *Engine) Tell(now machine.Time, m enginecore.Message) { e.Core.Input(now, m, &e.fx) }

// Send gives the engine a message.
func (e *Engine) Send(m enginecore.Message) { e.drive.Input(m) }

// Control has the server do an operation and waits for its answer; false means
// that it was refused, or that the engine is being stopped.
func (e *Engine) Control(c *enginecore.Control) bool {
	result := make(chan bool, 1)
	if !e.With(func(now machine.Time) {
		e.waiting[c] = result
		e.Tell(now, c)
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

// controlled tells who waits of the answer to a Control.
func (e *Engine) controlled(a *enginecore.Controlled) {
	e.dead.Store(e.Core.Dead())
	e.sleepLevel.Store(int32(e.Core.SleepLevel()))
	if to := e.waiting[a.Control]; to != nil {
		to <- a.Done
		delete(e.waiting, a.Control)
	}
}

// Dead tells whether the engine crashed, lost a rank or does not fit into its
// memory.
func (e *Engine) Dead() bool { return e.dead.Load() }

// SleepLevel is vLLM's; 0 is awake.
func (e *Engine) SleepLevel() int { return int(e.sleepLevel.Load()) }

// Stop ends the driving; Done is closed then.
func (e *Engine) Stop() {
	e.drive.Stop()
	close(e.done)
}

// Done is closed when the engine has been stopped.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Submit gives a request's completions to the engine, all at one moment.
func (e *Engine) Submit(seqs []*Seq) {
	e.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Submit{Sequence: q} })
}

// Abort ends completions that are not over.
func (e *Engine) Abort(seqs []*Seq) {
	e.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Abort{Sequence: q} })
}

// Resume lets held completions go on.
func (e *Engine) Resume(seqs []*Seq) {
	e.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Resume{Sequence: q} })
}

func (e *Engine) all(seqs []*Seq, message func(*enginecore.Sequence) enginecore.Message) {
	e.With(func(now machine.Time) {
		for _, s := range seqs {
			e.Tell(now, message(&s.Sequence.Sequence))
		}
	})
}

// carry hands an effect to the request that it concerns, or to the server.
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
	if b.Heard(s.Sequence, f) && s.Wants(f.Kind) {
		b.told = true
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

// hold has a request see nothing of a delivery until it has all of it: the last
// token and the end are one piece for it, also where it was about to look.
func (e *Engine) hold(b *Box) *Box {
	if !b.filling {
		b.mu.Lock()
		b.filling = true
		e.filling = append(e.filling, b)
	}
	return b
}

// delivered wakes each request that wants to know of what was handed to it, once.
func (e *Engine) delivered() {
	for i, b := range e.filling {
		ready, told := b.Ready, b.told
		b.filling, b.told = false, false
		b.mu.Unlock()
		if b.forgotten {
			b.free.Store(true) // from here on the box is somebody else's, the channel still one
		}
		if told {
			wake(ready)
		}
		e.filling[i] = nil
	}
	e.filling = e.filling[:0]
	if e.Changed == nil {
		return
	}
	st := e.Core.Engine().Stats()
	if n := st.Running + st.Waiting; n != e.inHand {
		e.inHand = n
		e.Changed()
	}
}
