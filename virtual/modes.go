package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
)

// modes are what Envoy shows the picker of requests and responses, and how long it waits
// for an answer about a request: what the real Envoy does with BUFFERED, NONE and
// its message_timeout, as measured (live/stack tests it). What it does in the
// other modes looks alike from here, and so does a request that is shown whole, where
// nobody holds it.
type modes struct {
	request  stream.BodyMode
	response stream.BodyMode
	limit    machine.Time // 0 is none
	failOpen bool
	servers  []string // of which any serves a request that the picker says nothing of
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

// modesOf are a route's, where a policy says how its picker is asked; nil where none does.
func (f *front) modesOf(a *gateway.Asking) *modes {
	if a == nil || f.asking[a] != nil {
		return f.asking[a]
	}
	m := askedAs(*a)
	f.asking[a] = &m
	return &m
}

// modes are the route's, or those of the pool.
func (r *request) modes() *modes {
	if r.asked != nil {
		return r.asked
	}
	return &r.pool.modes
}

// sees says whether the picker is shown the request's body before it answers.
func (m *modes) sees() bool { return m.request == stream.FullDuplex || m.request == stream.Buffered }

// seen is how a request goes on between Envoy and the picker.
type seen struct {
	replied bool // the picker has said where the request goes, or answered
	past    bool // what comes of the answer goes past the picker
	alone   bool // no picker has the request
	givenUp bool // Envoy does not hear what the picker says
	kept    []func(end bool)
}

// awaited has Envoy wait for the picker no longer than it may.
func (r *request) awaited() {
	if limit := r.modes().limit; limit > 0 {
		r.w.queue.Push(r.w.now.Add(limit), machine.ClassTimer, event{then, r.unanswered})
	}
}

// unanswered is Envoy giving the picker up: the client gets a 504 without a
// body, or the request goes to any server.
func (r *request) unanswered() {
	if r.seen.replied || r.over || r.stream.Result() != stream.Running {
		return
	}
	r.seen.givenUp = true
	r.tell(stream.Message{Kind: stream.PeerGone})
	if !r.modes().failOpen {
		r.refused(proxy.SlowPicker())
		return
	}
	r.serveWithout()
}

// waits keeps a piece of a response that the picker is shown whole, in bytes, until
// the last.
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
