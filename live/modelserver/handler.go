package modelserver

import (
	"net/http"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
	"github.com/windtunnel/windtunnel/live/serve"
)

// inference serves a POST that asks the engine for tokens.
func (s *Server) inference(api *modelserver.API) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			// Full duplex comes first: without it, not even a 400 would leave while the client holds the request open.
			if full, ok := w.(interface{ EnableFullDuplex() error }); ok {
				_ = full.EnableFullDuplex() // an HTTP/1.1 server always supports it
			}
		}
		s.infer(w, r, api)
	}
}

// headOf reads a request's headers. A request without an id gets one.
func (s *Server) headOf(r *http.Request, h *modelserver.Head) {
	*h = modelserver.ReadHead(func(name string) string { return wire.Header(r, name) })
	if h.RequestID == "" {
		h.RequestID = wire.NewID()
	}
	h.Created = time.Now().Unix()
}

// infer serves a request for tokens from any API. Its frame stays on the stack while the request waits, so functions of
// their own do the work at the request's start.
func (s *Server) infer(w http.ResponseWriter, r *http.Request, api *modelserver.API) {
	s.inFlight.add(1)
	defer s.inFlight.add(-1)
	g := inferenceRequests.Get().(*inferenceRequest)
	g.s, g.w, g.r, g.ctx, g.api = s, w, r, r.Context(), api
	switch boundary, isHeld, refused := g.open(); {
	case refused:
	case g.resp.Over():
		g.stay()
	case isHeld:
		g.serveHeld(boundary)
	default:
		g.servePlain()
		g.recycle()
	}
}

// open reads what precedes the body and opens the Response. refused means that the Response already has its answer.
func (g *inferenceRequest) open() (boundary string, isHeld, refused bool) {
	s := g.s
	s.headOf(g.r, &g.head)
	if s.opts.RequestIDHeaders {
		g.w.Header().Set("X-Request-Id", g.head.RequestID)
	}
	fault, bad := s.faultOf(g.r, &g.head)
	if bad != nil {
		wire.CloseAfter(g.w, g.r)
		wire.Write(g.w, bad.Status, wire.JSON, g.api.AppendError(nil, bad))
		return "", false, true
	}
	boundary, isHeld, err := held.Boundary(wire.Header(g.r, "Content-Type"))
	violation := ""
	if err != nil {
		violation = err.Error()
	}
	g.box, g.now, g.fx.List = &g.one.box, g.one.now[:], g.one.fx[:0]
	g.box.Init(1)
	g.resp.Init(&s.reader, &modelserver.ResponseOptions{Head: &g.head, API: g.api, Fault: fault, Endpoint: s.endpoint,
		Held: isHeld, Recorder: s.recorder})
	g.resp.Open(s.clock(), violation, &g.fx)
	return boundary, isHeld, false
}

func (g *inferenceRequest) servePlain() {
	g.pooled = buffers.Get().(*[]byte)
	body, bad, ok := wire.ReadWhole(g.r, *g.pooled, g.s.opts.MaxBodyBytes)
	switch {
	case bad != nil:
		g.resp.Take(g.s.clock(), nil, bad, &g.fx)
	case !ok:
		g.broke(modelserver.Progress{Gone: "the client left while it sent the request"})
	default:
		g.whole, g.body = true, body
		g.resp.Body(g.s.clock(), len(body), &g.fx)
	}
	g.stay()
}

func (g *inferenceRequest) serveHeld(boundary string) {
	defer func() {
		switch {
		case g.watch != nil:
			g.watch.finish()
		case !g.whole:
			// Otherwise net/http would wait for the rest of a body that the client does not send.
			stopReading(g.w)
		}
	}()
	g.held = held.NewReader(boundary, int(g.s.opts.MaxBodyBytes))
	violation, err := readPart1(g.r, g.held)
	switch bad := wire.TooSlow(err); {
	case bad != nil:
		g.resp.Take(g.s.clock(), nil, bad, &g.fx)
	case err != nil:
		g.broke(modelserver.Progress{Gone: "the connection broke during part 1: " + err.Error()})
	case violation != "":
		g.broke(modelserver.Progress{Violation: violation})
	default:
		serve.BodyWhole(g.r) // the first part is complete; the endpoint picker decides when the rest comes
		g.body = g.held.Payload()
		g.resp.Body(g.s.clock(), len(g.body), &g.fx)
	}
	g.stay()
}

// broke reports an incomplete body to the Response.
func (g *inferenceRequest) broke(p modelserver.Progress) { g.resp.Input(g.s.clock(), &p, &g.fx) }

// faultOf returns a request's fault. It carries out at once the faults in the header that concern the whole engine.
func (s *Server) faultOf(r *http.Request, h *modelserver.Head) (lifecycle.Fault, *openai.Error) {
	if !s.opts.Faults.IgnoreHeader && h.Fault != "" {
		var err error
		if h.Fault, err = s.killBy(r, h.Fault); err != nil {
			return lifecycle.Fault{}, modelserver.BadFault(err)
		}
	}
	return s.reader.Fault(h)
}
