package machine

// Machine is the one shape of every deciding part. M is a message to it, F the
// buffer that its effects go to. Hot paths use the concrete types; drivers
// (live/drive, virtual) and the test of the contract (internal/contract) use
// the interface.
//
// What every machine promises:
//
//   - Input first advances to now and then takes the message. A machine that has
//     seen a later moment than now takes it at that moment: time never goes back.
//   - Everything due by now is played before Input and Advance return, so that
//     Next is later than now, or there is none.
//   - Effects come in the order of their times, each with the time at which it
//     was due, never with that at which somebody asked.
//   - How often Advance is called in between changes nothing.
type Machine[M any, F Buffer] interface {
	Input(now Time, m M, fx F)
	Next() (Time, bool)
	Advance(now Time, fx F)
}

// Buffer is what a machine hands out effects by. Who calls the machine owns the
// buffer: read it in order, then Reset it and use it again.
type Buffer interface {
	// Len is the number of effects.
	Len() int
	// DueAt is the time at which effect number i was due.
	DueAt(i int) Time
	// Reset empties the buffer and keeps its memory.
	Reset()
}

// Effect is one thing that happened, or that should now happen, as data.
type Effect interface {
	// Due is the time at which it was due.
	Due() Time
}

// Effects is the buffer of a machine whose effects are plain values. The zero
// value is ready to use.
type Effects[E Effect] struct{ List []E }

// Add appends an effect.
func (x *Effects[E]) Add(e E) { x.List = append(x.List, e) }

// Len is the number of effects.
func (x *Effects[E]) Len() int { return len(x.List) }

// DueAt is the time at which effect number i was due.
func (x *Effects[E]) DueAt(i int) Time { return x.List[i].Due() }

// Reset empties the buffer, forgets what its effects pointed to, and keeps its
// memory.
func (x *Effects[E]) Reset() {
	clear(x.List)
	x.List = x.List[:0]
}
