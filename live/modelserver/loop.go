package modelserver

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/live/drive"
)

// loop drives one engine, with what joins it to other servers, in wall time
// (live/drive): whoever has a message for it gives it, plays what is due and
// hands out what happened, and a timer rings at its next moment. A request that
// is due at once costs no switch to another goroutine.
type loop struct {
	drive *drive.Driver[enginecore.Message, *enginecore.Effects]
	done  chan struct{} // closed when it has been stopped

	// Everything below is for who has the engine in hand. What the loop calls
	// out to (act) must not enter it again.
	core *enginecore.Core
	eng  *engine.Engine // the core's
	fx   enginecore.Effects
	// act carries out what is not for a request.
	act     func(*enginecore.Effect)
	steps   lifecycle.EngineSteps
	waiting map[*enginecore.Control]chan<- bool // who waits for the answer to a Control
	touched []*box
}

// seq is one completion in the engine, and who is told of it.
type seq struct {
	*modelserver.Sequence
	box    *box
	tokens int
}

func newLoop(core *enginecore.Core, clock func() machine.Time, act func(*enginecore.Effect)) *loop {
	l := &loop{core: core, eng: core.Engine(), act: act, waiting: map[*enginecore.Control]chan<- bool{}, done: make(chan struct{})}
	l.drive = drive.New(drive.Options[enginecore.Message, *enginecore.Effects]{Machine: core, Effects: &l.fx, Now: clock,
		Carry: l.carry, Carried: l.delivered, Gap: wakeGap, Soon: soon})
	return l
}

// soon is so near that sleeping for it takes longer.
const soon = 2 * machine.Microsecond

// wakeGap is the least time between two wake-ups. Where a thousand requests each
// have their own rhythm something is due every few microseconds; that costs as
// much as sending it. A token is late by less than the gap, and the one after it
// is on time again.
const wakeGap = 500 * machine.Microsecond

// ask runs f with the engine in hand, which has played what was due, and then
// delivers what f brought about. It is false when the loop has ended.
func (l *loop) ask(f func(now machine.Time)) bool {
	return l.drive.With(func(now machine.Time, _ *enginecore.Effects) { f(now) })
}

// send gives the engine a message.
func (l *loop) send(m enginecore.Message) { l.drive.Input(m) }

func (l *loop) stop() {
	l.drive.Stop()
	close(l.done)
}

// submit gives a request's completions to the engine, all at one moment.
func (l *loop) submit(seqs []*seq) {
	l.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Submit{Sequence: q} })
}

// abort ends completions that are not over.
func (l *loop) abort(seqs []*seq) {
	l.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Abort{Sequence: q} })
}

// resume lets held completions go on.
func (l *loop) resume(seqs []*seq) {
	l.all(seqs, func(q *enginecore.Sequence) enginecore.Message { return enginecore.Resume{Sequence: q} })
}

func (l *loop) all(seqs []*seq, message func(*enginecore.Sequence) enginecore.Message) {
	l.ask(func(now machine.Time) {
		for _, s := range seqs {
			l.core.Input(now, message(&s.Sequence.Sequence), &l.fx)
		}
	})
}

// carry hands an effect to the request that it concerns, or to the server.
func (l *loop) carry(_ machine.Time, fx *enginecore.Effects, i int) {
	e := &fx.List[i]
	if e.Do != nil {
		l.act(e)
		return
	}
	f := fx.OfEngine(e)
	if f.Kind == engine.Stepped {
		l.steps.Record(&fx.Engine, f)
	}
	if e.Sequence == nil {
		return
	}
	s := e.Sequence.Owner.(*seq)
	if f.Kind == engine.Tokens {
		l.tokens(s, f)
	} else {
		l.milestone(s, f)
	}
}

// delivered wakes each request that something was handed to once.
func (l *loop) delivered() {
	for i, b := range l.touched {
		b.wake()
		l.touched[i] = nil
	}
	l.touched = l.touched[:0]
}

func (l *loop) tokens(s *seq, f *engine.Effect) {
	s.tokens += int(f.Count)
	b := s.box
	b.mu.Lock()
	b.Choices[s.Choice].Tokens = s.tokens
	b.mu.Unlock()
	l.touch(s, s.Every)
}

func (l *loop) milestone(s *seq, f *engine.Effect) {
	b := s.box
	c := &b.Choices[s.Choice]
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f.Kind {
	case engine.Rejected:
		b.Rejected, b.Code = true, f.Code
		l.touch(s, true)
	case engine.PrefillStarted:
		if !b.Started {
			b.Started, b.StartedAt, b.Cached = true, f.At, int(f.Count)
		}
		l.touch(s, s.Start)
	case engine.FirstToken:
		s.tokens = 1
		c.Tokens = 1
		if b.FirstAt == 0 {
			b.FirstAt = f.At
		}
		l.touch(s, s.First)
	case engine.KVHeld:
		b.kept = s.Hold
	case engine.Finished:
		s.tokens = int(f.Count)
		c.Tokens, c.Finished, c.Reason = int(f.Count), true, f.Reason
		b.EndedAt = f.At
		l.touch(s, true)
	case engine.Aborted:
		c.Finished, c.Aborted = true, true
		l.touch(s, true)
	}
}

// touch has the request woken at the end of the delivery, if it wants to be.
// A box may be listed twice: waking it again costs less than looking for it.
func (l *loop) touch(s *seq, wants bool) {
	if wants {
		l.touched = append(l.touched, s.box)
	}
}
