package modelserver

import (
	"cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// Kind is an action of the driver.
type Kind uint8

// The values of Kind.
const (
	// ReadBody reads the body. The driver then calls Take with the parsed request.
	ReadBody Kind = iota
	// Submit gives the Sequences to the engine.
	Submit
	// Resume continues the Sequences that pause after their first token.
	Resume
	// Abort ends the Sequences that the engine still has.
	Abort
	// BeginAnswer sends status 200, the request's content type and the bytes from Append.
	BeginAnswer
	// Tokens sends the bytes from Append for the tokens since the last call; there may be none.
	Tokens
	// End sends the bytes from Append for the rest, and ends the response. If nothing was sent before, it is the whole
	// response, with status 200.
	End
	// Refuse answers with Error. Nothing else has been sent.
	Refuse
	// Bodyless answers with Status and no body.
	Bodyless
	// Fail sends Error inside a response that has begun, and ends it.
	Fail
	// Cut breaks the connection: with a TCP reset if Reset is set, else by closing it.
	Cut
	// Leave ends the request and sends nothing, because the peer is gone.
	Leave
)

// Effect is one action. The driver carries out effects in order. For each effect that sends something it calls Append
// before it gives the Response any other input.
type Effect struct {
	At     machine.Time
	Kind   Kind
	Status int
	Error  *openai.Error
	Reset  bool
	// the metadata to return with the End of a held request
	Echo   string
	echoes bool
}

// Due returns the time at which the effect was due.
func (e Effect) Due() machine.Time { return e.At }

// Effects collects a Response's effects.
type Effects = machine.Effects[Effect]

// Progress is the whole state of a request so far. Each input is the whole state, so a late driver reports several
// changes at once, and no queue grows.
type Progress struct {
	Rejected bool        // the engine did not take it,
	Code     engine.Code // for this reason

	Started   bool // the engine has begun the prompt
	StartedAt machine.Time
	Cached    int // prompt tokens found in the prefix cache
	// Fetched is the time that it took to fetch KV from another server, and FetchedBytes the bytes on the wire. Both
	// are 0 without a fetch.
	Fetched      machine.Time
	FetchedBytes int64
	// FirstAt and EndedAt are the times at which the first token and the end of the last choice were due. A driver that
	// may be late sets them; 0 is now.
	FirstAt, EndedAt machine.Time

	Part2Begun bool   // some bytes after part 1 have arrived
	Part2      bool   // part 2 and the end of the request have arrived
	Metadata   string // the metadata in part 2
	Violation  string // the body's violation of the contract of held-open requests
	Gone       string // the reason why the peer is gone, if it is

	Kept *Kept // blocks that the server keeps for another server
	Lost error // why a KV cache of another server did not arrive, where this ended the request

	// Choices is the progress of each completion. The Response reads them until its next input.
	Choices []Choice
}

// GotKV notes the arrival of a KV cache from another server.
func (p *Progress) GotKV(took machine.Time, bytes int64) {
	p.Fetched = max(p.Fetched, took)
	p.FetchedBytes += bytes
}

// ApplyEffect notes an effect of the engine on a completion, and reports whether the request has made progress. It
// leaves FirstAt and EndedAt to drivers that may be late.
func (p *Progress) ApplyEffect(q *Sequence, f *engine.Effect) (further bool) {
	c := &p.Choices[q.Choice]
	switch f.Kind {
	case engine.Rejected:
		p.Rejected, p.Code = true, f.Code
	case engine.PrefillStarted:
		if !p.Started { // a preempted request starts twice
			p.Started, p.StartedAt, p.Cached = true, f.At, int(f.Count)
		}
	case engine.FirstToken:
		c.Tokens = 1
	case engine.Tokens:
		c.Tokens = int(f.First) + int(f.Count)
	case engine.Finished:
		c.Tokens, c.Finished, c.Reason = int(f.Count), true, f.Reason
		if f.Reason == engine.ReasonKVFailed {
			p.Lost = q.LostKV
		}
	case engine.Aborted:
		c.Finished, c.Aborted = true, true
	default:
		return false
	}
	return true
}

// started returns the details that the record has of the prompt's beginning.
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

// ResponseOptions configure a Response.
type ResponseOptions struct {
	Head     *Head
	API      *API
	Fault    lifecycle.Fault
	Endpoint string // of the server, for the record
	Held     bool   // the request is held open
	Recorder record.Recorder
	// Brief leaves out the effects between the first token and the end, because the driver does not need their times.
	// Silent also leaves out their text, because no client reads it.
	Brief, Silent bool
}

// Response is the life of one request in the server. It is a machine.Machine[*Progress, *Effects] that Open, Body and
// Take start.
type Response struct {
	reader    *Reader
	lifecycle lifecycle.Request
	api       *API
	fault     lifecycle.Fault
	brief     bool
	silent    bool
	below     bool // the answer is that the cache holds too little of the prompt
	asked     bool // the client asked for the finish reason of such an answer
	rec       record.Recorder

	traceParent string

	req   *Request
	seqs  []Sequence
	p     Progress
	bytes int
	usage openai.Usage
	sent  []int  // tokens of each choice that the encoder has written
	close []bool // the encoder has written the choice's end
	token Token  // the token to encode next

	now       machine.Time
	wake      machine.Time // the time at which waits ends
	waits     wait
	painted   bool
	started   bool
	began     bool // status and first token have been sent
	part2     bool
	part2At   machine.Time
	over      bool
	described bool // a piece of the response was described

	// one holds the memory of a request with a single choice, as nearly all are. The slices above then point into it.
	one struct {
		seq   [1]Sequence
		said  content
		sent  [1]int
		close [1]bool
	}
}

// wait is the reason for which a Response waits until a time.
type wait uint8

const (
	nothing  wait = iota
	delay         // a fault
	painting      // a picture
)

// Init makes r the response to a request whose headers have arrived.
//
//go:noinline
func (r *Response) Init(rd *Reader, o *ResponseOptions) {
	// Init sets single fields and is not inlined: copies would enlarge the stack frames of all callers.
	*r = Response{}
	r.reader, r.api, r.fault, r.brief, r.silent, r.rec, r.asked, r.traceParent = rd, o.API, o.Fault, o.Brief, o.Silent,
		o.Recorder, o.Head.Threshold, o.Head.TraceParent
	r.lifecycle = *lifecycle.New(
		lifecycle.Options{Request: o.Head.RequestID, Attempt: o.Head.Attempt, Endpoint: o.Endpoint, Held: o.Held,
			Recorder: o.Recorder})
}

// Held reports whether the request is held open.
func (r *Response) Held() bool { return r.lifecycle.Held() }

// Over reports whether the request has ended: it has no further effects.
func (r *Response) Over() bool { return r.over }

// Request returns the parsed request; nil before Take.
func (r *Response) Request() *Request { return r.req }

// Sequences returns the completions that the engine runs.
func (r *Response) Sequences() []Sequence { return r.seqs }

// Open starts the Response, before any of the body is read. violation is the error in the headers of a held request, if
// there is one.
func (r *Response) Open(now machine.Time, violation string, fx *Effects) {
	switch {
	case r.fault[lifecycle.AtConnect].Do != 0:
		r.over = true // nothing was read, so the record has nothing to report
		fx.Add(Effect{At: now, Kind: Cut, Reset: r.fault[lifecycle.AtConnect].Do == lifecycle.Reset})
	case violation != "":
		r.do(now, r.lifecycle.Violation(now, violation), fx)
	}
}

// Body reports that the whole of a plain request, or part 1 of a held one, has arrived, and its length in bytes.
func (r *Response) Body(now machine.Time, bytes int, fx *Effects) {
	r.bytes = bytes
	if d := r.fault[lifecycle.AtBody].For; d > 0 && !r.over {
		r.waits, r.wake = delay, now.Add(machine.FromDuration(d))
		return
	}
	r.readable(now, fx)
}

// readable injects the faults that come before anything is read.
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

// refuse ends a request before anything was sent.
func (r *Response) refuse(now machine.Time, why *openai.Error, answer Effect, fx *Effects) {
	r.lifecycle.Rejected(now, why.Status, why.Message)
	r.over, answer.At = true, now
	fx.Add(answer)
}

// Take continues with the parsed request, or with the error to answer. The error may come before the body is complete.
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

// build prepares the engine's input and the content of the answer.
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

// Next returns the time of the next Advance, if there is one.
func (r *Response) Next() (machine.Time, bool) { return r.wake, r.waits != nothing && !r.over }

// Advance carries out the actions that are due by now.
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

// Input processes the progress of a request.
func (r *Response) Input(now machine.Time, p *Progress, fx *Effects) {
	if r.Advance(now, fx); r.over {
		return // an end was due before this input: Advance reports it from the earlier state
	}
	r.p = *p
	r.step(r.now, fx)
}

// step takes the actions that follow from the request's progress.
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
	first := !r.began && r.sendable(0) > 0
	if first {
		if r.do(now, r.lifecycle.FirstToken(cmp.Or(r.p.FirstAt, now), r.seqs[0].said.text(0)), fx) {
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

// start notes that the engine begins the prompt. It returns true if that ends the request.
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

// end ends a request that the engine still has, with an effect that sends no error to the peer.
func (r *Response) end(now machine.Time, why string, then Effect, fx *Effects) {
	r.lifecycle.PeerGone(now, why)
	r.over, then.At = true, now
	fx.Add(Effect{At: now, Kind: Abort})
	fx.Add(then)
}

// limit returns the number of tokens of each choice that a fault allows to send; below 0 is all.
func (r *Response) limit() int {
	switch f := r.fault[lifecycle.AtTokens]; {
	case f.Do == lifecycle.Stall:
		return f.N
	case f.Do != 0 && r.inPieces():
		return max(1, f.N)
	}
	return -1
}

// sendable returns the number of tokens of a choice that the server may send.
func (r *Response) sendable(choice int) int {
	n := 0
	if choice < len(r.p.Choices) {
		n = r.p.Choices[choice].Tokens
	}
	if limit := r.limit(); limit >= 0 {
		n = min(n, limit)
	}
	return n
}

// inPieces reports whether any part of the response is sent before its end.
func (r *Response) inPieces() bool { return r.req.Stream || r.Held() }

// progress sends what is new, unless it was sent with the first token. It ends the request when all choices have ended.
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
	// The last tokens are sent together with the end of the response.
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
		r.do(now, r.lifecycle.Failed(now, status, text, r.p.Lost), fx)
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
	r.do(now, r.lifecycle.Generated(max(cmp.Or(r.p.EndedAt, now), r.part2At), total, string(r.reason(0))), fx)
}

// reject answers a request that the engine rejected.
func (r *Response) reject(now machine.Time, fx *Effects) {
	e := lifecycle.Rejection(r.p.Code, r.req.Model)
	if r.p.Code == engine.CodeFull && r.reader.FullStatus != 0 {
		e = openai.Errorf(r.reader.FullStatus, "", "%s", e.Message)
	}
	if r.lifecycle.Rejected(now, e.Status, e.Message).Do == lifecycle.Nothing {
		return
	}
	r.over = true
	fx.Add(Effect{At: now, Kind: Abort}) // the engine may have accepted some of its completions
	fx.Add(Effect{At: now, Kind: Refuse, Error: e})
}

// do carries out one effect of the lifecycle. It returns true when the request is over.
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
		out.Kind = BeginAnswer
	case lifecycle.SendEnd:
		r.over, out.Kind = true, End
		out.Echo, out.echoes = e.Echo, r.Held()
	case lifecycle.Refuse:
		r.over, out.Kind, out.Error = true, Refuse, earlyError(e)
	case lifecycle.SendError:
		r.over, out.Kind, out.Error = true, Fail, earlyError(e)
	case lifecycle.Drop:
		r.over, out.Kind = true, Leave
	}
	fx.Add(out)
	return r.over
}

// earlyError returns the error that the client receives when an effect ends its request early. The lifecycle's only 400
// is a violation of the contract of held-open requests.
func earlyError(e lifecycle.Effect) *openai.Error {
	err := openai.Errorf(e.Status, "", "%s", e.Reason)
	if e.Status == 400 {
		err.Type = held.ViolationType
	}
	return err
}

// reason returns the finish reason of choice number i.
func (r *Response) reason(i int) openai.FinishReason {
	if c := &r.p.Choices[i]; c.Finished && c.Reason == engine.ReasonStop {
		return r.seqs[i].said.stopReason()
	}
	return openai.FinishLength
}
