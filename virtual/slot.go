package virtual

import "github.com/windtunnel/windtunnel/core/machine"

// slot is a machine's place in the event queue, what live/drive is in wall
// time: it is given messages, its effects are carried out in order, and one
// wake-up stands in the queue for when it wants to be woken. The rule of
// wake-ups is here and nowhere else.
type slot[M any, F machine.Buffer] struct {
	w *world
	m machine.Machine[M, F]
	// fx is the machine's buffer.
	fx F
	// carry carries out effect number i of fx. What it brings about in the same
	// machine, by input, joins the list, so the loop and not the stack grows.
	carry func(i int)
	// carried, if not nil, is called when all of a list is carried out. What it
	// brings about in the same machine is a list of its own.
	carried func()
	// changes, if not nil, is called before anything happens to the machine.
	changes func()
	// class orders the wake-ups among what else happens at their moment.
	class machine.Class
	// rank, if not 0, orders the wake-ups among those of their class at their moment, which all have one.
	rank uint32
	// while, if not nil, says whether wake-ups are still wanted, of a machine
	// that would want to be woken for ever.
	while func() bool

	playing bool
	wakeAt  machine.Time // Never is never
	place   *place       // nil until there is a wake-up
	ended   bool
}

// place is what the queue knows of a slot. It is empty once the slot has ended,
// so that the memory of what is over is not kept for a wake-up that nobody
// needs any more.
type place struct {
	slot interface{ wake() }
	asks bool // the machine would want to be woken for ever
	at   machine.Handle
}

// open puts a machine into a slot. Class, carried and while may be set before.
func (s *slot[M, F]) open(w *world, m machine.Machine[M, F], fx F, carry func(i int)) {
	s.w, s.m, s.fx, s.carry, s.wakeAt = w, m, fx, carry, machine.Never
	s.place, s.ended = nil, false
}

// input gives the machine a message, now.
func (s *slot[M, F]) input(m M) {
	if s.changes != nil {
		s.changes()
	}
	s.m.Input(s.w.now, m, s.fx)
	s.play()
}

// wake plays what is due.
func (s *slot[M, F]) wake() {
	s.wakeAt = machine.Never
	s.advance()
}

// advance plays what is due.
func (s *slot[M, F]) advance() {
	if s.changes != nil {
		s.changes()
	}
	s.m.Advance(s.w.now, s.fx)
	s.play()
}

// play carries out what the machine says. Whoever gave it a message by a way of
// its own calls it, too.
func (s *slot[M, F]) play() {
	if s.playing {
		return
	}
	s.playing = true
	for more := true; more; more = s.fx.Len() > 0 {
		for i := 0; i < s.fx.Len(); i++ {
			s.carry(i)
		}
		s.fx.Reset()
		if s.carried != nil {
			s.carried()
		}
	}
	s.playing = false
	if at, ok := s.m.Next(); ok && at < s.wakeAt && !s.ended && (s.while == nil || s.while()) {
		if s.place == nil {
			s.place = &place{slot: s, asks: s.while != nil}
		}
		s.wakeAt = at
		if s.place.asks && s.place.at == 0 {
			s.w.asking++
		}
		if e := (event{wake, s.place}); s.rank != 0 {
			s.w.queue.PutRanked(&s.place.at, at, s.class, s.rank, e)
		} else {
			s.w.queue.Put(&s.place.at, at, s.class, e)
		}
	}
}

// end takes the machine out of the queue.
func (s *slot[M, F]) end() {
	if s.ended = true; s.place != nil {
		s.place.slot = nil
	}
}
