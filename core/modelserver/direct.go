package modelserver

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// Direct is the completion of a described request that is answered without a
// Response: nothing goes wrong with it on purpose, it is not held open, and nobody reads more
// of its answer than how many tokens there are. The engine is asked for the same as a
// Response would ask for.
type Direct struct {
	Sequence Sequence
	// Streams says that the answer's first token leaves before its end.
	Streams bool
	// StartedAt is when the engine began the prompt, and FirstAt when it had the first
	// token: machine.Never until then. EndedAt is when it ended.
	StartedAt, FirstAt, EndedAt machine.Time
	// Cached is how many of the prompt's tokens were, and Tokens how many there are of
	// the answer.
	Cached, Tokens int
	// Reason is why it ended.
	Reason engine.Reason

	said content
}

// ReadsAs says whether another server reads a request as this one does.
func (r *Reader) ReadsAs(o *Reader) bool {
	return r.Engine.ReadsAs(o.Engine) && *r.State.Draws() == *o.State.Draws() && r.KVRole == o.KVRole &&
		r.OwnNames == o.OwnNames
}

// Leg is what a request is for that a sidecar sends.
type Leg uint8

// The legs of a direct request. Of a client's own request everything is read.
const (
	Whole   Leg = iota
	Prefill     // has the blocks of the prompt kept for another server
	Decode      // fetches them: Fetch says whence
)

// Read reads what a request, or a leg of one, asks for, with a head whose memory the next one
// is read with; told says that somebody wants to know how far it
// is before it ends. It is false for a request that wants a Response: a bad one, or one
// that asks for more than one completion.
func (x *Direct) Read(r *Reader, head *Head, api *API, d *described.Body, leg Leg, told bool) bool {
	if head.kv = nil; head.room == nil {
		head.room = new(room)
	}
	switch read, known := d.ModelServer.(*fieldsRead); {
	case leg == Decode:
		head.kv = &nothingKept
	case leg == Prefill && known:
		head.kv = read.kv
	}
	q, bad := r.ReadDescribed(api, head, d)
	if read, known := d.ModelServer.(*fieldsRead); leg == Prefill && known && bad == nil && read.kv == nil {
		kv := q.KV.Params
		read.kv = &kv
	}
	if bad != nil || q.Choices() != 1 || q.Image || head.Threshold || q.KV.Threshold > 0 || !q.describable() {
		return false
	}
	x.Streams, x.StartedAt, x.FirstAt, x.EndedAt = q.Stream, machine.Never, machine.Never, machine.Never
	x.Cached, x.Tokens = 0, 0
	x.Sequence = Sequence{prompt: &q.Prompts[0], said: &x.said, First: q.Stream || told, Start: told}
	bad = r.fillSequence(q, &x.Sequence)
	x.Sequence.prompt = nil // only KV events have its tokens
	return bad == nil
}

var nothingKept connector.Params

// MayFetch says whether a cache may be fetched from a host.
func (x *Direct) MayFetch(r *Reader, host string) bool {
	return r.mayFetch(&connector.Remote{Host: host}) == nil
}

// Fetch has a Decode leg fetch a cache that another server keeps; nil is none.
func (x *Direct) Fetch(from *connector.Remote) { x.Sequence.Remote = from }

// PromptTokens is how many the prompt has.
func (x *Direct) PromptTokens() int { return x.Sequence.Submit.PromptTokens }

// Said is what a whole answer says, where that is words.
func (x *Direct) Said() (described.Text, bool) { return x.said.words(x.Tokens) }

// Text is what a whole answer says.
func (x *Direct) Text() string { return x.said.told(x.Tokens) }

// Hear takes what the engine says of it. It is false where that is not how a request
// goes that is answered wholly.
func (x *Direct) Hear(f *engine.Effect) bool {
	switch f.Kind {
	case engine.PrefillStarted:
		if x.StartedAt == machine.Never { // it comes again after a preemption
			x.StartedAt, x.Cached = f.At, int(f.Count)
		}
	case engine.FirstToken:
		x.FirstAt = f.At
	case engine.Finished:
		x.EndedAt, x.Tokens, x.Reason = f.At, int(f.Count), f.Reason
		return f.Reason == engine.ReasonStop || f.Reason == engine.ReasonLength
	case engine.Rejected, engine.Aborted:
		return false
	}
	return true
}
