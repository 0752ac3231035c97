// Package drive drives machines (see core/machine) in wall time: each machine gets one lock, one clock and one timer,
// whatever it decides.
//
// A goroutine that has a message for the machine passes it in itself. It takes the lock. When Input returns, the
// machine has played everything that was due by now, the message included, and the driver has carried out the
// effects. Without a message, the timer fires at the machine's next time and does the same. No goroutine waits, so an
// idle machine costs nothing. Where carrying out an effect may take long, Run drives a machine in a goroutine of its
// own.
package drive

import (
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/punctual"
)

// Options are a machine and the functions that connect it to its surroundings.
type Options[M any, F machine.Buffer] struct {
	Machine machine.Machine[M, F]
	// Effects is the buffer that the machine fills. The driver owns it.
	Effects F
	// Now is the run's clock. It must not run slower than the wall clock.
	Now func() machine.Time
	// Carry carries out effect number i. The machine is locked meanwhile, so Carry may read it and pass it further
	// messages, by the machine's own Input with now and fx. Their effects join the list. Carry must not call the
	// driver, and should not wait, because all users of the machine wait for it.
	Carry func(now machine.Time, fx F, i int)
	// Carried, if not nil, is called after the last effect of a list.
	Carried func()
	// Before, if not nil, is called each time the machine is locked, before it plays anything.
	Before func(now machine.Time)
	// Panicked, if not nil, handles a panic of the machine, of f or of Carry. The argument rang is true for a panic
	// in the timer's goroutine. The machine is locked meanwhile. Without Panicked, or if Panicked panics, the caller
	// gets the panic.
	Panicked func(now machine.Time, v any, rang bool)
	// Rang, if not nil, is called after the timer fired, in the timer's goroutine and without the lock. It may wait
	// where Carry must not.
	Rang func()
	// Gap is the least time between two timer events; 0 means none. A machine with a thousand parts, each with its
	// own period, has something due every few microseconds, and a wake-up for each costs as much as the work itself.
	Gap machine.Time
	// Soon is the time within which the driver plays due work early, because setting a timer takes longer; 0 plays
	// nothing early.
	Soon machine.Time
}

// Driver drives one machine. All methods are safe for concurrent use.
type Driver[M any, F machine.Buffer] struct {
	o Options[M, F]

	mu      sync.Mutex // guards the machine
	stopped bool
	quiet   bool            // the timer no longer fires
	inside  bool            // true from enter to leave, and after a panic of f or Carry
	ringing bool            // inside because the timer fired
	carried int             // effects of the list that were carried out or started
	timer   *punctual.Timer // fires at armed
	armed   machine.Time    // Never: the timer is not set
	rang    machine.Time    // time of its latest event
}

// New takes ownership of a machine and drives it from now on.
func New[M any, F machine.Buffer](o Options[M, F]) *Driver[M, F] {
	d := &Driver[M, F]{o: o, armed: machine.Never, rang: -o.Gap}
	d.mu.Lock() // the timer may fire before arm returns
	defer d.mu.Unlock()
	if at, ok := o.Machine.Next(); ok {
		d.arm(at, o.Now())
	}
	return d
}

// Input passes the machine a message. It returns false after Stop.
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

// With locks the machine, advances it to now and runs f. As in Carry, f may read the machine and pass it messages.
// After Stop, With returns false and does not run f.
func (d *Driver[M, F]) With(f func(now machine.Time, fx F)) bool {
	d.mu.Lock()
	defer d.unlock()
	return d.with(f)
}

// Try is With, except that it returns false at once if the machine is locked.
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

// Hold locks the machine until release is called, like a process that is stopped: messages and the timer wait.
func (d *Driver[M, F]) Hold() (release func()) {
	d.mu.Lock()
	return d.mu.Unlock
}

// Stop ends the driving. Once it returns, no effect is being carried out, and none will be.
func (d *Driver[M, F]) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.disarm()
}

// Quiet stops the timer. Messages are still passed in and played.
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

// unlock unlocks the machine. After a panic, the driver continues with the remaining effects, so that one bad effect
// stops nothing else. It does not repeat the effect that panicked.
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

// carry carries out the effects of the list, and those that they add.
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

// leave carries out the effects, plays what is due soon, and sets the timer for the rest.
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

// arm sets the timer. It leaves a timer that is set for an earlier time: one needless event costs less than setting
// the timer with each message.
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

// ring plays what is due. Another caller may have played it already.
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

// Since returns a clock that is 0 at the given wall time.
func Since(began time.Time) func() machine.Time {
	return func() machine.Time { return machine.FromDuration(time.Since(began)) }
}
