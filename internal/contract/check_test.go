package contract

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Machine is one kind of machine.
type Machine struct {
	// Name is its package's directory and its type, as in core/kv/kvindex.Index.
	Name string
	// Check draws a machine and messages, and fails t where it breaks a promise.
	Check func(t *rapid.T)
}

// Kind is how to make machines that are all alike and what to tell them. What it
// is made of has been drawn before.
type Kind[M any, F machine.Buffer] struct {
	Make func() Instance[M, F]
	// Message draws a message that is given at a time or later.
	Message func(t *rapid.T, at machine.Time) M
	// Spans are the times between messages, in multiples up to four, so that now
	// and then one comes just when something is due.
	Spans []machine.Time
	// Rest is how long to wait after the last message.
	Rest machine.Time
}

// Instance is one machine and what is needed to look at it.
type Instance[M any, F machine.Buffer] struct {
	Machine machine.Machine[M, F]
	// Is is the machine that is meant, where Machine is one around it that makes
	// its messages; else nil.
	Is      any
	Effects F
	// Say puts effects into words, all that they say: two machines are equal when
	// their words are. It is called before the next input.
	Say func(fx F) []Said
	// State, if not nil, puts the machine itself into words, at the end.
	State func() string
	// Own, if not nil, makes a drawn message this machine's own, where messages
	// carry what a machine writes to.
	Own func(m M) M
	// At, if not nil, is told the time of each call before it.
	At func(now machine.Time)
}

// Said is an effect in words. An effect that stands for a run of alike ones is
// one for each, since where a run is cut is nobody's promise.
type Said struct {
	At   machine.Time
	Text string
}

// Plainly says effects that are plain values.
func Plainly[E machine.Effect](fx *machine.Effects[E]) []Said {
	var out []Said
	for _, e := range fx.List {
		out = append(out, Said{e.Due(), fmt.Sprintf("%+v", e)})
	}
	return out
}

const module = "github.com/windtunnel/windtunnel/"

func of[M any, F machine.Buffer](name string, draw func(t *rapid.T) Kind[M, F]) Machine {
	return Machine{name, func(t *rapid.T) {
		kind := draw(t)
		x := kind.Make()
		if x.Is == nil {
			x.Is = x.Machine
		}
		if is := reflect.TypeOf(x.Is).Elem(); strings.TrimPrefix(is.PkgPath(), module)+"."+is.Name() != name {
			t.Fatalf("%s is made as a %v", name, is)
		}
		check(t, kind)
	}}
}

// call is one message, and the moments between it and the one before at which
// one of the machines is advanced for nothing.
type call[M any] struct {
	at      machine.Time
	between []machine.Time
	message M
}

func check[M any, F machine.Buffer](t *rapid.T, kind Kind[M, F]) {
	var calls []call[M]
	at := machine.Time(0)
	for range rapid.IntRange(1, 40).Draw(t, "messages") {
		gap := rapid.SampledFrom(kind.Spans).Draw(t, "span") * machine.Time(rapid.IntRange(0, 4).Draw(t, "times"))
		if rapid.IntRange(0, 9).Draw(t, "late") == 0 {
			gap = -gap
		}
		c := call[M]{at: max(0, at+gap)}
		for range rapid.IntRange(0, 2).Draw(t, "moments") {
			c.between = append(c.between,
				machine.Time(rapid.Int64Range(int64(min(at, c.at)), int64(c.at)).Draw(t, "moment")))
		}
		slices.Sort(c.between)
		at = c.at
		c.message = kind.Message(t, c.at)
		calls = append(calls, c)
	}
	play := func(how string, before func(d *driven[M, F], c *call[M])) *driven[M, F] {
		d := &driven[M, F]{Instance: kind.Make(), t: t, how: how}
		for i := range calls {
			c := calls[i]
			before(d, &c)
			d.input(c.at, c.message)
		}
		end := d.now + kind.Rest
		before(d, &call[M]{at: end})
		d.advance(end)
		slices.SortStableFunc(d.said, func(a, b Said) int { return int(a.At - b.At) }) // runs of alike effects
		return d
	}
	want := play("given messages alone", func(*driven[M, F], *call[M]) {})
	for _, got := range []*driven[M, F]{
		play("made once more", func(*driven[M, F], *call[M]) {}),
		play("advanced before each message", func(d *driven[M, F], c *call[M]) { d.advance(c.at) }),
		play("advanced whenever it wants to be", func(d *driven[M, F], c *call[M]) { d.wake(c.at) }),
		play("advanced in between for nothing", func(d *driven[M, F], c *call[M]) {
			for _, at := range c.between {
				d.advance(at)
			}
		}),
		play("given late messages as of now", func(d *driven[M, F], c *call[M]) { c.at = max(c.at, d.now) }),
	} {
		for i := range max(len(want.said), len(got.said)) {
			if i >= len(want.said) || i >= len(got.said) || want.said[i] != got.said[i] {
				t.Fatalf("%s says as number %d %s,\n%s %s", want.how, i, want.number(i), got.how, got.number(i))
			}
		}
		if want.State != nil {
			if a, b := want.State(), got.State(); a != b {
				t.Fatalf("%s ends as %s,\n%s as %s", want.how, a, got.how, b)
			}
		}
	}
}

// driven is a machine that is held against the contract at every call.
type driven[M any, F machine.Buffer] struct {
	Instance[M, F]
	t    *rapid.T
	how  string
	now  machine.Time // the latest that it was given
	last machine.Time // of its effects
	said []Said
}

func (d *driven[M, F]) number(i int) string {
	if i >= len(d.said) {
		return "nothing"
	}
	return fmt.Sprintf("%v %s", d.said[i].At, d.said[i].Text)
}

func (d *driven[M, F]) input(now machine.Time, m M) {
	d.begin(now)
	if d.Own != nil {
		m = d.Own(m)
	}
	d.Machine.Input(now, m, d.Effects)
	d.end()
}

func (d *driven[M, F]) advance(now machine.Time) {
	d.begin(now)
	d.Machine.Advance(now, d.Effects)
	d.end()
}

// wake advances it whenever it wants to be until a time.
func (d *driven[M, F]) wake(until machine.Time) {
	for range 1 << 16 {
		at, ok := d.Machine.Next()
		if !ok || at > until {
			return
		}
		d.advance(at)
	}
	d.t.Fatalf("it wants to be woken for ever until %v", until)
}

func (d *driven[M, F]) begin(now machine.Time) {
	d.now = max(d.now, now)
	if d.At != nil {
		d.At(now)
	}
}

func (d *driven[M, F]) end() {
	for i := range d.Effects.Len() {
		at := d.Effects.DueAt(i)
		if at < d.last || at > d.now {
			d.t.Fatalf("%s: effect number %d is of %v, the one before of %v, and it is %v: %v", d.how, i, at, d.last,
				d.now, d.Say(d.Effects)[i])
		}
		d.last = at
	}
	d.said = append(d.said, d.Say(d.Effects)...)
	d.Effects.Reset()
	if at, ok := d.Machine.Next(); ok && at <= d.now {
		d.t.Fatalf("%s: at %v it wants to be woken at %v", d.how, d.now, at)
	}
}
