package modelserver

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// Direct is the completion of a described request that needs no Response: no fault is injected, the request is not held
// open, and the caller needs only the number of tokens of the answer. A Direct submits the same to the engine as a
// Response does.
type Direct struct {
	Sequence Sequence
	// Streams reports whether the first token leaves before the end of the answer.
	Streams bool
	// StartedAt is the time at which the engine began the prompt, FirstAt the time of the first token, and EndedAt the
	// time of the end. StartedAt and FirstAt are machine.Never until then.
	StartedAt, FirstAt, EndedAt machine.Time
	// Cached is the number of prompt tokens found in the cache, and Tokens the number of output tokens.
	Cached, Tokens int
	// Reason is the engine's reason for the end.
	Reason engine.Reason

	said content
}

// ReadsAs reports whether another server reads every request as this one does.
func (r *Reader) ReadsAs(o *Reader) bool {
	return r.Engine.ReadsAs(o.Engine) && *r.State.Draws() == *o.State.Draws() && r.KVRole == o.KVRole &&
		r.OwnNames == o.OwnNames
}

// Leg is the purpose of a request that a sidecar sends.
type Leg uint8

// The legs of a direct request. Whole is a client's own request, read in full.
const (
	Whole   Leg = iota
	Prefill     // keeps the blocks of the prompt for another server
	Decode      // fetches them from the server that Fetch names
)

// Read parses a request, or one leg of it. The next request reuses the memory of head. The last argument makes the
// engine report progress before the end. Read returns false if the request needs a Response: if it is invalid, or asks
// for more than one completion.
func (x *Direct) Read(r *Reader, head *Head, api *API, d *described.Body, leg Leg, progress bool) bool {
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
	x.Sequence = Sequence{prompt: &q.Prompts[0], said: &x.said, First: q.Stream || progress, Start: progress}
	bad = r.fillSequence(q, &x.Sequence)
	x.Sequence.prompt = nil // only KV events contain its tokens
	return bad == nil
}

var nothingKept connector.Params

// MayFetch reports whether the server may fetch a cache from a host.
func (x *Direct) MayFetch(r *Reader, host string) bool {
	return r.mayFetch(&connector.Remote{Host: host}) == nil
}

// Fetch makes a Decode leg fetch a cache that another server keeps; nil fetches none.
func (x *Direct) Fetch(from *connector.Remote) { x.Sequence.Remote = from }

// PromptTokens returns the length of the prompt.
func (x *Direct) PromptTokens() int { return x.Sequence.Submit.PromptTokens }

// Said returns the whole answer if it consists of words.
func (x *Direct) Said() (described.Text, bool) { return x.said.words(x.Tokens) }

// Text returns the text of the whole answer.
func (x *Direct) Text() string { return x.said.visible(x.Tokens) }

// ApplyEffect processes an effect of the engine. It returns false if the effect does not occur in a request that is
// answered completely.
func (x *Direct) ApplyEffect(f *engine.Effect) bool {
	switch f.Kind {
	case engine.PrefillStarted:
		if x.StartedAt == machine.Never { // a preempted request starts twice
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
