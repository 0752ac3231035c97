package machine

// Machine is the interface of every component that decides. M is a message to it, F the buffer for its effects. Hot
// paths use the concrete types. Drivers (live/drive, virtual) and the contract's test (internal/contract) use the
// interface.
//
// Every machine promises:
//
//   - Input first advances to now and then takes the message. A machine that has seen a later time than
//     now takes it at that time: time never goes back.
//   - Input and Advance perform everything due by now before they return, so that Next is later than now, or
//     there is none.
//   - Effects are in the order of their times. Each has the time at which it was due, never the time of the
//     call that returned it.
//   - How often a driver calls Advance in between changes nothing.
type Machine[M any, F Buffer] interface {
	Input(now Time, m M, fx F)
	Next() (Time, bool)
	Advance(now Time, fx F)
}

// Buffer receives a machine's effects. The caller of the machine owns the buffer: it reads the effects in order, then
// calls Reset and uses the buffer again.
type Buffer interface {
	// Len returns the number of effects.
	Len() int
	// DueAt returns the time at which effect i was due.
	DueAt(i int) Time
	// Reset empties the buffer and keeps its memory.
	Reset()
}

// Effect is one thing that happened, or that should happen now, as data.
type Effect interface {
	// Due returns the time at which the effect was due.
	Due() Time
}

// Effects is the buffer of a machine whose effects are plain values. The zero
// value is ready to use.
type Effects[E Effect] struct{ List []E }

func (x *Effects[E]) Add(e E) { x.List = append(x.List, e) }

func (x *Effects[E]) Len() int { return len(x.List) }

func (x *Effects[E]) DueAt(i int) Time { return x.List[i].Due() }

// Reset empties the buffer, clears its effects' pointers, and keeps its memory.
func (x *Effects[E]) Reset() {
	clear(x.List)
	x.List = x.List[:0]
}
