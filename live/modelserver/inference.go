package modelserver

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
	"github.com/windtunnel/windtunnel/live/serve"
)

// inferenceRequest is one request on its way through the server. The goroutine that net/http made for the request
// sleeps on the box and carries out the Response's effects.
type inferenceRequest struct {
	s      *Server
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	head   modelserver.Head
	api    *modelserver.API
	resp   modelserver.Response
	fx     modelserver.Effects
	body   []byte  // the part of the request that has been read,
	pooled *[]byte // in this buffer; nil if it is in the held reader's
	box    *enginedrive.Box
	seqs   []*enginedrive.Seq
	now    []modelserver.Choice // the box's choices as last seen
	heard  modelserver.Progress // the state that Message reported last
	kept   *modelserver.Kept    // blocks kept for the decode server
	began  bool                 // status and first token have left
	whole  bool                 // the whole body has been read
	held   *held.Reader         // of a held-open request; nil otherwise
	watch  *bodyWatch           // reads the body of a held-open request
	memory modelserver.Memory   // of the decoded body

	// one holds the parts that nearly every request needs in one allocation. For a request with one choice, the slices
	// above point into it.
	one struct {
		box  enginedrive.Box
		seq  enginedrive.Seq
		now  [1]modelserver.Choice
		seqs [1]*enginedrive.Seq
		fx   [3]modelserver.Effect
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// inferenceRequests are finished requests that nothing refers to any more, for reuse while their memory is warm.
var inferenceRequests = sync.Pool{New: func() any { return new(inferenceRequest) }}

// recycle gives an answered request back for reuse, unless the engine may still refer to it.
func (g *inferenceRequest) recycle() {
	if g.box.Free() {
		ready := g.box.Ready
		*g = inferenceRequest{}
		g.one.box.Ready = ready
		inferenceRequests.Put(g)
	}
}

const keptBuffer = 64 << 10 // larger buffers are not kept

// chats are parsed requests to /v1/chat/completions. Of a parsed request, the server keeps only strings and lists that
// are copies.
var chats = sync.Pool{New: func() any { return new(openai.Chat) }}

// stay carries out the Response's effects until the request ends.
func (g *inferenceRequest) stay() {
	drive.Run[*modelserver.Progress, *modelserver.Effects](&g.resp, &g.fx, g.s.clock, g)
}

// drive.Run calls Over, Woken, Done, Left, Message and Carry.

func (g *inferenceRequest) Over() bool             { return g.resp.Over() }
func (g *inferenceRequest) Woken() <-chan struct{} { return g.box.Ready }
func (g *inferenceRequest) Done() <-chan struct{}  { return g.ctx.Done() }
func (g *inferenceRequest) Left()                  { g.box.Put(func(p *modelserver.Progress) { p.Gone = g.gone() }) }

// HasLeft implements the Reader's client.
func (g *inferenceRequest) HasLeft() bool { return g.ctx.Err() != nil }

// gone returns the reason why the client no longer waits for the answer.
func (g *inferenceRequest) gone() string {
	if cause := context.Cause(g.ctx); !errors.Is(cause, g.ctx.Err()) { // the cause that ended the context says why
		return cause.Error()
	}
	return "the client left"
}

// Message returns the request's state for the Response.
func (g *inferenceRequest) Message() *modelserver.Progress {
	var kept *enginecore.Hold
	g.heard, kept = g.box.Look(g.now)
	if kept != nil && g.kept == nil && g.resp.Request().KV.Named() {
		if host, port, err := g.s.kv.Address(); err == nil {
			g.kept = &modelserver.Kept{Host: host, Port: port, Hold: kept}
		} else {
			g.s.log.Error("no KV side channel", "server", g.s.name, "error", err)
		}
	}
	g.heard.Kept = g.kept
	return &g.heard
}

// Carry carries out an effect. That may cause further effects.
func (g *inferenceRequest) Carry(i int) {
	e := g.fx.List[i]
	switch e.Kind {
	case modelserver.ReadBody:
		g.take()
	case modelserver.Submit:
		if g.held != nil {
			g.watch = g.s.watches.start(g.w, g.r.Body, g.held, g.box)
		}
		g.submit()
	case modelserver.Resume:
		g.s.engine.Resume(g.seqs)
	case modelserver.Abort:
		g.s.engine.Abort(g.seqs)
	case modelserver.Bodyless:
		g.closes()
		g.w.WriteHeader(e.Status)
	case modelserver.Cut:
		if wait := g.s.opts.Faults.BeforeCut; wait != nil {
			wait()
		}
		wire.Cut(g.w, e.Reset)
	case modelserver.Leave:
		if cause := context.Cause(g.ctx); cause == nil || errors.Is(cause, context.Canceled) {
			// If the client is still there after all, a return would send it an empty 200.
			panic(http.ErrAbortHandler)
		} // the Response reports a call that was aborted or ran out of time
	default:
		g.send(&e)
	}
}

// send writes the Response's output. It borrows its buffer only for the write: a waiting request has no buffer, and
// requests that write share warm buffers.
func (g *inferenceRequest) send(e *modelserver.Effect) {
	pooled := buffers.Get().(*[]byte)
	b := g.resp.Append((*pooled)[:0], e)
	var err error
	switch {
	case e.Kind == modelserver.Refuse:
		g.closes()
		wire.Write(g.w, e.Error.Status, wire.JSON, b)
	case e.Kind == modelserver.End && !g.began:
		g.timings(true, true, "")
		wire.Write(g.w, http.StatusOK, g.resp.Request().Encoder.ContentType(), b)
	case e.Kind == modelserver.End:
		// Not flushed: net/http sends it with the end of the response, in one piece.
		_, _ = g.w.Write(b) // the client may have left; no error could be reported to it
		if serve.TakesTrailers(g.r) {
			g.timings(false, true, http.TrailerPrefix)
		}
	case e.Kind == modelserver.BeginAnswer:
		g.began = true
		g.w.Header()["Content-Type"] = []string{g.resp.Request().Encoder.ContentType()}
		g.timings(true, false, "")
		g.w.WriteHeader(http.StatusOK)
		err = g.flush(b)
	case len(b) > 0:
		err = g.flush(b)
	}
	if cap(b) <= keptBuffer {
		*pooled = b[:0]
		buffers.Put(pooled)
	}
	if err != nil {
		g.box.Put(func(p *modelserver.Progress) { p.Gone = "the client left" })
	}
}

func (g *inferenceRequest) flush(b []byte) error {
	_, err := g.w.Write(b)
	if err == nil {
		g.w.(http.Flusher).Flush()
	}
	return err
}

// closes announces that the connection ends with an answer that precedes the end of the request's body.
func (g *inferenceRequest) closes() {
	if !g.whole {
		wire.CloseAfter(g.w, g.r)
	}
}

// take reads the body.
func (g *inferenceRequest) take() {
	g.head.Scratch, g.head.Memory, g.head.Client = chats.Get().(*openai.Chat), &g.memory, g
	body := g.body
	q, bad := g.api.Read(&g.s.reader, &g.head, body)
	if len(body) <= keptBuffer {
		chats.Put(g.head.Scratch)
	}
	g.head.Scratch, g.body = nil, nil
	if g.pooled != nil { // the parsed request holds copies
		if cap(body) <= keptBuffer {
			*g.pooled = body[:0]
		}
		buffers.Put(g.pooled)
	}
	if bad == nil && q.Choices() != 1 {
		g.box.Init(q.Choices())
		g.now = make([]modelserver.Choice, q.Choices())
	}
	g.resp.Take(g.s.clock(), q, bad, &g.fx)
}

// submit submits the request's completions to the engine.
func (g *inferenceRequest) submit() {
	all := g.resp.Sequences()
	g.seqs = g.one.seqs[:0]
	for i := range all {
		x := &g.one.seq
		if len(all) > 1 {
			x = new(enginedrive.Seq)
		}
		*x = enginedrive.Seq{Sequence: &all[i], Box: g.box}
		x.Owner = x
		g.seqs = append(g.seqs, x)
	}
	g.s.engine.Submit(g.seqs)
}
