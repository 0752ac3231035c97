// Package drive drives machines (see core/machine) in wall time: one lock, one
// clock and one timer for each, whatever the machine decides.
//
// Whoever has a message for the machine gives it, in its own goroutine: it
// takes the lock, and before it goes on everything that was due by now, the
// message included, has been played and carried out. A timer rings when the
// machine wants to be woken and does the same without a message. No goroutine
// waits, so that a machine with nothing to do costs nothing. Where carrying out
// may take long, Run drives a machine in a goroutine of its own.
package drive

import (
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/punctual"
)

// Options are a machine and its surroundings.
type Options[M any, F machine.Buffer] struct {
	Machine machine.Machine[M, F]
	// Effects is the buffer that the machine fills. It is the driver's.
	Effects F
	// Now is the run's clock, which must not run slower than the wall's.
	Now func() machine.Time
	// Carry carries out effect number i. It has the machine in hand, so that it
	// may read it and give it further messages, by its own Input with now and
	// fx: what they bring about joins the list. It must not call the driver, and
	// what it waits for, everybody waits for.
	Carry func(now machine.Time, fx F, i int)
	// Carried, if not nil, is called when all of a list is carried out.
	Carried func()
	// Before, if not nil, is called whenever somebody has the machine in hand,
	// before anything is played.
	Before func(now machine.Time)
	// Panicked, if not nil, is told of a panic of the machine's, f's or Carry's, and
	// whether it was when the timer rang. It has the machine in hand. Without it,
	// or where it panics in turn, the panic is the caller's.
	Panicked func(now machine.Time, v any, rang bool)
	// Rang, if not nil, is called after the timer rang, in the timer's goroutine and
	// without the machine in hand: it may wait for what Carry must not wait for.
	Rang func()
	// Gap is the least time between two rings of the timer; 0 is none. Where a
	// thousand things each have their own rhythm one is due every few
	// microseconds, and waking for each costs as much as doing it.
	Gap machine.Time
	// Soon is so near that what is due then is played at once, because setting
	// a timer takes longer; 0 plays nothing early.
	Soon machine.Time
}

// Driver is a machine that is being driven. Its methods may be called from any
// goroutine.
type Driver[M any, F machine.Buffer] struct {
	o Options[M, F]

	mu      sync.Mutex // whoever has it has the machine in hand
	stopped bool
	quiet   bool            // nothing happens by itself any more
	inside  bool            // from enter to leave; it stays so where f or Carry panics
	ringing bool            // inside, because the timer rang
	carried int             // effects of the list that are carried out, or being so
	timer   *punctual.Timer // rings at armed
	armed   machine.Time    // Never: it is not set
	rang    machine.Time    // when it last did
}

// New takes a machine over: from here on it is the driver's.
func New[M any, F machine.Buffer](o Options[M, F]) *Driver[M, F] {
	d := &Driver[M, F]{o: o, armed: machine.Never, rang: -o.Gap}
	d.mu.Lock() // the timer may ring before arm is through
	defer d.mu.Unlock()
	if at, ok := o.Machine.Next(); ok {
		d.arm(at, o.Now())
	}
	return d
}

// Input gives the machine a message. It is false after Stop.
func (d *Driver[M, F]) Input(m M) bool {
	d.mu.Lock()
	defer d.unlock()
	if d.stopped {
		return false
	}
	now := d.enter()
	d.o.Machine.Input(now, m, d.o.Effects)
	d.leave(now)
	return true
}

// With runs f with the machine in hand, which has been advanced to now. As in
// Carry, f may read the machine and give it messages. It is false, and f does
// not run, after Stop.
func (d *Driver[M, F]) With(f func(now machine.Time, fx F)) bool {
	d.mu.Lock()
	defer d.unlock()
	return d.with(f)
}

// Try is With unless somebody else has the machine in hand; then it is false.
func (d *Driver[M, F]) Try(f func(now machine.Time, fx F)) bool {
	if !d.mu.TryLock() {
		return false
	}
	defer d.unlock()
	return d.with(f)
}

func (d *Driver[M, F]) with(f func(now machine.Time, fx F)) bool {
	if d.stopped {
		return false
	}
	now := d.enter()
	d.o.Machine.Advance(now, d.o.Effects)
	d.carry(now)
	f(now, d.o.Effects)
	d.leave(now)
	return true
}

// Stop ends the driving. When it returns nothing is being carried out, and
// nothing will be.
func (d *Driver[M, F]) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.disarm()
}

// Quiet ends what happens by itself: the timer rings no more. Whoever has a
// message still gives it.
func (d *Driver[M, F]) Quiet() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.quiet = true
	d.disarm()
}

func (d *Driver[M, F]) enter() machine.Time {
	now := d.o.Now()
	d.inside = true
	if d.o.Before != nil {
		d.o.Before(now)
	}
	return now
}

// unlock gives the machine out of hand. Where something panicked the timer goes
// on with what is left, so that one who breaks stops nobody else; the effect
// that broke is not carried out again.
func (d *Driver[M, F]) unlock() {
	defer d.mu.Unlock()
	rang := d.ringing
	d.ringing = false
	if !d.inside || d.stopped {
		return
	}
	d.inside = false
	now := d.o.Now()
	d.arm(now, now)
	if d.o.Panicked != nil {
		d.o.Panicked(now, recover(), rang)
		d.carried = min(d.carried, d.o.Effects.Len())
	}
}

// carry carries the list out, and what it brings about.
func (d *Driver[M, F]) carry(now machine.Time) {
	fx := d.o.Effects
	if fx.Len() == 0 {
		return
	}
	for d.carried < fx.Len() {
		d.carried++
		d.o.Carry(now, fx, d.carried-1)
	}
	if d.o.Carried != nil {
		d.o.Carried()
	}
	fx.Reset()
	d.carried = 0
}

// leave carries out what has been brought about, plays what is due soon, and
// sets the timer for the rest.
func (d *Driver[M, F]) leave(now machine.Time) {
	for {
		d.carry(now)
		at, ok := d.o.Machine.Next()
		if !ok || at > now+d.o.Soon {
			if d.inside = false; ok {
				d.arm(at, now)
			} else {
				d.disarm()
			}
			return
		}
		now = max(now, at)
		d.o.Machine.Advance(now, d.o.Effects)
	}
}

// arm has the timer ring for a moment. One that is set for an earlier moment
// is left as it is: it rings once in vain, which costs less than setting it
// with every message.
func (d *Driver[M, F]) arm(at, now machine.Time) {
	at = max(at, d.rang.Add(d.o.Gap))
	if at >= d.armed || d.quiet {
		return
	}
	d.armed = at
	wait := max(0, at-now).Duration()
	if d.timer == nil {
		d.timer = punctual.AfterFunc(wait, func() {
			d.ring()
			if d.o.Rang != nil {
				d.o.Rang()
			}
		})
	} else {
		d.timer.Reset(wait)
	}
}

func (d *Driver[M, F]) disarm() {
	if d.armed != machine.Never {
		d.armed = machine.Never
		d.timer.Stop()
	}
}

// ring plays what is due. It may come for a moment that somebody else has
// played meanwhile.
func (d *Driver[M, F]) ring() {
	d.mu.Lock()
	defer d.unlock()
	if d.stopped || d.quiet {
		return
	}
	now := d.enter()
	d.ringing = true
	d.armed, d.rang = machine.Never, now
	d.o.Machine.Advance(now, d.o.Effects)
	d.leave(now)
}

// Since is a clock that began at a time of day.
func Since(began time.Time) func() machine.Time {
	return func() machine.Time { return machine.FromDuration(time.Since(began)) }
}
