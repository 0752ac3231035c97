package modelserver

import (
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/serving"
)

// loop drives one engine in wall time. The engine is behind a mutex: whoever
// has a message for it gives it, plays what is due and hands out what happened,
// and one goroutine sleeps until the engine's next moment. A request that is
// due at once costs no switch to another goroutine.
//
// The engine's own timeline is absolute, so a loop that wakes late loses
// nothing: it plays what was due and the effects carry the times at which they
// were due.
type loop struct {
	clock func() machine.Time
	wake  chan struct{} // the engine's next moment has come nearer
	quit  chan struct{}
	done  chan struct{}

	// Everything below belongs to who holds mu. What it calls out to (onKV,
	// taken) must not enter the loop again.
	mu      sync.Mutex
	stopped bool
	eng     *engine.Engine
	stats   stats
	seqs    map[engine.RequestID]*seq
	fx      engine.Effects
	last    machine.Time // when the loop was last entered
	armed   machine.Time // what the goroutine sleeps until
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

// seq is one completion in the engine, and what the metrics tell of it.
type seq struct {
	*modelserver.Sequence
	request *modelserver.Request
	box     *box
	remote  *modelserver.RemoteKV // whose blocks to fetch
	stores  []uint64              // blocks to put into the external cache once they are computed
	loseKV  bool                  // a fault: the transfer fails

	arrived, scheduled, firstAt, lastAt machine.Time
	tokens                              int
	cached                              int
	before                              [itlBuckets]uint32 // steps that ended by its first token, by duration; where not every token is told
	live                                bool               // the engine has it
}

func newLoop(eng *engine.Engine, maxModelLen int, clock func() machine.Time) *loop {
	l := &loop{eng: eng, clock: clock, seqs: map[engine.RequestID]*seq{}, armed: machine.Never,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	l.prefilled = func(*seq) {}
	l.stats.init(maxModelLen)
	return l
}

// ask runs f with the engine in hand, and then plays and delivers what is due.
// It is false when the loop has ended.
func (l *loop) ask(f func(now machine.Time)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	now := l.enter()
	f(now)
	l.leave(now)
	return true
}

// catchUp plays and delivers what was due by now, of which some was worth no
// wake-up.
func (l *loop) catchUp(now machine.Time) {
	l.eng.Advance(now, &l.fx)
	l.deliver()
}

func (l *loop) enter() machine.Time {
	now := l.clock()
	if l.eng.Computing() { // since last: somebody enters at every step's end
		l.stats.rates.busySpan(l.last, now)
	}
	l.last = now
	return now
}

// leave plays what is due and sees to it that the goroutine wakes in time for
// what is not.
func (l *loop) leave(now machine.Time) {
	for {
		l.deliver()
		at, ok := l.eng.Next()
		if !ok {
			return
		}
		if at > now+soon {
			if at < l.armed {
				select {
				case l.wake <- struct{}{}:
				default: // it will look anyway
				}
			}
			return
		}
		now = max(now, at)
		l.eng.Advance(now, &l.fx)
	}
}

// soon is so near that sleeping for it takes longer.
const soon = 2 * machine.Microsecond

// submit gives a request's completions to the engine, all at one moment.
func (l *loop) submit(seqs []*seq) {
	l.ask(func(now machine.Time) {
		for _, s := range seqs {
			l.begin(s, now)
		}
	})
}

// send gives the engine a message.
func (l *loop) send(m engine.Message) { l.ask(func(now machine.Time) { l.eng.Input(now, m, &l.fx) }) }

func (l *loop) stop() {
	close(l.quit)
	<-l.done
}

// wakeGap is the least time between two wake-ups of the goroutine. Where a
// thousand requests each have their own rhythm something is due every few
// microseconds; that costs as much as sending it. A token is late by less than
// the gap, and the one after it is on time again.
const wakeGap = 500 * machine.Microsecond

// run sleeps until the engine's next moment, again and again.
func (l *loop) run() {
	defer close(l.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	before := -wakeGap // when it was last awake
	for {
		l.mu.Lock()
		now := l.enter()
		l.armed = 0 // this goroutine need not wake itself
		l.eng.Advance(now, &l.fx)
		l.leave(now)
		l.armed = machine.Never
		wait := time.Hour
		if at, ok := l.eng.Next(); ok {
			l.armed = at
			wait = min(wait, max(0, (max(at, before.Add(wakeGap))-now).Duration()))
		}
		before = now
		l.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-l.quit:
			l.mu.Lock()
			l.stopped = true
			l.mu.Unlock()
			return
		}
	}
}

func (l *loop) begin(s *seq, now machine.Time) {
	s.Rename(func(id engine.RequestID) bool { return l.seqs[id] != nil || l.taken(id) })
	s.Submit.Remote.Handle = uint64(s.Submit.ID)
	l.seqs[s.Submit.ID] = s
	s.arrived, s.live = now, true
	l.eng.Input(now, &s.Submit, &l.fx)
}

// abort ends completions that the engine still has.
func (l *loop) abort(seqs []*seq) {
	l.ask(func(now machine.Time) {
		for _, s := range seqs {
			if s.live {
				l.eng.Input(now, engine.Abort{ID: s.Submit.ID}, &l.fx)
			}
		}
	})
}

// resume lets held completions go on.
func (l *loop) resume(seqs []*seq) {
	l.ask(func(now machine.Time) {
		for _, s := range seqs {
			if s.live {
				l.eng.Input(now, engine.Resume{ID: s.Submit.ID}, &l.fx)
			}
		}
	})
}

// deliver hands the collected effects to the requests that they concern and
// wakes each of them once.
func (l *loop) deliver() {
	if len(l.fx.List) == 0 {
		return
	}
	l.stats.version++
	l.stats.active = l.fx.List[len(l.fx.List)-1].At
	for i := range l.fx.List {
		f := &l.fx.List[i]
		s := l.seqs[f.Request]
		switch f.Kind {
		case engine.Tokens:
			if s != nil {
				l.tokens(s, f)
			}
		case engine.Accepted: // nobody waits for it
		case engine.ControlDone, engine.ControlRefused:
			l.answered(f)
		case engine.KVHeld, engine.KVFreed, engine.KVPull, engine.KVRelease, engine.BlockStored, engine.BlockRemoved, engine.AllBlocksCleared:
			l.onKV(&l.fx, f, s)
		case engine.Stepped:
			l.stats.stepped(&l.fx, f)
			l.stats.settle()
			l.steps.Record(&l.fx, f)
		default:
			if s != nil {
				l.milestone(s, f)
			}
		}
	}
	l.stats.settle()
	l.fx.Reset()
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
	l.stats.tokens(s, f)
	s.tokens, s.lastAt = s.tokens+n, f.At
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
		if f.Code == engine.CodeFull {
			l.stats.refused++
		}
		l.end(s)
	case engine.PrefillStarted:
		if s.scheduled == 0 {
			s.scheduled, s.cached = f.At, int(f.Count)
			l.stats.prefillStarted(s, f)
		}
		if !b.Started {
			b.Started, b.StartedAt, b.Cached = true, f.At, int(f.Count)
		}
		l.touch(s, s.Start)
	case engine.FirstToken:
		s.tokens, s.firstAt, s.lastAt = 1, f.At, f.At
		c.Tokens = 1
		l.stats.firstToken(s, f)
		l.prefilled(s)
		l.touch(s, s.First)
	case engine.Preempted:
		l.stats.preemptions++
	case engine.Finished:
		l.stats.finished(s, f)
		l.prefilled(s)
		s.tokens = int(f.Count)
		c.Tokens, c.Finished, c.Reason = int(f.Count), true, f.Reason
		l.end(s)
	case engine.Aborted:
		l.stats.aborted(s, f)
		c.Finished, c.Aborted = true, true
		l.end(s)
	}
}

func (l *loop) end(s *seq) {
	s.live = false
	l.over = append(l.over, s.Submit.ID) // blocks that it filled are still to be told of
	l.touched = append(l.touched, s.box)
}

// touch has the request woken at the end of the delivery, if it wants to be.
// A box may be listed twice: waking it again costs less than looking for it.
func (l *loop) touch(s *seq, wants bool) {
	if wants {
		l.touched = append(l.touched, s.box)
	}
}
