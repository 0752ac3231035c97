package modelserver

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// Kind is what an Effect has the driver do.
type Kind uint8

// The kinds.
const (
	// ReadBody has the body read; Take goes on with what it became.
	ReadBody Kind = iota
	// Submit gives the Sequences to the engine.
	Submit
	// Resume lets those go on that wait after their first token.
	Resume
	// Abort ends those that the engine still has.
	Abort
	// Begin sends status 200 with the request's content type, and what Append
	// makes of it.
	Begin
	// Tokens sends what Append makes of what has come since; that may be nothing.
	Tokens
	// End sends what Append makes of the rest, and ends the response; where nothing
	// has begun it is the whole of it, with status 200.
	End
	// Refuse answers with Error, in place of everything.
	Refuse
	// Bodyless answers with Status and no body.
	Bodyless
	// Fail tells Error inside the response that has begun, and ends it.
	Fail
	// Cut breaks the connection: abruptly with Reset, or by closing it.
	Cut
	// Leave ends the request without a word: the peer is gone.
	Leave
)

// Effect is one thing to do. They are carried out in order, and Append is called
// for each that sends something before the Response is told anything more.
type Effect struct {
	At     machine.Time
	Kind   Kind
	Status int
	Error  *openai.Error
	Reset  bool
	// Echo is the metadata that goes back with the End of a held request.
	Echo   string
	echoes bool
}

// Due is when the effect was due.
func (e Effect) Due() machine.Time { return e.At }

// Effects is a Response's buffer.
type Effects = machine.Effects[Effect]

// Progress is all that has happened to a request, up to now. It is told whole
// each time, so that who is late tells of several things at once and no queue
// grows.
type Progress struct {
	Rejected bool        // the engine did not take it,
	Code     engine.Code // for this reason

	Started   bool // the engine has begun the prompt
	StartedAt machine.Time
	Cached    int // prompt tokens found in the prefix cache
	// Fetched is how long it took to fetch KV from another server, and FetchedBytes how much
	// that was on the wire; 0 where none was.
	Fetched      machine.Time
	FetchedBytes int64
	// When the first token was due, and the end of the last choice, where whoever
	// tells of it may be late; 0 is now.
	FirstAt, EndedAt machine.Time

	Part2Begun bool   // bytes came behind part 1
	Part2      bool   // part 2 and the end of the request are here
	Metadata   string // what part 2 says
	Violation  string // how the body broke the contract of held-open requests
	Gone       string // why the peer is gone, if it is

	Kept *Kept // blocks kept for another server

	// Choices are how far the completions are. The Response looks at them until it
	// is told again.
	Choices []Choice
}

// GotKV is told of a KV cache that has come from another server.
func (p *Progress) GotKV(took machine.Time, bytes int64) {
	p.Fetched = max(p.Fetched, took)
	p.FetchedBytes += bytes
}

// Heard notes what the engine did with a completion, and reports whether the request is further now. FirstAt and
// EndedAt are left to a driver that may be late.
func (p *Progress) Heard(q *Sequence, f *engine.Effect) (further bool) {
	c := &p.Choices[q.Choice]
	switch f.Kind {
	case engine.Rejected:
		p.Rejected, p.Code = true, f.Code
	case engine.PrefillStarted:
		if !p.Started { // it comes again after a preemption
			p.Started, p.StartedAt, p.Cached = true, f.At, int(f.Count)
		}
	case engine.FirstToken:
		c.Tokens = 1
	case engine.Tokens:
		c.Tokens = int(f.First) + int(f.Count)
	case engine.Finished:
		c.Tokens, c.Finished, c.Reason = int(f.Count), true, f.Reason
	case engine.Aborted:
		c.Finished, c.Aborted = true, true
	default:
		return false
	}
	return true
}

// started are the details of the prompt's beginning.
func (p *Progress) started() []record.Detail {
	details := []record.Detail{record.D("cached_tokens", p.Cached)}
	if p.FetchedBytes > 0 {
		details = append(details, record.Fetched(p.Fetched, p.FetchedBytes)...)
	}
	return details
}

// Choice is one completion's progress.
type Choice struct {
	Tokens   int // output tokens so far
	Finished bool
	Aborted  bool
	Reason   engine.Reason
}

// ResponseOptions are those of one Response.
type ResponseOptions struct {
	Head     *Head
	API      *API
	Fault    lifecycle.Fault
	Endpoint string // of the server, in the record
	Held     bool   // the request is held open
	Recorder record.Recorder
	// Brief leaves out tokens between the first and the end: nobody sees when they
	// come. Silent leaves their text out, too: nobody reads it.
	Brief, Silent bool
}

// Response is one request's way through a server: a
// machine.Machine[*Progress, *Effects] that is begun with Open, Body and Take.
type Response struct {
	reader    *Reader
	lifecycle lifecycle.Request
	api       *API
	fault     lifecycle.Fault
	brief     bool
	silent    bool
	below     bool // the cache holds too little of the prompt: that is the answer
	asked     bool // for the finish reason of such an answer
	rec       record.Recorder

	traceParent string

	req   *Request
	seqs  []Sequence
	p     Progress
	bytes int
	usage openai.Usage
	sent  []int  // tokens of each choice that the encoder has had
	close []bool // the encoder has had the choice's end
	token Token  // the one being encoded

	now     machine.Time
	wake    machine.Time // when waits ends
	waits   wait
	painted bool
	started bool
	began   bool // status and first token have left
	part2   bool
	part2At machine.Time
	over    bool
	told    bool // a piece of it was described

	// one is what nearly every request needs, in the same piece of memory; the
	// slices above stand on it where there is one choice.
	one struct {
		seq   [1]Sequence
		said  content
		sent  [1]int
		close [1]bool
	}
}

// wait is what a Response waits for by the clock.
type wait uint8

const (
	nothing  wait = iota
	delay         // a fault
	painting      // a picture
)

// Init makes r the response to a request whose headers are here.
//
//go:noinline
func (r *Response) Init(rd *Reader, o *ResponseOptions) {
	// Field by field and not inlined: copies would stand on the stack of all that follows.
	*r = Response{}
	r.reader, r.api, r.fault, r.brief, r.silent, r.rec, r.asked, r.traceParent = rd, o.API, o.Fault, o.Brief, o.Silent,
		o.Recorder, o.Head.Threshold, o.Head.TraceParent
	r.lifecycle = *lifecycle.New(
		lifecycle.Options{Request: o.Head.RequestID, Attempt: o.Head.Attempt, Endpoint: o.Endpoint, Held: o.Held,
			Recorder: o.Recorder})
}

// Held tells whether the request is held open.
func (r *Response) Held() bool { return r.lifecycle.Held() }

// Over is true once nothing more will happen.
func (r *Response) Over() bool { return r.over }

// Request is what was read; nil before Take.
func (r *Response) Request() *Request { return r.req }

// Sequences are what the engine is asked for.
func (r *Response) Sequences() []Sequence { return r.seqs }

// Open is told first of all, before any of the body is read. violation is what is
// wrong with the headers of a held request, if anything.
func (r *Response) Open(now machine.Time, violation string, fx *Effects) {
	switch {
	case r.fault[lifecycle.AtConnect].Do != 0:
		r.over = true // nothing was read, so there is nothing to report
		fx.Add(Effect{At: now, Kind: Cut, Reset: r.fault[lifecycle.AtConnect].Do == lifecycle.Reset})
	case violation != "":
		r.do(now, r.lifecycle.Violation(now, violation), fx)
	}
}

// Body is told when the whole of a plain request, or part 1 of a held one, is
// here, and how long it is.
func (r *Response) Body(now machine.Time, bytes int, fx *Effects) {
	r.bytes = bytes
	if d := r.fault[lifecycle.AtBody].For; d > 0 && !r.over {
		r.waits, r.wake = delay, now.Add(machine.FromDuration(d))
		return
	}
	r.readable(now, fx)
}

// readable carries out the faults that come before anything is read.
func (r *Response) readable(now machine.Time, fx *Effects) {
	if r.over {
		return
	}
	switch f := r.fault[lifecycle.AtAnswer]; f.Do {
	case lifecycle.Answer:
		e := openai.Errorf(f.N, "", "A fault was asked for: status %d.", f.N)
		if f.Failure != "" {
			e = openai.Failure(f.Failure, r.reader.Models[0])
		}
		if f.N == 204 || f.N == 304 {
			r.refuse(now, e, Effect{Kind: Bodyless, Status: f.N}, fx)
		} else {
			r.refuse(now, e, Effect{Kind: Refuse, Error: e}, fx)
		}
	case lifecycle.Empty:
		r.refuse(now, openai.Errorf(200, "", "A fault was asked for: no body."), Effect{Kind: Bodyless, Status: 200},
			fx)
	default:
		fx.Add(Effect{At: now, Kind: ReadBody})
	}
}

// refuse ends a request of which nothing has been answered.
func (r *Response) refuse(now machine.Time, why *openai.Error, answer Effect, fx *Effects) {
	r.lifecycle.Rejected(now, why.Status, why.Message)
	r.over, answer.At = true, now
	fx.Add(answer)
}

// Take is told what the body became: a request, or the error to answer with. The
// error may come before the body is whole.
func (r *Response) Take(now machine.Time, q *Request, bad *openai.Error, fx *Effects) {
	if r.over {
		return
	}
	if bad == nil {
		bad = r.build(q)
	}
	if bad != nil {
		r.refuse(now, bad, Effect{Kind: Refuse, Error: bad}, fx)
		return
	}
	var details []record.Detail
	if r.rec != nil {
		details = []record.Detail{record.D("model", q.Model), record.D("prompt_tokens", q.PromptTokens()),
			record.D("stream", q.Stream)}
		if r.traceParent != "" {
			details = append(details, record.D(tracing.Header, r.traceParent))
		}
	}
	r.do(now, r.lifecycle.Received(now, r.bytes, details...), fx)
}

// build makes ready what the engine is asked for and what will be said.
func (r *Response) build(q *Request) *openai.Error {
	r.req = q
	n := q.Choices()
	if n == 1 {
		r.sent, r.close, r.seqs = r.one.sent[:], r.one.close[:], r.one.seq[:]
	} else {
		r.sent, r.close, r.seqs = make([]int, n), make([]bool, n), make([]Sequence, n)
	}
	counts := r.fault[lifecycle.AtTokens].Do != 0
	for i := range n {
		s := &r.seqs[i]
		s.Choice, s.prompt, s.said = i, &q.Prompts[i/q.N], &r.one.said
		s.Every = counts || q.Stream && !r.brief
		s.First = counts || q.Stream || r.Held() || r.rec != nil
		s.Start = r.rec != nil || r.fault[lifecycle.AtPrefill].Do != 0 || r.asked || q.KV.Threshold > 0
		if n > 1 {
			s.said = new(content)
		}
		if bad := r.reader.fillSequence(q, s); bad != nil {
			return bad
		}
		s.Submit.HoldAfterFirst, s.LoseKV = r.Held(), r.fault[lifecycle.AtTransfer].Do != 0
	}
	r.usage = openai.Usage{PromptTokens: q.PromptTokens(), Details: r.reader.PromptTokensDetails}
	return nil
}

// Next is when the response wants to be advanced.
func (r *Response) Next() (machine.Time, bool) { return r.wake, r.waits != nothing && !r.over }

// Advance plays what is due by now.
func (r *Response) Advance(now machine.Time, fx *Effects) {
	r.now = max(r.now, now)
	if r.waits == nothing || r.wake > r.now || r.over {
		return
	}
	waited := r.waits
	r.waits = nothing
	if waited == delay {
		r.readable(r.wake, fx)
		return
	}
	r.painted = true
	r.step(r.wake, fx)
}

// Input takes the news of a request.
func (r *Response) Input(now machine.Time, p *Progress, fx *Effects) {
	if r.Advance(now, fx); r.over {
		return // what ends it was due before, and is said of what was known then
	}
	r.p = *p
	r.step(r.now, fx)
}

// step does what the request's progress asks for.
func (r *Response) step(now machine.Time, fx *Effects) {
	p := &r.p
	switch {
	case r.over:
		return
	case p.Gone != "":
		r.do(now, r.lifecycle.PeerGone(now, p.Gone), fx)
		return
	case p.Violation != "":
		r.do(now, r.lifecycle.Violation(now, p.Violation), fx)
		return
	case r.req == nil:
		return
	case p.Rejected:
		r.reject(now, fx)
		return
	}
	if p.Started && !r.started && r.start(now, fx) {
		return
	}
	if p.Part2Begun && !r.began && r.do(now, r.lifecycle.Part2Begun(now), fx) {
		return
	}
	first := !r.began && r.tells(0) > 0
	if first {
		if r.do(now, r.lifecycle.FirstToken(due(r.p.FirstAt, now), r.seqs[0].said.text(0)), fx) {
			return
		}
		if r.fault[lifecycle.AtFirstToken].Do != 0 && r.Held() {
			r.end(now, "fault: ended before part 2", Effect{Kind: End}, fx)
			return
		}
	}
	if p.Part2 && !r.part2 {
		r.part2, r.part2At = true, now
		if r.do(now, r.lifecycle.Part2(now, p.Metadata), fx) {
			return
		}
	}
	r.progress(now, first, fx)
}

func due(at, now machine.Time) machine.Time {
	if at == 0 {
		return now
	}
	return at
}

// start is the engine beginning the prompt; it is true where that ends the
// request.
func (r *Response) start(now machine.Time, fx *Effects) bool {
	r.started = true
	r.usage.CachedTokens = r.p.Cached
	if r.rec != nil {
		r.lifecycle.PrefillStarted(r.p.StartedAt, r.p.started()...)
	}
	why, then := "", Effect{Kind: End}
	switch {
	case r.asked, r.req.KV.Threshold > 0 && float64(r.p.Cached) < r.req.KV.Threshold*float64(r.usage.PromptTokens):
		why, r.below = "the cache holds less of the prompt than cache_hit_threshold", true
	case r.fault[lifecycle.AtPrefill].Do != 0:
		why, then = "fault: died in prefill",
			Effect{Kind: Cut, Reset: r.fault[lifecycle.AtPrefill].Do == lifecycle.Reset}
	default:
		return false
	}
	r.end(now, why, then, fx)
	return true
}

// end ends a request that the engine still has, in a way that its peer is told
// nothing of.
func (r *Response) end(now machine.Time, why string, then Effect, fx *Effects) {
	r.lifecycle.PeerGone(now, why)
	r.over, then.At = true, now
	fx.Add(Effect{At: now, Kind: Abort})
	fx.Add(then)
}

// limit is how many tokens of each choice a fault lets be sent; below 0 all.
func (r *Response) limit() int {
	switch f := r.fault[lifecycle.AtTokens]; {
	case f.Do == lifecycle.Stall:
		return f.N
	case f.Do != 0 && r.inPieces():
		return max(1, f.N)
	}
	return -1
}

// tells is how many tokens of a choice may be sent.
func (r *Response) tells(choice int) int {
	n := 0
	if choice < len(r.p.Choices) {
		n = r.p.Choices[choice].Tokens
	}
	if limit := r.limit(); limit >= 0 {
		n = min(n, limit)
	}
	return n
}

// inPieces is whether anything of the response leaves before its end.
func (r *Response) inPieces() bool { return r.req.Stream || r.Held() }

// progress sends what is new, unless that has left with the first token, and ends
// the request when all choices have ended.
func (r *Response) progress(now machine.Time, first bool, fx *Effects) {
	total, reason, whole := 0, engine.ReasonNone, true
	for i := range r.p.Choices {
		c := &r.p.Choices[i]
		whole = whole && c.Finished
		total += c.Tokens
		switch c.Reason {
		case engine.ReasonCrash, engine.ReasonKVFailed, engine.ReasonSleep:
			reason = c.Reason
		}
		if c.Aborted {
			reason = engine.ReasonCrash
		}
	}
	limited := len(r.p.Choices) > 0 && r.limit() >= 0 && r.p.Choices[0].Tokens >= r.limit()
	// The last tokens leave together with what ends the response.
	last := whole && reason == engine.ReasonNone && !limited
	if r.req.Stream && r.began && !first && !last && (!r.brief || limited) {
		fx.Add(Effect{At: now, Kind: Tokens})
	}
	switch {
	case limited && r.fault[lifecycle.AtTokens].Do == lifecycle.Stall:
		return
	case limited && r.began:
		r.end(now, "fault: reset", Effect{Kind: Cut, Reset: r.fault[lifecycle.AtTokens].Do == lifecycle.Reset}, fx)
		return
	case !whole:
		return
	case reason != engine.ReasonNone:
		status, text := lifecycle.Failure(reason)
		r.do(now, r.lifecycle.Failed(now, status, text), fx)
		return
	}
	if d := r.reader.ImageTime; r.req.Image && d != nil && !r.painted {
		if r.waits == nothing {
			draw := machine.DrawFor(r.reader.Seed, "server", "image time", r.req.Key)
			r.waits, r.wake = painting, now.Add(d.SampleTime(&draw))
		}
		return
	}
	r.usage.CompletionTokens = total
	r.do(now, r.lifecycle.Generated(max(due(r.p.EndedAt, now), r.part2At), total, string(r.reason(0))), fx)
}

// reject answers a request that the engine did not take.
func (r *Response) reject(now machine.Time, fx *Effects) {
	e := lifecycle.Rejection(r.p.Code, r.req.Model)
	if r.p.Code == engine.CodeFull && r.reader.FullStatus != 0 {
		e = openai.Errorf(r.reader.FullStatus, "", "%s", e.Message)
	}
	if r.lifecycle.Rejected(now, e.Status, e.Message).Do == lifecycle.Nothing {
		return
	}
	r.over = true
	fx.Add(Effect{At: now, Kind: Abort}) // some of its completions may have been taken
	fx.Add(Effect{At: now, Kind: Refuse, Error: e})
}

// do carries out one effect of the lifecycle, and is true when the request is over.
func (r *Response) do(now machine.Time, e lifecycle.Effect, fx *Effects) bool {
	if e.AbortEngine {
		fx.Add(Effect{At: now, Kind: Abort})
	}
	out := Effect{At: now}
	switch e.Do {
	case lifecycle.Nothing:
		return false
	case lifecycle.Submit:
		out.Kind = Submit
	case lifecycle.Resume:
		out.Kind = Resume
	case lifecycle.SendFirst:
		r.began = true
		if !r.inPieces() {
			return false
		}
		out.Kind = Begin
	case lifecycle.SendEnd:
		r.over, out.Kind = true, End
		out.Echo, out.echoes = e.Echo, r.Held()
	case lifecycle.Refuse:
		r.over, out.Kind, out.Error = true, Refuse, told(e)
	case lifecycle.SendError:
		r.over, out.Kind, out.Error = true, Fail, told(e)
	case lifecycle.Drop:
		r.over, out.Kind = true, Leave
	}
	fx.Add(out)
	return r.over
}

// told is what the client is told of an effect that ends its request early.
// The lifecycle's only 400 is a violation of the held-open request's contract.
func told(e lifecycle.Effect) *openai.Error {
	err := openai.Errorf(e.Status, "", "%s", e.Reason)
	if e.Status == 400 {
		err.Type = held.ViolationType
	}
	return err
}

// reason is why choice number i has said no more.
func (r *Response) reason(i int) openai.FinishReason {
	if c := &r.p.Choices[i]; c.Finished && c.Reason == engine.ReasonStop {
		return r.seqs[i].said.stopReason()
	}
	return openai.FinishLength
}
