package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// What Envoy does by itself, as measured: without its model server it answers
// 503 as long as no response headers have come, and breaks the answer off
// afterwards.

// lost is the connection to the endpoint breaking.
func (r *request) lost() {
	if r.try != nil {
		r.try.broke(false)
		return
	}
	r.instead(proxy.Lost(proxy.Ended(r.pool.HTTP2), 1))
}

// instead is Envoy's own answer in the place of the endpoint's, which is cut short where it
// has begun.
func (r *request) instead(a stream.Answer) {
	r.toEPP(message{do: (*message).call, f: func() {
		switch {
		case r.stream.Result() != stream.Running && !r.seen.past:
			return
		case r.status == 0 && r.GRPC:
			r.ended = &callStatus{vllmgrpc.EnvoyCodeOf(a.Status), string(a.Body)}
			r.responded(200, vllmgrpc.ContentType, nil, nil, true)
			return
		case r.status == 0:
			r.responded(a.Status, "text/plain", a.Body, nil, true)
			return
		}
		f := r.facts()
		r.toClient(message{do: (*message).call, f: func() { r.finish(f.Broke("the answer was cut short")) }})
		r.tell(stream.Message{Kind: stream.PeerGone})
	}})
}

// refused is Envoy's own answer to the client.
func (r *request) refused(a stream.Answer) { r.toClient(message{do: (*message).answered, answer: &a}) }

// cut is the connection to the model server breaking.
func (r *request) cut(reset bool) {
	reason := "the connection was closed"
	if reset {
		reason = "the connection was reset"
	}
	if r.leg != nil {
		r.leg.back(true, func() { r.leg.broke(reason) })
		return
	}
	r.lost()
}

// respond is a piece of the response on its way to the EPP.
func (r *request) respond(status int, contentType string, body []byte, end bool) {
	r.answer(status, contentType, body, nil, end)
}

// answer is respond, with bytes or with a piece that is described.
func (r *request) answer(status int, contentType string, body []byte, piece *described.Piece, end bool) {
	switch {
	case r.leg != nil:
		r.leg.respond(status, contentType, body, piece, end)
		return
	case r.try != nil:
		r.try.respond(answered{status, contentType, body, piece, end})
		return
	}
	r.toEPP(message{do: (*message).responded, status: status, contentType: contentType, body: body, piece: piece,
		end: end})
}

// callStatus is how a call by gRPC ended.
type callStatus struct {
	code    vllmgrpc.Code
	message string
}

// endCall ends a call by gRPC with a status, or with an error of the model server's,
// behind the last of its messages.
func (r *request) endCall(bad *openai.Error, last []byte) {
	if r.ended = new(callStatus); bad != nil {
		*r.ended = callStatus{vllmgrpc.CodeOf(bad.Status), bad.Message}
	}
	r.respond(200, vllmgrpc.ContentType, last, true)
}

// responded is a piece of the response at the EPP.
func (r *request) responded(status int, contentType string, body []byte, piece *described.Piece, end bool) {
	if r.stream.Result() != stream.Running && !r.seen.past { // it has answered, or the client is gone
		return
	}
	if r.status == 0 {
		r.status = status
		r.bare = end && len(body) == 0 && piece == nil && (r.ended == nil || r.ended.code != vllmgrpc.OK)
		if r.seen.past && r.bare {
			r.toClient(message{do: (*message).received, end: true})
			return
		}
		r.tell(stream.Message{Kind: stream.ResponseHeaders, Head: r.w.responseHead(status, contentType), End: r.bare})
		if r.bare {
			return
		}
		r.seen.past = r.seen.past || r.modes().response == stream.NoBody
	}
	switch {
	case r.seen.past:
		r.toClient(message{do: (*message).received, body: body, piece: piece, end: end})
	case r.modes().response == stream.Buffered:
		r.waits(end, func(end bool) { r.tell(stream.Message{Kind: stream.ResponseBody, Body: body, End: end}) })
	case r.GRPC && end: // by trailers
		if len(body) > 0 {
			r.tell(stream.Message{Kind: stream.ResponseBody, Body: body})
		}
		r.tell(stream.Message{Kind: stream.ResponseTrailers})
	default:
		r.tell(stream.Message{Kind: stream.ResponseBody, Body: body, Piece: piece, End: end})
	}
}

// responseHead are a response's headers. Many responses share them, and nobody
// writes to them.
func (w *world) responseHead(status int, contentType string) header.List {
	is := responseKind{status, contentType}
	if w.heads[is] == nil {
		w.heads[is] = header.Of(":status", statusText(status), "content-type", contentType)
	}
	return w.heads[is]
}

type responseKind struct {
	status      int
	contentType string
}
