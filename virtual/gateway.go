package virtual

import (
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Envoy's own answers, as measured: after the loss of the model server, Envoy answers 503 if it has no response headers
// yet, and otherwise breaks the answer off.

// lost reports that the connection to the endpoint broke.
func (r *request) lost() {
	if r.try != nil {
		r.try.broke(false)
		return
	}
	r.instead(proxy.Lost(proxy.Ended(r.pool.HTTP2), 1))
}

// instead sends Envoy's own answer in place of the endpoint's, or cuts the endpoint's answer short if it has begun.
func (r *request) instead(a stream.Answer) {
	r.toEPP(call(func() {
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
		r.toClient(call(func() { r.finish(f.Broke("the answer was cut short")) }))
		r.toStream(stream.Message{Kind: stream.PeerGone})
	}))
}

// refused sends Envoy's own answer to the client.
func (r *request) refused(a stream.Answer) { r.toClient(message{do: (*message).answered, answer: &a}) }

// cut breaks the connection to the model server.
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

// respond sends a piece of the response to the EPP, or to the sidecar for a leg.
func (r *request) respond(status int, contentType string, body []byte, end bool) {
	r.answer(status, contentType, body, nil, end)
}

// answer is respond with bytes or with a described piece.
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

// callStatus is the status of a gRPC call.
type callStatus struct {
	code    vllmgrpc.Code
	message string
}

// endCall ends a gRPC call after its last message: with the model server's error, or with OK.
func (r *request) endCall(bad *openai.Error, last []byte) {
	if r.ended = new(callStatus); bad != nil {
		*r.ended = callStatus{vllmgrpc.CodeOf(bad.Status), bad.Message}
	}
	r.respond(200, vllmgrpc.ContentType, last, true)
}

// responded takes a piece of the response at the EPP.
func (r *request) responded(status int, contentType string, body []byte, piece *described.Piece, end bool) {
	if r.stream.Result() != stream.Running && !r.seen.past { // the EPP has answered, or the client is gone
		return
	}
	if r.status == 0 {
		r.status = status
		r.bare = end && len(body) == 0 && piece == nil && (r.ended == nil || r.ended.code != vllmgrpc.OK)
		if r.seen.past && r.bare {
			r.toClient(message{do: (*message).received, end: true})
			return
		}
		r.toStream(stream.Message{Kind: stream.ResponseHeaders, Head: r.w.responseHead(status, contentType),
			End: r.bare})
		if r.bare {
			return
		}
		r.seen.past = r.seen.past || r.modes().response == stream.NoBody
	}
	switch {
	case r.seen.past:
		r.toClient(message{do: (*message).received, body: body, piece: piece, end: end})
	case r.modes().response == stream.Buffered:
		r.waits(end, func(end bool) { r.toStream(stream.Message{Kind: stream.ResponseBody, Body: body, End: end}) })
	case r.GRPC && end: // by trailers
		if len(body) > 0 {
			r.toStream(stream.Message{Kind: stream.ResponseBody, Body: body})
		}
		r.toStream(stream.Message{Kind: stream.ResponseTrailers})
	default:
		r.toStream(stream.Message{Kind: stream.ResponseBody, Body: body, Piece: piece, End: end})
	}
}

// responseHead returns a response's headers. Responses share them, so they must not change.
func (w *world) responseHead(status int, contentType string) header.List {
	is := responseKind{status, contentType}
	if w.heads[is] == nil {
		w.heads[is] = header.Of(":status", strconv.Itoa(status), "content-type", contentType)
	}
	return w.heads[is]
}

type responseKind struct {
	status      int
	contentType string
}
