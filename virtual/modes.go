package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
)

// modes determine which parts of requests and responses Envoy sends to the picker, and how long it waits for an answer:
// the real Envoy's behaviour with BUFFERED, NONE and message_timeout, as measured (live/stack tests it). The other
// modes do not differ in virtual time.
type modes struct {
	request  stream.BodyMode
	response stream.BodyMode
	limit    machine.Time // 0 is none
	failOpen bool
	servers  []string // healthy servers for requests without a picker
}

func modesOf(p *plan.Pool) modes {
	m := askedAs(p.Picker.Asking)
	for i := range p.Decoders {
		m.servers = append(m.servers, address(p.Index, i))
	}
	return m
}

func askedAs(a gateway.Asking) modes {
	m := proxy.Modes(a)
	return modes{request: m.Request, response: m.Response, limit: proxy.AnswerLimit(a), failOpen: a.FailOpen}
}

// modesOf returns the modes of a route whose policy sets them, or nil.
func (f *front) modesOf(a *gateway.Asking) *modes {
	if a == nil || f.asking[a] != nil {
		return f.asking[a]
	}
	m := askedAs(*a)
	f.asking[a] = &m
	return &m
}

// modes returns the route's modes, or the pool's.
func (r *request) modes() *modes {
	if r.asked != nil {
		return r.asked
	}
	return &r.pool.modes
}

// sees reports whether the picker gets the request's body before it answers.
func (m *modes) sees() bool { return m.request == stream.FullDuplex || m.request == stream.Buffered }

// seen is the state of a request between Envoy and the picker.
type seen struct {
	replied bool // the picker has chosen an endpoint, or answered
	past    bool // the response bypasses the picker
	alone   bool // no picker has the request
	givenUp bool // Envoy ignores the picker
	kept    []func(end bool)
}

// awaited starts Envoy's limit for the picker's answer.
func (r *request) awaited() {
	if limit := r.modes().limit; limit > 0 {
		r.w.queue.Push(r.w.now.Add(limit), machine.ClassTimer, event{then, r.unanswered})
	}
}

// unanswered ends the wait for the picker: the client gets a 504 without a body, or the request goes to any server.
func (r *request) unanswered() {
	if r.seen.replied || r.over || r.stream.Result() != stream.Running {
		return
	}
	r.seen.givenUp = true
	r.toStream(stream.Message{Kind: stream.PeerGone})
	if !r.modes().failOpen {
		r.refused(proxy.SlowPicker())
		return
	}
	r.serveWithout()
}

// waits keeps the pieces of a response until the last one, and then sends all of them to the picker.
func (r *request) waits(end bool, piece func(end bool)) {
	r.seen.kept = append(r.seen.kept, piece)
	if !end {
		return
	}
	for i, f := range r.seen.kept {
		f(i == len(r.seen.kept)-1)
	}
	r.seen.kept = nil
}
