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

// inferenceRequest is one request on its way through the server: the goroutine that
// net/http made for it, asleep on the box, carrying out what the Response says.
type inferenceRequest struct {
	s      *Server
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	head   modelserver.Head
	api    *modelserver.API
	resp   modelserver.Response
	fx     modelserver.Effects
	body   []byte  // what is read of the request,
	pooled *[]byte // in this buffer; nil: in the held reader's
	box    *enginedrive.Box
	seqs   []*enginedrive.Seq
	now    []modelserver.Choice // the box's choices as last seen
	heard  modelserver.Progress // what it is told
	kept   *modelserver.Kept    // blocks kept for the decode server
	began  bool                 // status and first token have left
	whole  bool                 // the request's body was read to its end
	held   *held.Reader         // of a held-open request; nil otherwise
	watch  *bodyWatch           // of its body
	memory modelserver.Memory   // of what is read

	// one is what nearly every request needs, in the same piece of memory; the
	// slices above stand on it where there is one choice.
	one struct {
		box  enginedrive.Box
		seq  enginedrive.Seq
		now  [1]modelserver.Choice
		seqs [1]*enginedrive.Seq
		fx   [3]modelserver.Effect
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// inferenceRequests are those that nobody knows of any more: what is warm is used again.
var inferenceRequests = sync.Pool{New: func() any { return new(inferenceRequest) }}

// recycle gives back a request that has been answered, unless the engine may still
// come to it.
func (g *inferenceRequest) recycle() {
	if g.box.Free() {
		ready := g.box.Ready
		*g = inferenceRequest{}
		g.one.box.Ready = ready
		inferenceRequests.Put(g)
	}
}

const keptBuffer = 64 << 10 // larger buffers are not kept

// chats are parsed requests to /v1/chat/completions; of what they say nothing
// is kept but strings and lists of their own.
var chats = sync.Pool{New: func() any { return new(openai.Chat) }}

// stay carries out what the Response says to the request's end.
func (g *inferenceRequest) stay() {
	drive.Run[*modelserver.Progress, *modelserver.Effects](&g.resp, &g.fx, g.s.clock, g)
}

// Over, Woken, Done, Left, Message and Carry are for drive.Run.

func (g *inferenceRequest) Over() bool             { return g.resp.Over() }
func (g *inferenceRequest) Woken() <-chan struct{} { return g.box.Ready }
func (g *inferenceRequest) Done() <-chan struct{}  { return g.ctx.Done() }
func (g *inferenceRequest) Left()                  { g.box.Put(func(p *modelserver.Progress) { p.Gone = g.gone() }) }

// HasLeft is for the Reader.
func (g *inferenceRequest) HasLeft() bool { return g.ctx.Err() != nil }

// gone is why nobody waits for the answer any more.
func (g *inferenceRequest) gone() string {
	if cause := context.Cause(g.ctx); !errors.Is(cause, g.ctx.Err()) { // who ended it says why
		return cause.Error()
	}
	return "the client left"
}

// Message is what has happened, as the Response is told of it.
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

// Carry carries out an effect; what comes of it may be more.
func (g *inferenceRequest) Carry(i int) {
	e := g.fx.List[i]
	switch e.Kind {
	case modelserver.ReadBody:
		g.take()
	case modelserver.Submit:
		if g.held != nil {
			g.watch = g.s.watches.begin(g.w, g.r.Body, g.held, g.box)
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
			// Returning would make an empty 200 of it, if somebody is there
			// after all.
			panic(http.ErrAbortHandler)
		} // a call that was aborted or ran out of time is told so
	default:
		g.send(&e)
	}
}

// send sends what the Response has to say. The buffer is borrowed while there is
// something to write: a request that waits has none, and those that write share
// what is warm.
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
		_, _ = g.w.Write(b) // the client may be gone; there is nobody to tell
		if serve.TakesTrailers(g.r) {
			g.timings(false, true, http.TrailerPrefix)
		}
	case e.Kind == modelserver.Begin:
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

// closes tells the client that the connection ends with an answer that comes
// before the request's body is whole.
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
	if g.pooled != nil { // what was read of it are copies
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

// submit gives the engine what the request asks for.
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
