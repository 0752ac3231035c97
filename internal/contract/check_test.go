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
	// Check draws a machine and messages, and fails t if the machine breaks the contract.
	Check func(t *rapid.T)
}

// Kind makes equal machines and draws messages for them. The machines' configuration has been drawn before.
type Kind[M any, F machine.Buffer] struct {
	Make func() Instance[M, F]
	// Message draws a message for the given time or later.
	Message func(t *rapid.T, at machine.Time) M
	// Spans are the times between messages, in multiples up to four, so that some messages arrive exactly when
	// something is due.
	Spans []machine.Time
	// Rest is the time to wait after the last message.
	Rest machine.Time
}

// Instance is one machine, with functions to observe it.
type Instance[M any, F machine.Buffer] struct {
	Machine machine.Machine[M, F]
	// Is, if not nil, is the machine under test, where Machine is an adapter that makes its messages.
	Is      any
	Effects F
	// Say describes effects completely: two machines are equal if their descriptions are. It is called before the
	// next input.
	Say func(fx F) []Said
	// State, if not nil, describes the machine itself at the end.
	State func() string
	// Own, if not nil, adapts a drawn message to this instance, for messages that contain something that the machine
	// writes to.
	Own func(m M) M
	// At, if not nil, receives the time of each call before the call.
	At func(now machine.Time)
}

// Said is the description of an effect. An effect that stands for several equal ones is described once for each,
// because the contract does not say how they are grouped.
type Said struct {
	At   machine.Time
	Text string
}

// Plainly describes effects that are plain values.
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

// call is one message, and the times since the previous message at which one of the machines is advanced without
// need.
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
		slices.SortStableFunc(d.said, func(a, b Said) int { return int(a.At - b.At) }) // groups of equal effects
		return d
	}
	want := play("given only messages", func(*driven[M, F], *call[M]) {})
	for _, got := range []*driven[M, F]{
		play("made a second time", func(*driven[M, F], *call[M]) {}),
		play("advanced before each message", func(d *driven[M, F], c *call[M]) { d.advance(c.at) }),
		play("advanced at each of its wake-up times", func(d *driven[M, F], c *call[M]) { d.wake(c.at) }),
		play("advanced in between without need", func(d *driven[M, F], c *call[M]) {
			for _, at := range c.between {
				d.advance(at)
			}
		}),
		play("given late messages at the current time", func(d *driven[M, F], c *call[M]) { c.at = max(c.at, d.now) }),
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

// driven is a machine whose every call is checked against the contract.
type driven[M any, F machine.Buffer] struct {
	Instance[M, F]
	t    *rapid.T
	how  string
	now  machine.Time // of its latest call
	last machine.Time // of its latest effect
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

// wake advances the machine at each of its wake-up times until a time.
func (d *driven[M, F]) wake(until machine.Time) {
	for range 1 << 16 {
		at, ok := d.Machine.Next()
		if !ok || at > until {
			return
		}
		d.advance(at)
	}
	d.t.Fatalf("it asks to be woken endlessly until %v", until)
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
