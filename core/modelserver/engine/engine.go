package engine

import "github.com/windtunnel/windtunnel/core/machine"

// life decides whether the engine accepts requests.
type life uint8

const (
	awake life = iota
	draining
	asleep
	dead
)

// latest is the end of an engine's time, 146 years. Beyond it, sums of times could overflow.
const latest machine.Time = 1 << 62

// Engine is one model server's engine. It is not safe for concurrent use: its driver serializes the calls.
type Engine struct {
	cfg  Config
	now  machine.Time
	life life
	// drainDone: the end of the current drain was reported.
	drainDone bool
	stats     Stats

	reqs     []request
	unused   []int32
	arrivals uint64
	ids      machine.Few[RequestID, int32]

	holds
	loras loras

	// Batches. Between runs the engine is at boundary. pending states that it has something to compose there as soon as
	// time advances.
	pool     *pool
	queue    waiting
	batch    batch
	run      run
	pending  bool
	sending  int  // running transfers that block the engine's next step
	blocked  bool // the first in the queue waits for blocks
	ready    int  // requests in the queue that have blocks reserved
	boundary machine.Time
	pace     Fixed // of steps, in percent of the timer's; 0 is 100
	frac     Fixed // fraction of a nanosecond left over by the steps so far
	places   int   // MaxNumSeqs, or 1
	padding  int   // finished requests of a static batch
	loading  Fixed // time that the step being composed spends on adapters and on KV from host memory
	cpuBlock Fixed // time to bring one block back from host memory

	composing

	observed

	timeline timeline // BatchingIndependent
}

// holds are the KV caches kept for other engines.
type holds struct {
	held     map[uint64]handle
	expiries []expiry
	expired  int // earlier expiries are gone
}

// composing holds the parts of the step that is being composed.
type composing struct {
	step     Step
	fills    []int32 // requests that compute their prompt in this step
	starved  []int32 // decoding requests that get no token in this step
	order    []int32 // scratch
	aborting []ticket
	resuming []ticket
}

// observed is the last reported load.
type observed struct {
	load Load
	seen uint64   // batch.admissions at the last observation of the load
	late []ticket // decoding requests that missed a step
}

// ticket refers to a request that may be gone when the ticket is read.
type ticket struct {
	slot       int32
	generation uint32
}

// New returns an engine that is idle at time 0. The error lists every invalid field.
func New(cfg Config) (*Engine, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, places: cfg.MaxNumSeqs}
	if cfg.Batching == BatchingNone {
		e.places = 1
	}
	if !e.independent() {
		e.pool = newPool(&cfg)
		e.cpuBlock = FixedNanos(float64(cfg.BlockSize) * float64(cfg.KVBytesPerToken) * 1e9 / float64(cfg.CPUBandwidth))
	}
	e.empty()
	e.resetAdapters()
	return e, nil
}

// empty removes all requests and all KV.
func (e *Engine) empty() {
	e.reqs, e.unused = e.reqs[:0], e.unused[:0]
	e.ids, e.held = machine.Few[RequestID, int32]{}, map[uint64]handle{}
	e.expiries, e.expired = e.expiries[:0], 0
	e.queue, e.run, e.timeline = waiting{}, run{}, timeline{}
	e.batch = batch{first: none, last: none, bucket: make([]int32, e.cfg.BlockSize)}
	e.pending, e.blocked, e.ready, e.padding, e.frac = false, false, 0, 0, 0
	e.aborting, e.resuming, e.late = e.aborting[:0], e.resuming[:0], e.late[:0]
	e.stats.Paused, e.stats.Pulling = 0, 0
	clear(e.loras.running)
	if e.pool != nil {
		e.pool.clear()
	}
}

func (e *Engine) independent() bool { return e.cfg.Batching == BatchingIndependent }

// Config returns the configuration with its defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// OnlyNow is for a driver that needs no history. The engine then reports no steps, and removes content that no request
// can look up any more from its blocks at once (KVBlocksHeld).
func (e *Engine) OnlyNow() {
	e.cfg.ReportSteps = false
	if e.pool != nil {
		e.pool.forgets = e.pool.offload.total == 0 && e.pool.log == nil
	}
}

// Now returns the engine's own time: the latest that it was given.
func (e *Engine) Now() machine.Time { return e.now }

// InFlight returns the number of requests in the engine.
func (e *Engine) InFlight() int { return e.ids.Len() }

// Next returns the time at which the engine next has effects or decisions, if there is one.
func (e *Engine) Next() (machine.Time, bool) {
	at := e.nextExpiry()
	switch {
	case e.independent():
		at = min(at, e.timeline.next(e.reqs))
	case e.run.active:
		end := e.run.end
		if len(e.batch.watched) > 0 {
			end = e.run.schedule.End(e.run.done + 1)
		}
		at = min(at, end)
	case e.pending && e.sending == 0:
		at = min(at, e.boundary+1)
	}
	return at, at != machine.Never
}

// Advance processes everything that is due up to now.
func (e *Engine) Advance(now machine.Time, fx *Effects) {
	now = min(max(now, e.now), latest)
	for e.playNext(now, fx) {
	}
	e.now = now
}

// playNext processes the next event that is due by now, if there is one. At equal times, the engine ends the step
// before it expires a handle.
func (e *Engine) playNext(now machine.Time, fx *Effects) bool {
	expiry := e.nextExpiry()
	limit := min(now, expiry)
	switch {
	case e.independent():
		if at, quiet := e.timeline.due(e.reqs); at <= limit {
			e.playTimeline(quiet, fx)
			e.observe(at, 0)
			return true
		}
	case e.run.active:
		if e.run.end <= limit {
			e.finishRun(fx)
			return true
		}
		if len(e.batch.watched) > 0 {
			e.catchUp(limit)
			e.report(fx)
		}
	case e.pending && e.sending == 0 && e.boundary < limit:
		e.compose(fx)
		e.observeStep(e.boundary, e.used())
		return true
	}
	if expiry > now {
		return false
	}
	e.now = expiry
	e.catchUp(expiry)
	e.cut(fx)
	used := e.used()
	e.release(expiry, e.expiries[e.expired].handle, ReasonTimeout, fx)
	e.observe(expiry, used)
	return true
}

// Input processes everything that was due before now, and then the message.
func (e *Engine) Input(now machine.Time, m Message, fx *Effects) {
	e.Advance(now, fx)
	e.catchUp(e.now)
	e.cut(fx)
	used := e.used()
	switch m := m.(type) {
	case *Submit:
		e.submit(m, fx)
	case Abort:
		if s, ok := e.ids.Get(m.ID); ok {
			e.abort(s, fx)
		}
	case Resume:
		if s, ok := e.ids.Get(m.ID); ok {
			e.resume(s)
		}
	case Control:
		e.control(m, fx)
	case KVArrived:
		if s, ok := e.ids.Get(m.ID); ok && e.independent() {
			e.arrivedTimeline(s, fx)
		} else if ok {
			e.arrived(s, fx)
		}
	case KVFailed:
		if s, ok := e.ids.Get(m.ID); ok && e.independent() {
			e.failedTimeline(s, fx)
		} else if ok {
			e.failed(s, fx)
		}
	case Look:
		if e.run.active {
			e.disturb()
		}
		return
	case KVSending:
		e.send(m.By)
	case KVReleased:
		e.release(e.now, m.Handle, ReasonStop, fx)
	}
	e.observe(e.now, used)
}

func (e *Engine) submit(m *Submit, fx *Effects) {
	if code := e.check(m); code != CodeNone {
		e.stats.Rejected++
		f := fx.add(e.now, Rejected, m.ID)
		f.Code, f.Count = code, int32(min(m.PromptTokens, maxTokens))
		return
	}
	s := e.slot(m)
	e.stats.Accepted++
	fx.add(e.now, Accepted, m.ID)
	if e.independent() {
		e.submitTimeline(s, m, fx)
		return
	}
	e.wait(s)
	// A run that the new request could not join anyway need not be cut.
	full := e.batch.size >= e.places || e.cfg.Batching == BatchingStatic
	behind := e.blocked && e.queue.at(e.queue.len()-1) == s
	if !e.run.active || !full && !behind {
		e.disturb()
	}
}

func (e *Engine) abort(s int32, fx *Effects) {
	r := &e.reqs[s]
	switch {
	case e.independent():
		e.abortTimeline(s, fx)
	case !e.run.active:
		e.abandon(e.now, s, fx)
		e.freed()
	case !r.abort:
		r.abort = true
		e.aborting = append(e.aborting, ticket{s, r.generation})
		e.disturb()
	}
}

func (e *Engine) resume(s int32) {
	r := &e.reqs[s]
	r.hold = false
	switch {
	case e.independent():
		e.resumeTimeline(s)
	case r.phase == phaseParked:
		e.stats.Paused--
		e.wait(s)
		e.disturb()
	case r.phase != phasePaused:
	case e.run.active:
		e.resuming = append(e.resuming, ticket{s, r.generation})
		e.disturb()
	default:
		e.stats.Paused--
		e.startDecode(s)
		e.disturb()
	}
}

// finish ends a request for a reason of the engine's own.
func (e *Engine) finish(at machine.Time, s int32, why Reason, fx *Effects) {
	r := &e.reqs[s]
	if r.holdKV && (why == ReasonStop || why == ReasonLength) {
		e.holdKV(at, r, fx)
	}
	e.stats.Finished++
	f := fx.add(at, Finished, r.id)
	f.Reason, f.Count = why, r.made
	e.forget(s)
	e.drained(at, fx)
}

// drained reports the end of a drain when the last request is gone.
func (e *Engine) drained(at machine.Time, fx *Effects) {
	if e.life == draining && e.ids.Len() == 0 && !e.drainDone {
		e.drainDone = true
		fx.add(at, ControlDone, 0).Op = OpDrain
	}
}
