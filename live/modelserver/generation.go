package modelserver

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/held"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// generation is one request on its way through the server: the goroutine that
// net/http made for it, asleep on the box, carrying out what the session says.
type generation struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	session *serving.Session
	fault   Fault
	failed  appendError
	req     *request
	box     *box
	seqs    []*seq
	texts   []*content
	now     []choiceState // the box's choices as last seen
	sent    []int         // tokens of each choice that the encoder has had
	closed  []bool        // the encoder has had the choice's end
	usage   openai.Usage
	buf     []byte

	token     token            // the one being encoded
	kept      *enginecore.Hold // blocks kept for the decode server
	began     bool             // status and first token have left
	started   bool
	part2Done bool
	part2At   machine.Time
	whole     bool       // the request's body was read to its end
	body      *bodyWatch // of a held-open request; nil otherwise

	// needsThreshold: the client asks for cache_hit_threshold's finish reason.
	needsThreshold bool

	// one is what nearly every request needs, in the same piece of memory; the
	// slices above stand on it where there is one choice.
	one struct {
		session serving.Session
		box     box
		seq     seq
		content content
		now     [1]choiceState
		sent    [1]int
		closed  [1]bool
		texts   [1]*content
		seqs    [1]*seq
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

const keptBuffer = 64 << 10 // larger buffers are not kept

// generate submits the request and stays with it to its end.
func (g *generation) generate() {
	g.s.loop.submit(g.seqs)
	for over := false; !over; {
		select {
		case <-g.box.ready:
		case <-g.ctx.Done():
			gone := "the client left"
			if cause := context.Cause(g.ctx); errors.Is(cause, errAborted) {
				gone = cause.Error()
			}
			g.box.put(func(b *boxState) { b.gone = gone })
			<-g.box.ready
		}
		state := g.box.look(g.now)
		// The buffer is borrowed while there is something to write: a request
		// that waits has none, and those that write share what is warm.
		pooled := buffers.Get().(*[]byte)
		g.buf = (*pooled)[:0]
		over = g.step(&state)
		if cap(g.buf) <= keptBuffer {
			*pooled = g.buf[:0]
			buffers.Put(pooled)
		}
	}
}

// build makes ready what the engine is asked for and what will be said.
func (g *generation) build() *openai.Error {
	n := g.req.choices()
	if n == 1 {
		g.now, g.sent, g.closed, g.texts, g.seqs = g.one.now[:], g.one.sent[:], g.one.closed[:], g.one.texts[:], g.one.seqs[:0]
	} else {
		g.now, g.sent, g.closed, g.texts = make([]choiceState, n), make([]int, n), make([]bool, n), make([]*content, n)
	}
	watched := g.s.recorder != nil
	g.needsThreshold = g.req.kv.threshold > 0 || headerOf(g.r, cacheThresholdHeader) == "true"
	for i := range n {
		p := &g.req.prompts[i/g.req.n]
		q := &g.one.seq
		if n > 1 {
			g.texts[i], q = g.s.content(g.req, i), new(seq)
		} else {
			g.texts[i] = &g.one.content
			g.s.say(g.texts[i], g.req, i)
		}
		*q = seq{box: g.box, choice: i, first: g.req.stream || g.session.Held() || watched,
			start: watched || g.fault.DieInPrefill || g.needsThreshold}
		q.Submit = g.s.submitFor(g.req, p, i, g.texts[i])
		if bad := g.req.work.tooMuch(); bad != nil {
			return bad
		}
		q.Counted = stats.Sequence{PromptTokens: len(p.tokens), EveryToken: g.req.stream, N: g.req.n, MaxTokens: g.req.maxTokens, Adapter: g.req.lora}
		q.Owner, q.Key, q.LoseKV = q, g.req.kv.key, g.fault.LoseKV
		q.Remote, q.Source = g.req.kv.remote.remote(), g.req.kv.source.remote()
		q.Prefix = g.s.prefix(g.req, q)
		if g.s.publisher != nil {
			q.Tokens = tokensOf(p, g.texts[i])
		}
		q.Submit.HoldAfterFirst = g.session.Held()
		switch {
		case q.Counted.EveryToken:
			q.Submit.Interest = engine.EveryToken
		case !q.first:
			q.Submit.Interest = engine.EndOnly
		}
		g.seqs = append(g.seqs, q)
		if i%g.req.n == 0 {
			g.usage.PromptTokens += len(p.tokens)
		}
	}
	return nil
}

// step carries out what the box's state asks for and is true at the end.
func (g *generation) step(b *boxState) bool {
	now := g.s.clock()
	if b.kv != nil {
		g.kept = b.kv
	}
	switch {
	case b.gone != "":
		g.do(g.session.PeerGone(now, b.gone))
		if cause := context.Cause(g.ctx); cause == nil || errors.Is(cause, context.Canceled) {
			// Returning would make an empty 200 of it, if somebody is there
			// after all.
			panic(http.ErrAbortHandler)
		}
		return true // a call that was aborted or ran out of time is told so
	case b.violation != "":
		return g.do(g.session.Violation(now, b.violation))
	case b.rejected:
		return g.reject(now, b.code)
	}
	if b.started && !g.started {
		g.started = true
		g.usage.CachedTokens = b.cached
		if g.s.recorder != nil {
			g.session.PrefillStarted(b.startedAt, flow.D("cached_tokens", b.cached))
		}
		if g.needsThreshold && g.belowThreshold(b) {
			return true
		}
		if g.fault.DieInPrefill {
			g.do(g.session.PeerGone(now, "fault: died in prefill"))
			cut(g.w, false)
		}
	}
	if b.part2Begun && !g.began && g.do(g.session.Part2Begun(now)) {
		return true
	}
	if g.stall() {
		return false
	}
	if !g.began && g.now[0].tokens > 0 && (b.firstAt > 0) {
		if g.do(g.session.FirstToken(b.firstAt, g.texts[0].text(0))) {
			return true
		}
		if g.fault.EndBeforePart2 && g.session.Held() {
			g.do(g.session.PeerGone(now, "fault: ended before part 2"))
			g.end(nil)
			return true
		}
	}
	if b.part2 && !g.part2Done {
		g.part2Done, g.part2At, g.whole = true, now, true
		if g.do(g.session.Part2(now, b.metadata)) {
			return true
		}
	}
	return g.progress(now, b)
}

// progress sends what is new and ends the request when all choices have ended.
func (g *generation) progress(now machine.Time, b *boxState) bool {
	total, reason, whole := 0, engine.ReasonNone, true
	for i := range g.now {
		c := &g.now[i]
		whole = whole && c.finished
		total += c.tokens
		switch c.reason {
		case engine.ReasonCrash, engine.ReasonKVFailed, engine.ReasonSleep:
			reason = c.reason
		}
		if c.aborted {
			reason = engine.ReasonCrash
		}
	}
	// The last tokens leave together with what ends the response.
	last := whole && reason == engine.ReasonNone && g.fault.ResetAfter == nil
	if g.req.stream && g.began && !last && g.appendNew() && !g.send() {
		return g.do(g.session.PeerGone(now, "the client left"))
	}
	if !whole {
		return false
	}
	if reason != engine.ReasonNone {
		status, text := serving.Failure(reason)
		return g.do(g.session.Failed(now, status, text))
	}
	g.usage.CompletionTokens = total
	e := g.session.Generated(max(b.endedAt, g.part2At), total, string(g.finish(0)))
	if e.Do == serving.Nothing {
		return false // held: part 2 is still to come
	}
	return g.do(e)
}

// do carries out one effect of the session and is true when the request is
// over.
func (g *generation) do(e serving.Effect) bool {
	if e.AbortEngine {
		g.s.loop.abort(g.seqs)
	}
	switch e.Do {
	case serving.Nothing, serving.Submit:
		return false
	case serving.SendFirst:
		g.begin()
		return false
	case serving.Resume:
		g.s.loop.resume(g.seqs)
		return false
	case serving.SendEnd:
		g.end(g.echo(e.Echo))
	case serving.Refuse:
		g.refuse(told(e))
	case serving.SendError:
		g.buf = g.req.enc.fail(g.buf, told(e))
		g.send()
	}
	return true
}

// told is what the client is told of an effect that ends its request early.
// The session's only 400 is a violation of the held-open request's contract.
func told(e serving.Effect) *openai.Error {
	err := openai.Errorf(e.Status, "", "%s", e.Reason)
	if e.Status == http.StatusBadRequest {
		err.Type = held.ViolationType
	}
	return err
}

func (g *generation) reject(now machine.Time, code engine.Code) bool {
	e := serving.Rejection(code, g.req.model) // a full engine's status: see reject
	if code == engine.CodeFull && g.s.opts.FullStatus != 0 {
		e = openai.Errorf(g.s.opts.FullStatus, "", "%s", e.Message)
	}
	effect := g.session.Rejected(now, e.Status, e.Message)
	if effect.Do == serving.Nothing {
		return false
	}
	// Some completions of the request may have been taken.
	g.s.loop.abort(g.seqs)
	g.refuse(e)
	return true
}

// begin sends the status and, where the client is to see it now, the first
// token.
func (g *generation) begin() {
	g.began = true
	if !g.req.stream && !g.session.Held() {
		return
	}
	h := g.w.Header()
	h["Content-Type"] = []string{g.req.enc.contentType()}
	g.w.WriteHeader(http.StatusOK)
	g.buf = g.req.enc.begin(g.buf, g.usage)
	if !g.req.stream {
		g.appendTokens(0, 1)
	} else {
		g.appendNew()
	}
	g.send()
}

// end sends the rest of the response.
func (g *generation) end(extra []byte) {
	if d := g.s.opts.ImageTime; g.req.image && d != nil {
		draw := machine.DrawFor(g.s.seed, "server", "image time", g.req.key)
		_ = pause.For(g.ctx, d.SampleTime(&draw).Duration()) // a client that left is noticed when the answer is written
	}
	whole := !g.req.stream && !g.session.Held()
	if whole {
		g.buf = g.req.enc.begin(g.buf, g.usage)
	}
	for i := range g.now {
		g.appendChoice(i, g.now[i].tokens, true)
	}
	g.buf = g.req.enc.end(g.buf, g.usage, g.kvAnswer(), extra)
	if whole {
		writeWhole(g.w, http.StatusOK, g.req.enc.contentType(), g.buf)
		return
	}
	if g.fault.ResetAfter != nil {
		g.send()
		return
	}
	// Not flushed: net/http sends it with the end of the response, in one piece.
	_, _ = g.w.Write(g.buf) // the client may be gone; there is nobody to tell
	g.buf = g.buf[:0]
}

// appendNew encodes what the stream has not had yet, one token of each choice
// in turn, and is false when there is nothing.
func (g *generation) appendNew() bool {
	before := len(g.buf)
	for more := true; more; {
		more = false
		for i := range g.now {
			c := &g.now[i]
			// A finish that will be told as an error ends no choice.
			ends := c.finished && !c.aborted && (c.reason == engine.ReasonStop || c.reason == engine.ReasonLength)
			switch {
			case c.tokens > g.sent[i]+1:
				g.appendTokens(i, g.sent[i]+1)
				more = true
			case c.tokens > g.sent[i] || ends && !g.closed[i]:
				g.appendChoice(i, c.tokens, ends)
			}
		}
	}
	return len(g.buf) > before
}

func (g *generation) appendChoice(i, tokens int, ends bool) {
	if g.closed[i] {
		return
	}
	switch {
	case ends && tokens > g.sent[i]:
		g.appendTokens(i, tokens-1)
		g.appendToken(i, tokens-1, g.finish(i))
		g.closed[i] = true
	case ends:
		t := &token{choice: i, none: true, index: tokens, done: g.finish(i)}
		g.texts[i].tellStop(t)
		g.buf = g.req.enc.token(g.buf, t)
		g.closed[i] = true
	default:
		g.appendTokens(i, tokens)
	}
}

func (g *generation) appendTokens(i, upTo int) {
	if e, ok := g.req.enc.(*openaiWhole); ok && e.plain(g.texts[i]) {
		g.buf = e.texts(g.buf, g.texts[i], i, g.sent[i], upTo)
		g.sent[i] = max(g.sent[i], upTo)
		return
	}
	for g.sent[i] < upTo {
		g.appendToken(i, g.sent[i], "")
	}
}

func (g *generation) appendToken(i, index int, done openai.FinishReason) {
	t := &g.token // in place: an encoder may keep what it is given no longer than its call
	*t = token{choice: i, index: index, done: done}
	if done != "" && i == 0 {
		t.kv = g.kvMetadata()
	}
	g.texts[i].fill(t)
	g.buf = g.req.enc.token(g.buf, t)
	g.sent[i] = index + 1
}

func (g *generation) finish(i int) openai.FinishReason {
	if g.now[i].finished && g.now[i].reason == engine.ReasonStop {
		return g.texts[i].stopReason()
	}
	return openai.FinishLength
}

// send writes and flushes the buffer; false means that the client is gone.
func (g *generation) send() bool {
	_, err := g.w.Write(g.buf)
	g.buf = g.buf[:0]
	if err != nil {
		return false
	}
	g.w.(http.Flusher).Flush()
	if g.fault.ResetAfter != nil && g.sent[0] >= *g.fault.ResetAfter {
		g.do(g.session.PeerGone(g.s.clock(), "fault: reset"))
		cut(g.w, true)
	}
	return true
}

// stall is true once a fault has the server say nothing more.
func (g *generation) stall() bool {
	if g.fault.StallAfter == nil {
		return false
	}
	return len(g.sent) > 0 && g.sent[0] >= *g.fault.StallAfter
}

func (g *generation) refuse(e *openai.Error) {
	if !g.whole {
		closeAfter(g.w, g.r)
	}
	g.buf = g.failed(g.buf[:0], e)
	writeWhole(g.w, e.Status, jsonType, g.buf)
}

// createdNow is a response's creation time, in Unix seconds.
func createdNow() int64 { return time.Now().Unix() }
