package disagg

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// Course is the way through a sidecar that all requests take which differ only in their prompts, where the sidecar
// decides nothing per request. It has an optional prefill leg, whose answer the sidecar reads whole, and a decode leg,
// whose answer the client gets as it arrives.
type Course struct {
	// Prefill and Decode are the fields of the legs' bodies. Prefill is nil where there is only a decode leg.
	Prefill, Decode *described.Fields
	// Fetch is the connector's, where there is a prefill leg.
	Fetch func(*connector.Kept) *connector.Remote
}

// Acting lists the client headers that may change a request's course.
var Acting = []string{PrefillerHeader, EncoderHeader, SourceHeader, RankHostHeader, SessionHeader}

// Direct reports whether requests may pass without a ClientRequest each: no state that they share changes their course.
func (c *Config) Direct() bool {
	return c.Frontend == nil && c.Sessions == nil && c.Allow == nil && c.ChunkTokens == 0 &&
		c.PromptThreshold == 0 && c.Trace == nil
}

// Course finds the course of such requests with one ClientRequest that has the fields of d. The prefiller may be nil.
// It returns false where each request needs its own ClientRequest. Direct must be true.
func (c *Config) Course(path string, d *described.Body, prefiller *Target) (course Course, ok bool) {
	own := *c
	own.Recorder, own.Engines = nil, nil
	r := Request{Number: 1, ID: "course", Attempt: 1, Method: "POST", Path: path}
	if course.Fetch = c.connector().Fetch; prefiller != nil {
		if course.Fetch == nil {
			return course, false
		}
		r.Prefillers = []Target{*prefiller}
	}
	x, fx := New(&own, r), new(Effects)
	// play returns the only effect of a message.
	play := func(m Message) Action {
		fx.Reset()
		if x.Input(0, m, fx); len(fx.List) != 1 || x.prefill.retryAt > 0 {
			return nil
		}
		return fx.List[0].Do
	}
	call, called := play(Start{Described: d}).(Call)
	if called && call.Leg.Kind == Prefill && prefiller != nil {
		if !call.Leg.plain(prefiller.String()) {
			return course, false
		}
		course.Prefill = call.Leg.Described.Fields
		if collect, collects := play(Head{Leg: 1, Status: 200, ContentType: "application/json"}).(Collect); !collects ||
			collect.Leg != 1 {
			return course, false
		}
		call, called = play(Whole{Leg: 1, Body: []byte(`{"usage":{"prompt_tokens":1},"kv_transfer_params":{}}`)}).(Call)
	} else if prefiller != nil {
		return course, false
	}
	if !called || call.Leg.Kind != Decode || call.Leg.Rank > 0 || !call.Leg.plain((Target{}).String()) {
		return course, false
	}
	course.Decode = call.Leg.Described.Fields
	deliver, delivers := play(
		Head{Leg: call.Leg.ID, Status: 200, ContentType: "text/event-stream", Fetched: machine.Millisecond}).(Deliver)
	return course, delivers && len(deliver.Before) == 0 && x.PassesAnswer(call.Leg.ID)
}

// plain reports whether a leg goes to this server, described and not concurrently.
func (l *Leg) plain(target string) bool {
	return l.Described != nil && l.Target.String() == target && !l.Concurrent && !l.Detached && l.Path == "" &&
		l.Method == ""
}
