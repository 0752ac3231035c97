package virtual

import "github.com/windtunnel/windtunnel/core/machine"

// slot drives a machine by the event queue, as live/drive does in wall time: it passes messages to the machine, carries
// out the effects in order, and keeps one wake-up in the queue for the machine's next time.
type slot[M any, F machine.Buffer] struct {
	w *world
	m machine.Machine[M, F]
	// fx is the machine's buffer.
	fx F
	// carry carries out effect number i of fx. Effects of nested inputs to the same machine join the list, so that the
	// stack does not grow.
	carry func(i int)
	// carried, if not nil, is called when a list is carried out. Effects of its inputs to the same machine make a new
	// list.
	carried func()
	// changes, if not nil, is called before the machine changes.
	changes func()
	// class orders the wake-ups among other events at the same time.
	class machine.Class
	// rank, if not 0, orders the wake-ups of a class at the same time. All slots of the class have one.
	rank uint32
	// while, if not nil, ends the wake-ups of a periodic machine when it returns false.
	while func() bool

	paused  bool // the machine's process has stopped
	held    []M  // messages to it meanwhile
	playing bool
	wakeAt  machine.Time // Never: no wake-up
	place   *place       // nil before the first wake-up
	ended   bool
}

// place refers to a slot from the queue. It is empty once the slot has ended, so that a late wake-up does not keep the
// slot's memory.
type place struct {
	slot interface{ wake() }
	asks bool // the machine is periodic
	at   machine.Handle
}

// open puts a machine into the slot. Callers may set class, carried and while before.
func (s *slot[M, F]) open(w *world, m machine.Machine[M, F], fx F, carry func(i int)) {
	s.w, s.m, s.fx, s.carry, s.wakeAt = w, m, fx, carry, machine.Never
	s.place, s.ended = nil, false
}

// input passes a message to the machine now.
func (s *slot[M, F]) input(m M) {
	if s.paused {
		s.held = append(s.held, m)
		return
	}
	if s.changes != nil {
		s.changes()
	}
	s.m.Input(s.w.now, m, s.fx)
	s.play()
}

// wake advances the machine at its wake-up.
func (s *slot[M, F]) wake() {
	s.wakeAt = machine.Never
	s.advance()
}

// advance advances the machine to now.
func (s *slot[M, F]) advance() {
	if s.paused {
		return
	}
	if s.changes != nil {
		s.changes()
	}
	s.m.Advance(s.w.now, s.fx)
	s.play()
}

// play carries out the machine's effects. Callers that pass messages to the machine directly call it afterwards.
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

// pause stops the machine's process, or lets it continue: it then gets the messages that came meanwhile.
func (s *slot[M, F]) pause(stopped bool) {
	if s.paused = stopped; stopped {
		return
	}
	held := s.held
	s.held = nil
	for _, m := range held {
		s.input(m)
	}
	s.advance()
}

// end takes the machine out of the queue.
func (s *slot[M, F]) end() {
	if s.ended = true; s.place != nil {
		s.place.slot = nil
	}
}
