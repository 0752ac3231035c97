package modelserver

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/live/drive"
)

// loop drives one engine in wall time (live/drive): whoever has a message for it
// gives it, plays what is due and hands out what happened, and a timer rings at
// the engine's next moment. A request that is due at once costs no switch to
// another goroutine.
type loop struct {
	drive *drive.Driver[engine.Message, *engine.Effects]
	done  chan struct{} // closed when it has been stopped

	// Everything below is for who has the engine in hand. What the loop calls
	// out to (onKV, taken) must not enter it again.
	eng   *engine.Engine
	stats *stats.Stats
	seqs  map[engine.RequestID]*seq
	fx    engine.Effects
	last  machine.Time // when the loop was last entered
	// taken says whether an id is in use by blocks held for another server.
	taken func(engine.RequestID) bool
	// onKV takes what the engine says of KV blocks: events and transfers.
	onKV func(*engine.Effects, *engine.Effect, *seq)
	// prefilled is told when a completion's prompt is computed.
	prefilled func(*seq)
	steps     serving.EngineSteps
	waiting   []controlWait // who waits for the answer to a Control
	touched   []*box
	over      []engine.RequestID // completions that ended in this delivery
}

// seq is one completion in the engine: the unit that the engine schedules.
type seq struct {
	submit engine.Submit
	box    *box
	choice int
	// first is true when the request's goroutine wants to be woken by the first
	// token, start when it wants to be by the begin of the prefill.
	first, start bool
	counted      stats.Sequence
	params       seqParams
	tokens       int
	live         bool // the engine has it
}

// seqParams are what happens to a completion's KV cache.
type seqParams struct {
	tokens func(first, count int) []uint32 // ids of the sequence's tokens, for KV events
	remote *remoteKV                       // whose blocks to fetch
	key    string                          // under which another server asks for its blocks
	stores []uint64                        // blocks to put into the external cache once they are computed
	loseKV bool                            // a fault: the transfer fails
}

func newLoop(eng *engine.Engine, clock func() machine.Time) *loop {
	cfg := eng.Config()
	l := &loop{eng: eng, stats: stats.New(&cfg), seqs: map[engine.RequestID]*seq{}, done: make(chan struct{})}
	l.prefilled = func(*seq) {}
	l.drive = drive.New(drive.Options[engine.Message, *engine.Effects]{Machine: eng, Effects: &l.fx, Now: clock,
		Before: l.enter, Carry: l.carry, Carried: l.delivered, Gap: wakeGap, Soon: soon})
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
	return l.drive.With(func(now machine.Time, _ *engine.Effects) { f(now) })
}

func (l *loop) enter(now machine.Time) {
	l.stats.Computed(l.last, now, l.eng.Computing()) // since last: somebody enters at every step's end
	l.last = now
}

// submit gives a request's completions to the engine, all at one moment.
func (l *loop) submit(seqs []*seq) {
	l.ask(func(now machine.Time) {
		for _, s := range seqs {
			l.begin(s, now)
		}
	})
}

// send gives the engine a message.
func (l *loop) send(m engine.Message) { l.drive.Input(m) }

func (l *loop) stop() {
	l.drive.Stop()
	close(l.done)
}

func (l *loop) begin(s *seq, now machine.Time) {
	// Ids are made from request ids; two requests that are called the same and
	// are in flight at once must still differ.
	for l.seqs[s.submit.ID] != nil || l.taken(s.submit.ID) {
		s.submit.ID++
	}
	s.submit.Remote.Handle = uint64(s.submit.ID)
	l.seqs[s.submit.ID] = s
	s.counted.Arrived, s.live = now, true
	l.eng.Input(now, &s.submit, &l.fx)
}

// abort ends completions that the engine still has.
func (l *loop) abort(seqs []*seq) {
	l.ask(func(now machine.Time) {
		for _, s := range seqs {
			if s.live {
				l.eng.Input(now, engine.Abort{ID: s.submit.ID}, &l.fx)
			}
		}
	})
}

// resume lets held completions go on.
func (l *loop) resume(seqs []*seq) {
	l.ask(func(now machine.Time) {
		for _, s := range seqs {
			if s.live {
				l.eng.Input(now, engine.Resume{ID: s.submit.ID}, &l.fx)
			}
		}
	})
}

// carry hands an effect to the request that it concerns.
func (l *loop) carry(_ machine.Time, fx *engine.Effects, i int) {
	f := &fx.List[i]
	s := l.seqs[f.Request]
	if s != nil {
		l.stats.Effect(fx, f, &s.counted)
	} else {
		l.stats.Effect(fx, f, nil)
	}
	switch f.Kind {
	case engine.Tokens:
		if s != nil {
			l.tokens(s, f)
		}
	case engine.Accepted: // nobody waits for it
	case engine.ControlDone, engine.ControlRefused:
		l.answered(f)
	case engine.KVHeld, engine.KVFreed, engine.KVPull, engine.KVRelease, engine.BlockStored, engine.BlockRemoved, engine.AllBlocksCleared:
		l.onKV(fx, f, s)
	case engine.Stepped:
		l.steps.Record(fx, f)
	default:
		if s != nil {
			l.milestone(s, f)
		}
	}
}

// delivered wakes each request that something was handed to once.
func (l *loop) delivered() {
	l.stats.Delivered()
	for _, id := range l.over {
		delete(l.seqs, id)
	}
	l.over = l.over[:0]
	for i, b := range l.touched {
		b.wake()
		l.touched[i] = nil
	}
	l.touched = l.touched[:0]
}

func (l *loop) tokens(s *seq, f *engine.Effect) {
	n := int(f.Count)
	s.tokens += n
	b := s.box
	b.mu.Lock()
	b.choices[s.choice].tokens = s.tokens
	b.mu.Unlock()
	l.touch(s, s.counted.EveryToken)
}

func (l *loop) milestone(s *seq, f *engine.Effect) {
	b := s.box
	c := &b.choices[s.choice]
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f.Kind {
	case engine.Rejected:
		b.rejected, b.code = true, f.Code
		l.end(s)
	case engine.PrefillStarted:
		if !b.started {
			b.started, b.startedAt, b.cached = true, f.At, int(f.Count)
		}
		l.touch(s, s.start)
	case engine.FirstToken:
		s.tokens = 1
		c.tokens = 1
		if b.firstAt == 0 {
			b.firstAt = f.At
		}
		l.prefilled(s)
		l.touch(s, s.first)
	case engine.Finished:
		l.prefilled(s)
		s.tokens = int(f.Count)
		c.tokens, c.finished, c.reason = int(f.Count), true, f.Reason
		b.endedAt = f.At
		l.end(s)
	case engine.Aborted:
		c.finished, c.aborted = true, true
		l.end(s)
	}
}

func (l *loop) end(s *seq) {
	s.live = false
	l.over = append(l.over, s.submit.ID) // blocks that it filled are still to be told of
	l.touched = append(l.touched, s.box)
}

// touch has the request woken at the end of the delivery, if it wants to be.
// A box may be listed twice: waking it again costs less than looking for it.
func (l *loop) touch(s *seq, wants bool) {
	if wants {
		l.touched = append(l.touched, s.box)
	}
}
