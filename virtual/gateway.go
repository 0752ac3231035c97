package virtual

import (
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/stream"
)

// What Envoy does by itself, as measured: without its model server it answers
// 503 as long as no response headers have come, and breaks the answer off
// afterwards.

const lostBeforeHeaders = "upstream connect error or disconnect/reset before headers. reset reason: connection termination"

// lost is the connection to the endpoint breaking.
func (r *request) lost() {
	tokens := r.tokens
	r.toEPP(func() {
		if r.status == 0 {
			r.responded(503, []byte(lostBeforeHeaders), true)
			return
		}
		r.toClient(func() {
			r.finish(flow.Broken, flow.D("reason", "the answer was cut short"), flow.D("status", r.status), flow.D("tokens", tokens))
		})
		r.tell(stream.Message{Kind: stream.PeerGone})
	})
}

// respond is a piece of the response on its way to the EPP.
func (r *request) respond(status int, body []byte, end bool) {
	if r.leg != nil {
		r.leg.respond(status, body, end)
		return
	}
	r.toEPP(func() { r.responded(status, body, end) })
}

// responded is a piece of the response at the EPP.
func (r *request) responded(status int, body []byte, end bool) {
	if r.status == 0 {
		r.status = status
		r.bare = end && len(body) == 0
		r.tell(stream.Message{Kind: stream.ResponseHeaders, Head: header.Of(":status", statusText(status), "content-type", r.contentType()), End: r.bare})
		if r.bare {
			return
		}
	}
	r.tell(stream.Message{Kind: stream.ResponseBody, Body: body, End: end})
}

// received is a piece of the response at the client.
func (r *request) received(body []byte, end bool) {
	if r.over {
		return
	}
	ok := r.status >= 200 && r.status < 300
	if ok && !r.first && len(body) > 0 {
		r.first = true
		r.record(flow.FirstTokenReceived, flow.D("status", r.status), flow.D("bytes", len(body)))
	}
	r.hear(body)
	if !end {
		return
	}
	outcome := flow.OutcomeOfStatus(r.status)
	details := []flow.Detail{flow.D("status", r.status), flow.D("tokens", r.tokens)}
	switch {
	case r.failed != "":
		outcome = flow.ServerError
		details = append(details, flow.D("reason", r.failed))
	case ok && !r.first:
		outcome = flow.Broken
		details = append(details, flow.D("reason", "the response is empty"))
	case ok && !r.whole:
		outcome = flow.Broken
		details = append(details, flow.D("reason", "the response was cut short"))
	case r.stream.Metadata() != "":
		details = append(details, flow.D("metadata", r.stream.Metadata()))
		if r.echo != r.stream.Metadata() {
			outcome = flow.Violated
		}
	}
	if outcome == flow.Completed {
		r.record(flow.LastTokenReceived, details...)
	}
	r.finish(outcome, details...)
}
