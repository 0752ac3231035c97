package disagg

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// Session is one conversation in document 002's session manager.
type Session struct {
	ID     string
	Handle string // kv_handle
	Tokens int    // tokens_processed by the prefill
	// Messages is the number of messages that the cache covers, with the last answer. History is their fingerprint, and
	// Asked the fingerprint without that answer.
	Messages       int
	History, Asked uint64
	// Used is the time at which the last answer of its requests ended, on the run's clock.
	Used machine.Time
}

// Sessions is document 002's session cache. It evicts the least recently used session first.
type Sessions struct {
	by      *bounded.Store[string, Session]
	history map[uint64]string // fingerprint → session id
	turn    int               // picks the next prefiller
}

// maxSessionBytes limits the size of all sessions, because clients choose their names and prefill servers their
// handles.
const maxSessionBytes = 64 << 20

// NewSessions returns a cache for size sessions; 0 is DefaultSessions. It calls evicted for each session that it
// evicts; evicted may be nil.
func NewSessions(size int, evicted func(Session)) (*Sessions, error) {
	if size = cmp.Or(size, DefaultSessions); size < 1 {
		return nil, fmt.Errorf("session cache: %d sessions; expected at least 1", size)
	}
	s := &Sessions{history: map[uint64]string{}}
	s.by = bounded.New(bounded.Limits{Entries: size, Bytes: maxSessionBytes}, func(_ string, v Session) {
		s.forgetHistory(v)
		if evicted != nil {
			evicted(v)
		}
	})
	return s, nil
}

// List returns all sessions, the most recently used first.
func (s *Sessions) List() (out []Session) {
	for _, v := range s.by.All() {
		out = append(out, v)
	}
	slices.Reverse(out)
	return out
}

// Len returns the number of sessions kept.
func (s *Sessions) Len() int { return s.by.Len() }

// Prefillers returns the targets that PrefillerHeader names. In session mode, where the header names none, it returns
// the known targets, each time with the next prefiller first.
func (c *Config) Prefillers(header string, known func() []Target) []Target {
	named := ParseTargets(header)
	if len(named) > 0 || c.Sessions == nil {
		return named
	}
	list := known()
	if len(list) == 0 {
		return nil
	}
	n := 0
	c.locked(func() {
		n = c.Sessions.turn % len(list)
		c.Sessions.turn++
	})
	return slices.Concat(list[n:], list[:n])[:min(len(list), MaxTargets)]
}

// Get finds a session and makes it the most recently used.
func (s *Sessions) Get(id string) (Session, bool) { return s.by.Get(id) }

// Forget drops a session.
func (s *Sessions) Forget(id string) {
	if v, ok := s.by.Peek(id); ok {
		s.forgetHistory(v)
		s.by.Delete(id)
	}
}

func (s *Sessions) forgetHistory(v Session) {
	if s.history[v.History] == v.ID {
		delete(s.history, v.History)
	}
}

// sessionBytes is the size of a session without its names, in bytes.
const sessionBytes = 256

func (s *Sessions) put(v Session) {
	s.Forget(v.ID)
	if s.by.Put(v.ID, v, sessionBytes+2*len(v.ID)+len(v.Handle)) && v.Messages > 0 {
		s.history[v.History] = v.ID
	}
}

// find returns the session that covers the longest beginning of these messages.
func (s *Sessions) find(prints []uint64) (Session, bool) {
	for n := len(prints) - 1; n > 0; n-- {
		if id, ok := s.history[prints[n-1]]; ok {
			if v, ok := s.by.Get(id); ok && v.Messages == n {
				return v, true
			}
		}
	}
	return Session{}, false
}

// sessionRequest is a request in session mode.
type sessionRequest struct {
	id       string
	model    string
	messages []any
	prints   []uint64 // of the first 1, 2, … messages
	known    *Session // as it was found
	handle   string
	tokens   int
	prompt   int // the prefill leg's prompt tokens

	first   string // the prefill leg's token, with which the answer begins
	pending bool   // first has not been sent yet
	said    strings.Builder
	retried bool
}

// maxRemembered limits how many bytes of an answer are kept to recognise it later.
const maxRemembered = 1 << 20

// startSession decides as document 002's tree does: a known session goes to the local decode server, and a new one to a
// prefill server first.
func (x *ClientRequest) startSession() {
	t := &sessionRequest{model: x.body.Text("model")}
	t.messages, _ = x.body["messages"].([]any)
	h := fingerprint(0, t.model)
	for _, m := range t.messages {
		h = fingerprint(h, m)
		t.prints = append(t.prints, h)
	}
	t.id = x.r.Session
	t.id = cmp.Or(t.id, x.body.Text("session_id"))
	x.session = t
	var s Session
	var ok, named bool
	x.c.locked(func() {
		if t.id != "" {
			s, named = x.c.Sessions.Get(t.id)
			// Another conversation under the same name is a new one, and so is a conversation whose past the client has
			// changed. Only the answer may differ: the document identifies a session by its name, and the cache has the
			// answer that was sent.
			ok = named && s.Messages > 1 && s.Messages < len(t.prints) &&
				(s.History == t.prints[s.Messages-1] || s.Asked == t.prints[s.Messages-2] && t.answered(s.Messages-1))
			return
		}
		s, ok = x.c.Sessions.find(t.prints)
	})
	if ok {
		t.id, t.known, t.handle, t.tokens = s.ID, &s, s.Handle, s.Tokens
		x.mark = "session"
		x.decided("session", "", "the session "+t.id+" has its KV cache here")
		x.callDecode(Leg{Body: x.continuation(object{"new_messages": t.messages[s.Messages:]})})
		return
	}
	why := "no session " + t.id
	if t.id == "" {
		d := x.draw("session")
		t.id = "sess-" + d.Letters(12)
		why = "no session header, and no session has these messages with its answer"
	}
	if named {
		why = "the messages do not begin with those of session " + t.id
	}
	x.newSession(why)
}

// answered reports whether a message is an answer by its role.
func (t *sessionRequest) answered(i int) bool {
	m, _ := t.messages[i].(map[string]any)
	return m["role"] == "assistant"
}

func (x *ClientRequest) newSession(why string) {
	if len(x.prefill.targets) == 0 {
		x.session = nil
		x.passThrough("no prefill server is known")
		return
	}
	x.mark = "disaggregated"
	x.decided("disaggregated", x.prefill.targets[0].String(), why)
	x.prefill.tried = 0
	x.callPrefill()
}

// continuation returns the body of a decode leg: the client's parameters without the prompt, the handle, and the new
// messages.
func (x *ClientRequest) continuation(fields object) []byte {
	fields["kv_handle"] = x.session.handle
	for _, key := range []string{"messages", "prompt", "session_id", "kv_transfer_params"} {
		fields[key] = jsonobject.Absent
	}
	return x.body.With(fields).Write()
}

// prefill returns the body of the prefill leg.
func (t *sessionRequest) prefill(path string, body object) object {
	f := connector.OneToken(path, body)
	f["session_id"], f["return_kv_metadata"] = t.id, true
	return body.With(f)
}

// sessionPrefilled keeps the handle and continues at the local decode server.
func (x *ClientRequest) sessionPrefilled(l *leg, reply object, body []byte) {
	t := x.session
	choice := reply.First("choices")
	meta := choice.Object("kv_metadata")
	if meta == nil {
		meta = reply.Object("kv_metadata")
	}
	t.handle = meta.Text("kv_handle")
	t.tokens, _ = meta.Integer("tokens_processed")
	t.prompt, _ = reply.Object("usage").Integer("prompt_tokens")
	if t.handle == "" {
		x.session = nil
		x.mark = "local"
		x.decided("local", "", "the prefiller returned no kv_handle")
		x.callDecode(Leg{Original: true})
		return
	}
	for _, said := range []string{choice.Object("delta").Text("content"), choice.Object("message").Text("content"),
		choice.Text("text")} {
		t.first = cmp.Or(t.first, said)
	}
	x.keep(0, 0, 0)
	fields := object{"continue_from": t.first}
	for _, key := range []string{"max_tokens", "max_completion_tokens"} {
		if n, ok := x.body.Integer(key); ok && n > 1 {
			fields[key] = n - 1
		} else if ok && !x.body.Flag("stream") {
			x.finish(l, body) // the client asked for one token, and the prefill leg made it
			return
		}
	}
	if n, ok := x.body.Integer("min_tokens"); ok && n > 0 {
		fields["min_tokens"] = n - 1 // an engine refuses a minimum above max_tokens
	}
	t.pending = t.first != ""
	x.callDecode(Leg{Body: x.continuation(fields)})
}

// keep stores the session in the cache.
func (x *ClientRequest) keep(messages int, history, asked uint64) {
	t := x.session
	x.c.locked(func() {
		x.c.Sessions.put(Session{ID: t.id, Handle: t.handle, Tokens: t.tokens, Messages: messages, History: history,
			Asked: asked, Used: x.now})
	})
	if messages == 0 {
		x.record(record.SessionKept, "", record.D("session", t.id), record.D("kv_handle", t.handle),
			record.D("tokens", t.tokens))
	}
}

// sessionRefused handles an error of the decode server. If the server no longer knows the handle, the sidecar prefills
// again, once.
func (x *ClientRequest) sessionRefused(l *leg, body []byte) {
	t := x.session
	unknown := l.status == 404 || l.status == 410 || l.status == 400 && strings.Contains(string(body), "kv_handle")
	x.c.locked(func() { x.c.Sessions.Forget(t.id) })
	if unknown && !t.retried {
		t.retried = true
		t.known = nil
		x.record(record.SessionForgotten, "", record.D("session", t.id),
			record.D("reason", "the decode server does not know its kv_handle"))
		x.newSession("its kv_handle is unknown")
		return
	}
	x.session = nil
	x.finish(l, body)
}

// endSession stores the messages so far, so that the sidecar recognises the next one.
func (x *ClientRequest) endSession() {
	t := x.session
	if t == nil || len(t.prints) == 0 || t.handle == "" || t.said.Len() == 0 {
		return
	}
	asked := t.prints[len(t.prints)-1]
	h := fingerprint(asked, map[string]any{"role": "assistant", "content": t.said.String()})
	x.keep(len(t.prints)+1, h, asked)
}

// change adds the prefill leg's token to the beginning of the answer.
func (t *sessionRequest) change(document bool) *Change {
	return &Change{document: document, session: t}
}

// event changes an event of the answer. The client gets the returned bytes before the event.
func (t *sessionRequest) event(o object) []byte {
	choice := o.First("choices")
	var before []byte
	if t.pending {
		t.pending = false
		first := choice.With(object{"finish_reason": nil})
		if _, text := choice["text"]; text {
			first["text"] = t.first
		} else {
			first["delta"] = object{"content": t.first}
		}
		if _, ok := first["index"]; !ok {
			first["index"] = 0
		}
		before = sse.Append(nil, o.With(object{"choices": []any{first}, "usage": jsonobject.Absent}).Write())
		t.say(t.first)
	}
	t.say(choice.Object("delta").Text("content"))
	t.say(choice.Text("text"))
	return before
}

// document changes the whole answer, where it is one document.
func (t *sessionRequest) document(o object) bool {
	choice := o.First("choices")
	if choice == nil {
		return false
	}
	message := choice.Object("message")
	said := message.Text("content") + choice.Text("text")
	t.say(t.first + said)
	if !t.pending {
		return false
	}
	t.pending = false
	if message != nil {
		message["content"] = t.first + said
	} else {
		choice["text"] = t.first + said
	}
	if usage := o.Object("usage"); usage != nil {
		number := func(n int) json.Number { return json.Number(strconv.Itoa(n)) }
		made, _ := usage.Integer("completion_tokens")
		if t.prompt > 0 {
			usage["prompt_tokens"] = number(t.prompt)
		}
		prompt, _ := usage.Integer("prompt_tokens")
		usage["completion_tokens"], usage["total_tokens"] = number(made+1), number(prompt+made+1)
	}
	return true
}

func (t *sessionRequest) say(s string) {
	if t.said.Len()+len(s) <= maxRemembered {
		t.said.WriteString(s)
	}
}

// fingerprint chains a message to those before it. It covers role and content, and leaves out ids and other fields that
// clients do not send back.
func fingerprint(before uint64, message any) uint64 {
	if m, ok := message.(map[string]any); ok {
		message = []any{m["role"], m["content"], m["tool_calls"], m["tool_call_id"]}
	}
	b, err := json.Marshal(message)
	if err != nil {
		return before
	}
	var d xxhash.Digest
	d.ResetWithSeed(before)
	_, _ = d.Write(b) // hash writers never fail
	return d.Sum64()
}
