package modelserver

import (
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
)

// loop drives one engine in wall time: one goroutine that waits for a message
// or for the engine's next moment. The engine's own timeline is absolute, so a
// loop that wakes late loses nothing: it plays what was due and the effects
// carry the times at which they were due.
type loop struct {
	clock func() machine.Time
	eng   *engine.Engine
	stats stats
	seqs  map[engine.RequestID]*seq
	fx    engine.Effects
	// taken says whether an id is in use by blocks held for another server.
	taken func(engine.RequestID) bool
	// onKV takes what the engine says of KV blocks: events and transfers.
	onKV    func(*engine.Effects, *engine.Effect, *seq)
	waiting []controlWait // who waits for the answer to a Control
	touched []*box
	over    []engine.RequestID // completions that ended in this delivery

	mu    sync.Mutex
	inbox []note
	spare []note
	wake  chan struct{}
	quit  chan struct{}
	done  chan struct{}
}

// seq is one completion in the engine: the unit that the engine schedules.
type seq struct {
	submit engine.Submit
	box    *box
	choice int
	// everyToken is true when the request's goroutine wants to be woken by
	// every token, first when it wants to be by the first.
	everyToken, first, start bool
	params                   seqParams

	arrived, scheduled, firstAt, lastAt machine.Time
	tokens                              int
	cached                              int
	live                                bool // the engine has it
}

// seqParams are what the metrics tell of a request beside its times.
type seqParams struct {
	n         int
	maxTokens int
	adapter   string
	tokens    func(first, count int) []uint32 // ids of the sequence's tokens, for KV events
	remote    *remoteKV                       // whose blocks to fetch
	loseKV    bool                            // a fault: the transfer fails
}

// note is one message to the loop.
type note struct {
	at     machine.Time
	submit *seq
	msg    engine.Message
	do     func(now machine.Time)
}

func newLoop(eng *engine.Engine, maxModelLen int, clock func() machine.Time) *loop {
	l := &loop{eng: eng, clock: clock, seqs: map[engine.RequestID]*seq{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	l.stats.init(maxModelLen)
	return l
}

func (l *loop) post(n note) {
	n.at = l.clock()
	l.mu.Lock()
	l.inbox = append(l.inbox, n)
	l.mu.Unlock()
	l.rouse()
}

func (l *loop) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// submit gives a request's completions to the engine, all at one moment.
func (l *loop) submit(seqs []*seq) {
	at := l.clock()
	l.mu.Lock()
	for _, s := range seqs {
		l.inbox = append(l.inbox, note{at: at, submit: s})
	}
	l.mu.Unlock()
	l.rouse()
}

// send gives the engine a message.
func (l *loop) send(m engine.Message) { l.post(note{msg: m}) }

// ask runs f in the loop and waits for it. It is false when the loop has
// ended, or ends first.
func (l *loop) ask(f func(now machine.Time)) bool {
	ran := make(chan struct{})
	l.post(note{do: func(now machine.Time) { f(now); close(ran) }})
	select {
	case <-ran:
		return true
	case <-l.done:
		return false
	}
}

func (l *loop) stop() {
	close(l.quit)
	<-l.done
}

func (l *loop) run() {
	defer close(l.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	last := l.clock()
	for {
		now := l.clock()
		if l.eng.InFlight() > 0 {
			l.stats.rates.busySpan(last, now)
		}
		last = now
		l.takeNotes(now)
		wait := time.Hour
		if at, ok := l.eng.Next(); ok {
			if at <= now {
				l.eng.Advance(now, &l.fx)
				l.deliver()
				continue
			}
			wait = min(wait, (at - now).Duration())
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-l.quit:
			return
		}
	}
}

func (l *loop) takeNotes(now machine.Time) {
	l.mu.Lock()
	notes := l.inbox
	l.inbox = l.spare[:0]
	l.mu.Unlock()
	for i := range notes {
		n := &notes[i]
		switch {
		case n.submit != nil:
			l.begin(n.submit, n.at, now)
		case n.do != nil:
			n.do(now)
		default:
			l.eng.Input(now, n.msg, &l.fx)
		}
		*n = note{}
	}
	l.spare = notes
	if len(notes) > 0 {
		l.deliver()
	}
}

func (l *loop) begin(s *seq, at, now machine.Time) {
	// Ids are made from request ids; two requests that are called the same and
	// are in flight at once must still differ.
	for l.seqs[s.submit.ID] != nil || l.taken(s.submit.ID) {
		s.submit.ID++
	}
	s.submit.Remote.Handle = uint64(s.submit.ID)
	l.seqs[s.submit.ID] = s
	s.arrived, s.live = at, true
	l.eng.Input(now, &s.submit, &l.fx)
}

// abort ends a completion, if the engine still has it.
func (l *loop) abort(s *seq) {
	l.post(note{do: func(now machine.Time) {
		if s.live {
			l.eng.Input(now, engine.Abort{ID: s.submit.ID}, &l.fx)
		}
	}})
}

// resume lets a held completion go on.
func (l *loop) resume(s *seq) {
	l.post(note{do: func(now machine.Time) {
		if s.live {
			l.eng.Input(now, engine.Resume{ID: s.submit.ID}, &l.fx)
		}
	}})
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
		case engine.ControlDone, engine.ControlRefused:
			l.answered(f)
		case engine.KVHeld, engine.KVFreed, engine.KVPull, engine.KVRelease, engine.BlockStored, engine.BlockRemoved, engine.AllBlocksCleared:
			l.onKV(&l.fx, f, s)
		case engine.Stepped:
			l.stats.stepped(f)
		default:
			if s != nil {
				l.milestone(s, f)
			}
		}
	}
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
	b.choices[s.choice].tokens = s.tokens
	b.mu.Unlock()
	l.touch(s, s.everyToken)
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
		if s.scheduled == 0 {
			s.scheduled, s.cached = f.At, int(f.Count)
			l.stats.prefillStarted(s, f)
		}
		if !b.started {
			b.started, b.startedAt, b.cached = true, f.At, int(f.Count)
		}
		l.touch(s, s.start)
	case engine.FirstToken:
		s.tokens, s.firstAt, s.lastAt = 1, f.At, f.At
		c.tokens = 1
		if b.firstAt == 0 {
			b.firstAt = f.At
		}
		l.stats.firstToken(s, f)
		l.touch(s, s.first)
	case engine.Preempted:
		l.stats.preemptions++
	case engine.Finished:
		l.stats.finished(s, f)
		s.tokens = int(f.Count)
		c.tokens, c.finished, c.reason = int(f.Count), true, f.Reason
		l.end(s)
	case engine.Aborted:
		l.stats.aborted(s, f)
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
