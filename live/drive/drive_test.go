package drive

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// clock is a machine that strikes at the times that it is set to.
type clock struct {
	now machine.Time
	set []machine.Time // sorted
}

// strike is a message (set the clock to At) and an effect (the clock struck).
type strike struct{ at machine.Time }

func (s strike) Due() machine.Time { return s.at }

type strikes = machine.Effects[strike]

func (c *clock) Input(now machine.Time, m strike, fx *strikes) {
	c.Advance(now, fx)
	at, _ := slices.BinarySearch(c.set, m.at)
	c.set = slices.Insert(c.set, at, m.at)
	c.Advance(now, fx)
}

func (c *clock) Next() (machine.Time, bool) {
	if len(c.set) == 0 {
		return machine.Never, false
	}
	return c.set[0], true
}

func (c *clock) Advance(now machine.Time, fx *strikes) {
	c.now = max(c.now, now)
	for len(c.set) > 0 && c.set[0] <= c.now {
		fx.Add(strike{c.set[0]})
		c.set = c.set[1:]
	}
}

// rig is a driven clock. It records what it carries out, with the time.
type rig struct {
	*Driver[strike, *strikes]
	c     clock
	heard []string
	on    func(now machine.Time, fx *strikes, at machine.Time)
	lists int
}

func newRig(change func(*Options[strike, *strikes])) *rig {
	r := &rig{}
	o := Options[strike, *strikes]{Machine: &r.c, Effects: new(strikes), Now: Since(time.Now()),
		Carried: func() { r.lists++ }}
	o.Carry = func(now machine.Time, fx *strikes, i int) {
		at := fx.List[i].at
		r.heard = append(r.heard, fmt.Sprintf("%v at %v", at, now))
		if r.on != nil {
			r.on(now, fx, at)
		}
	}
	if change != nil {
		change(&o)
	}
	r.Driver = New(o)
	return r
}

func (r *rig) want(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	r.mu.Lock()
	got = slices.Clone(r.heard)
	r.mu.Unlock()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

const second = machine.Second

// Effects that are due are carried out at once, by the sender of the message. The rest is carried out when it is due,
// also when a later message brings that time forward.
func TestDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil)
		r.Input(strike{10 * second})
		time.Sleep(time.Second)
		r.Input(strike{1 * second})
		r.want(t, "1s at 1s")
		r.Input(strike{3 * second})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.want(t, "1s at 1s", "3s at 3s")
		time.Sleep(time.Hour)
		r.want(t, "1s at 1s", "3s at 3s", "10s at 10s")
		if r.armed != machine.Never {
			t.Errorf("a clock with nothing to strike is to ring at %v", r.armed)
		}
	})
}

// The effects that an effect causes join the list, in order of time, within the same lock.
func TestJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil)
		r.on = func(now machine.Time, fx *strikes, at machine.Time) {
			if len(r.heard) == 1 {
				r.c.Input(now, strike{at}, fx)
				r.c.Input(now, strike{at + second}, fx)
			}
		}
		r.Input(strike{second})
		time.Sleep(time.Hour)
		r.want(t, "1s at 1s", "1s at 1s", "2s at 2s")
		if r.lists != 2 {
			t.Errorf("%d lists, want 2", r.lists)
		}
	})
}

// A machine that has something due when the driver takes it over is woken.
func TestNextAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(o *Options[strike, *strikes]) { o.Machine.Input(0, strike{5 * second}, o.Effects) })
		time.Sleep(time.Hour)
		r.want(t, "5s at 5s")
	})
}

// With sees the machine at the current time, and carries out f's effects after f.
func TestWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before []machine.Time
		r := newRig(func(o *Options[strike, *strikes]) {
			o.Before = func(now machine.Time) { before = append(before, now) }
		})
		time.Sleep(time.Second)
		ok := r.With(func(now machine.Time, fx *strikes) {
			if r.c.now != second {
				t.Errorf("the machine is at %v", r.c.now)
			}
			r.c.Input(now, strike{0}, fx)
			r.c.Input(now, strike{2 * second}, fx)
			if len(r.heard) != 0 {
				t.Error("an effect was carried out while f ran")
			}
			if r.Try(func(machine.Time, *strikes) { t.Error("two at a time") }) {
				t.Error("Try says that it ran")
			}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		r.want(t, "0s at 1s", "2s at 2s")
		if !ok || !r.Try(func(machine.Time, *strikes) {}) ||
			!slices.Equal(before, []machine.Time{second, 2 * second, 2 * second}) {
			t.Errorf("%v, before %v", ok, before)
		}
	})
}

// A gap keeps timer events apart and loses nothing. What is due soon is played early.
func TestGapAndSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(o *Options[strike, *strikes]) { o.Gap, o.Soon = second, second/10 })
		for _, at := range []machine.Time{20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31} {
			r.Input(strike{at * second / 10})
		}
		time.Sleep(time.Hour)
		r.want(t, "2s at 2s", "2.1s at 2.1s", "2.2s at 2.2s", "2.3s at 2.3s", "2.4s at 2.4s", "2.5s at 2.5s",
			"2.6s at 2.6s", "2.7s at 2.7s", "2.8s at 2.8s", "2.9s at 2.9s", "3s at 3s", "3.1s at 3.1s")
		r = newRig(func(o *Options[strike, *strikes]) { o.Gap = second })
		for _, at := range []machine.Time{1, 5, 7, 30} {
			r.Input(strike{at * second / 10})
		}
		time.Sleep(time.Hour)
		r.want(t, "0.1s at 0.1s", "0.5s at 1.1s", "0.7s at 1.1s", "3s at 3s")
	})
}

// After Stop nothing happens, and every call returns false.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil)
		r.Input(strike{second})
		r.Stop()
		time.Sleep(time.Hour)
		nothing := func(machine.Time, *strikes) { t.Error("it runs") }
		if r.Input(strike{0}) || r.With(nothing) || r.Try(nothing) {
			t.Error("a driver that has been stopped takes messages")
		}
		r.want(t)
	})
}

// A panic while an effect is carried out stops nothing else: the rest of the list is carried out, and the timer still
// fires.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil)
		r.on = func(_ machine.Time, _ *strikes, at machine.Time) {
			if at == second {
				panic("broken")
			}
		}
		broke := func(f func()) {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			f()
		}
		time.Sleep(2 * time.Second)
		broke(func() {
			r.With(func(now machine.Time, fx *strikes) {
				for _, at := range []machine.Time{0, 1, 2, 5} {
					r.c.Input(now, strike{at * second}, fx)
				}
			})
		})
		synctest.Wait()
		r.want(t, "0s at 2s", "1s at 2s", "2s at 2s")
		broke(func() { r.With(func(machine.Time, *strikes) { panic("broken") }) })
		time.Sleep(time.Hour)
		r.want(t, "0s at 2s", "1s at 2s", "2s at 2s", "5s at 5s")
	})
}

// Panicked runs with the machine locked, learns whether the timer fired, and decides which effects are left. The
// caller gets a panic of Panicked itself.
func TestPanicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		var events []string
		r = newRig(func(o *Options[strike, *strikes]) {
			o.Panicked = func(now machine.Time, v any, rang bool) {
				events = append(events, fmt.Sprintf("%v at %v, rang %v", v, now, rang))
				r.c.Input(now, strike{now}, o.Effects)
				if v == "again" {
					r.on = nil // the timer may fire at once
					panic(v)
				}
				o.Effects.Reset()
			}
		})
		r.on = func(_ machine.Time, _ *strikes, at machine.Time) { panic(at) }
		r.Input(strike{0})
		r.Input(strike{second})
		time.Sleep(time.Hour)
		func() {
			defer func() { events = append(events, fmt.Sprint("caught ", recover())) }()
			r.With(func(machine.Time, *strikes) { panic("again") })
		}()
		r.Input(strike{0})
		synctest.Wait()
		r.want(t, "0s at 0s", "1s at 1s", "3600s at 3600s", "0s at 3600s")
		if want := []string{"0s at 0s, rang false", "1s at 1s, rang true", "again at 3600s, rang false",
			"caught again"}; !slices.Equal(events, want) {
			t.Errorf("found %q; expected %q", events, want)
		}
	})
}

// After Quiet the timer does not fire, but a message is played, and with it all that was due meanwhile.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil)
		r.Input(strike{second})
		r.Quiet()
		time.Sleep(time.Hour)
		r.want(t)
		if !r.Input(strike{0}) {
			t.Error("the message is refused")
		}
		r.want(t, "1s at 3600s", "0s at 3600s")
	})
}

// With many concurrent senders, each effect is carried out exactly once, one at a time.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := range 50 {
					r.Input(strike{machine.Time(k*8+i) * machine.Millisecond})
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(r.heard) != 400 || len(r.c.set) != 0 {
			t.Errorf("%d of 400 effects, %d left", len(r.heard), len(r.c.set))
		}
	})
}
