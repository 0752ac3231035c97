package modelserver

import (
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/held"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
)

// prepare turns a body into what the engine is asked for.
type prepare func(s *Server, r *http.Request, body []byte) (*request, *openai.Error)

// appendError writes an API's error body.
type appendError func(b []byte, e *openai.Error) []byte

// generation serves a POST that asks the engine for tokens and answers errors
// as OpenAI does.
func (s *Server) generation(parse prepare) http.HandlerFunc {
	return s.generationAs(parse, openai.AppendError)
}

func (s *Server) generationAs(parse prepare, failed appendError) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			// First of all: without it not even a 400 would leave while the
			// request is held open.
			if full, ok := w.(interface{ EnableFullDuplex() error }); ok {
				_ = full.EnableFullDuplex() // a server of HTTP/1.1 always can
			}
		}
		s.inFlight.add(1)
		defer s.inFlight.add(-1)
		s.serveGeneration(w, r, parse, failed)
	}
}

func (s *Server) serveGeneration(w http.ResponseWriter, r *http.Request, parse prepare, failed appendError) {
	requestID := headerOf(r, "X-Request-Id")
	if requestID == "" {
		requestID = s.newID()
		r.Header["X-Request-Id"] = []string{requestID}
	}
	if s.opts.RequestIDHeaders {
		w.Header().Set("X-Request-Id", requestID)
	}
	fault, err := s.faultOf(r, requestID)
	if err != nil {
		closeAfter(w, r)
		answer(w, openai.Errorf(400, FaultHeader, "%v", err))
		return
	}
	if fault.Refuse || fault.Reset {
		cut(w, fault.Reset)
	}
	boundary, isHeld, err := held.Boundary(headerOf(r, "Content-Type"))
	attempt := 1
	if v := headerOf(r, "X-Envoy-Attempt-Count"); v != "" {
		if n, err := strconv.Atoi(v); err == nil {
			attempt = max(n, 1)
		}
	}
	g := &generation{s: s, w: w, r: r, ctx: r.Context(), fault: fault, failed: failed}
	g.one.session = *serving.New(serving.Options{Request: requestID, Attempt: attempt, Endpoint: s.endpoint, Held: isHeld, Recorder: s.recorder})
	g.session = &g.one.session
	if err != nil {
		g.do(g.session.Violation(s.clock(), err.Error()))
		return
	}
	if isHeld {
		g.serveHeld(boundary, parse)
		return
	}
	g.servePlain(parse)
}

func (g *generation) servePlain(parse prepare) {
	pooled := buffers.Get().(*[]byte)
	body, bad, ok := readWhole(g.r, *pooled, g.s.opts.MaxBodyBytes)
	giveBack := func() {
		if cap(body) <= keptBuffer && body != nil {
			*pooled = body[:0]
		}
		buffers.Put(pooled)
	}
	switch {
	case bad != nil:
		g.session.Rejected(g.s.clock(), bad.Status, bad.Message)
		g.refuse(bad)
		return
	case !ok:
		g.do(g.session.PeerGone(g.s.clock(), "the client left while it sent the request"))
		panic(http.ErrAbortHandler)
	}
	g.whole = true
	submit := g.prepare(parse, body)
	giveBack() // what was read of it are copies
	if submit {
		g.generate()
	}
}

func (g *generation) serveHeld(boundary string, parse prepare) {
	defer func() {
		if !g.whole && (g.body == nil || !g.body.whole.Load()) {
			// net/http would wait for the rest of a body that nobody sends.
			stopReading(g.w)
		}
	}()
	reader := held.NewReader(boundary, int(g.s.opts.MaxBodyBytes))
	violation, err := readPart1(g.r, reader)
	if bad := tooSlow(err); bad != nil {
		g.session.Rejected(g.s.clock(), bad.Status, bad.Message)
		g.refuse(bad)
		return
	}
	switch {
	case err != nil:
		g.do(g.session.PeerGone(g.s.clock(), "the connection broke during part 1: "+err.Error()))
		panic(http.ErrAbortHandler)
	case violation != "":
		g.do(g.session.Violation(g.s.clock(), violation))
		return
	}
	serve.BodyWhole(g.r) // the part that matters is here; the rest comes when the picker likes
	if !g.prepare(parse, reader.Payload()) {
		return
	}
	g.body = watchBody(g.w, g.r, reader, g.box)
	defer g.body.finish()
	g.generate()
}

// prepare parses the body and is true when there is something to generate.
func (g *generation) prepare(parse prepare, body []byte) bool {
	if g.early() {
		return false
	}
	req, bad := parse(g.s, g.r, body)
	if bad == nil {
		g.req, g.box = req, &g.one.box
		g.box.init(req.choices())
		bad = g.build()
	}
	if bad != nil {
		g.session.Rejected(g.s.clock(), bad.Status, bad.Message)
		g.refuse(bad)
		return false
	}
	g.usage.Details = g.s.opts.PromptTokensDetails
	var details []flow.Detail
	if g.s.recorder != nil {
		n := 0
		for i := range req.prompts {
			n += len(req.prompts[i].tokens)
		}
		details = []flow.Detail{flow.D("model", req.model), flow.D("prompt_tokens", n), flow.D("stream", req.stream)}
	}
	return g.session.Received(g.s.clock(), len(body), details...).Do == serving.Submit
}

// early carries out the faults that come before anything is generated, and is
// true when one of them has ended the request.
func (g *generation) early() bool {
	if g.fault.Delay > 0 && !pause.For(g.ctx, g.fault.Delay) {
		g.do(g.session.PeerGone(g.s.clock(), "the client left"))
		return true
	}
	switch {
	case g.fault.Status != 0:
		e := openai.Errorf(g.fault.Status, "", "A fault was asked for: status %d.", g.fault.Status)
		g.session.Rejected(g.s.clock(), e.Status, e.Message)
		if e.Status == http.StatusNoContent || e.Status == http.StatusNotModified {
			if !g.whole {
				closeAfter(g.w, g.r)
			}
			g.w.WriteHeader(e.Status)
		} else {
			g.refuse(e)
		}
		return true
	case g.fault.NoBody:
		g.session.Rejected(g.s.clock(), http.StatusOK, "A fault was asked for: no body.")
		if !g.whole {
			closeAfter(g.w, g.r)
		}
		g.w.WriteHeader(http.StatusOK)
		return true
	}
	return false
}

// headerOf is a header's first value. Its name is in the canonical form, which
// http.Header.Get would check again for every request.
func headerOf(r *http.Request, name string) string {
	if v := r.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// returnErrorHeader is llm-d-inference-sim's way to ask for an error.
const returnErrorHeader = "X-Return-Error"

func (s *Server) faultOf(r *http.Request, id string) (Fault, error) {
	if !s.opts.IgnoreFaultHeader {
		if v := headerOf(r, FaultHeader); v != "" {
			v, err := s.killBy(r, v)
			if err != nil {
				return Fault{}, err
			}
			return ParseFault(v)
		}
		if v := headerOf(r, returnErrorHeader); v != "" {
			return ParseFault("status=" + v)
		}
	}
	if s.opts.Faults != nil {
		if f := s.opts.Faults(r); f != (Fault{}) {
			return f, nil
		}
	}
	return s.injected(id), nil
}

// closeAfter tells an HTTP/1.1 client that the connection ends with this
// answer: the request's body is not read to its end, so net/http will close it,
// and a client that was not told might send its next request into the void.
func closeAfter(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = []string{"close"}
	}
}

func answer(w http.ResponseWriter, e *openai.Error) {
	writeWhole(w, e.Status, jsonType, openai.AppendError(nil, e))
}
