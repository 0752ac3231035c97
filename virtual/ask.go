package virtual

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
	"github.com/windtunnel/windtunnel/scenario"
)

// ask is what a request's body asks of a model server, as a live one reads it.
type ask struct {
	stream   bool
	max      int // tokens of answer; 0 leaves it to the server
	prompt   []uint32
	adapter  engine.AdapterID
	lora     string // the adapter's name
	hold     bool   // keep the blocks for another server
	document bool   // and name them by document 002's kv_metadata
	session  string // for kv_metadata
	handle   string // kv_handle, or empty
	key      string // what another server asks for the blocks by, where it is told beforehand
	fromKey  string // and what this one asks by
	room     string // SGLang's, at the server meet
	meet     string
	remote   engine.RemoteKV // Tokens 0: nothing is to be fetched
	bad      *openai.Error   // why there is no answer
}

// read reads a chat request.
func (w *world) read(body []byte) *ask {
	c, bad := openai.ParseChat(body)
	if bad != nil {
		return &ask{bad: bad}
	}
	a := &ask{stream: c.Stream, hold: c.KVMetadata, document: c.KVMetadata, session: c.SessionID, handle: c.KVHandle}
	if n, ok := c.Limit(); ok {
		a.max = n
	}
	if c.Model != w.model {
		id, known := w.adapters[c.Model]
		if !known {
			return &ask{bad: openai.UnknownModel(c.Model)}
		}
		a.adapter, a.lora = id, c.Model
	}
	turns := make([]tokens.Message, len(c.Messages))
	for i, m := range c.Messages {
		turns[i] = tokens.Message{Role: m.Role, Content: m.Content.Text}
	}
	a.prompt = tokens.Packed{}.Encode(nil, tokens.TemplateFor(w.model).Render(turns, "", true))
	switch {
	case a.handle != "":
		a.bad = a.goOn(w)
	case len(c.KVTransferParams) > 0:
		a.params(w, c.KVTransferParams)
	case len(c.BootstrapRoom) > 0 && w.wires != nil && w.wires.profile.Name == link.SGLang.Name:
		a.room = "room " + string(c.BootstrapRoom)
		_ = json.Unmarshal(c.BootstrapHost, &a.meet) // the sidecar wrote it
	}
	return a
}

// at makes SGLang's request, which both servers get, that of one of them: where
// the named server is this one it is prefilled, elsewhere it is decoded.
func (a *ask) at(s *server) {
	if a.room == "" {
		return
	}
	if host, _, _ := strings.Cut(s.endpoint, ":"); host == a.meet {
		a.hold, a.key, a.max = true, a.room, 1
		return
	}
	a.remoteAt(s.w, a.meet, a.room)
}

// remoteAt fetches the prompt's cache from the server at a host, by a key.
func (a *ask) remoteAt(w *world, host, key string) {
	if from := w.byAddr[host+":8000"]; from != nil {
		a.fromKey = key
		a.remote = engine.RemoteKV{From: engine.EngineID(from.index), Tokens: len(a.prompt)}
	}
}

// params reads what kv_transfer_params say to engines that are at hand.
func (a *ask) params(w *world, raw []byte) {
	var q struct {
		Decode  bool     `json:"do_remote_decode"`
		Prefill bool     `json:"do_remote_prefill"`
		Engine  string   `json:"remote_engine_id"`
		Blocks  []uint64 `json:"remote_block_ids"`

		Transfer  string `json:"transfer_id"`
		Bootstrap string `json:"remote_bootstrap_addr"`
		Decoder   *peer  `json:"remote_decoder"`
		Prefiller *peer  `json:"remote_prefiller"`
	}
	if json.Unmarshal(raw, &q) != nil {
		return // another connector's
	}
	a.hold = a.hold || q.Decode || q.Decoder != nil
	switch {
	case q.Decoder != nil:
		a.key = "peer " + q.Decoder.Request
	case q.Prefiller != nil:
		a.remoteAt(w, q.Prefiller.Host, "peer "+q.Prefiller.Request)
	case q.Transfer != "" && q.Decode:
		a.key = "transfer " + q.Transfer
	case q.Transfer != "" && q.Prefill:
		host, _, _ := strings.Cut(strings.TrimPrefix(q.Bootstrap, "http://"), ":")
		a.remoteAt(w, host, "transfer "+q.Transfer)
		return
	}
	if from := w.byName[q.Engine]; q.Prefill && from != nil && len(q.Blocks) > 0 {
		a.remote = engine.RemoteKV{From: engine.EngineID(from.index), Handle: q.Blocks[0], Tokens: len(a.prompt)}
	}
}

// peer is one end of the offloading connector's kv_transfer_params.
type peer struct {
	Request string `json:"kv_request_id"`
	Host    string `json:"remote_host"`
}

// handleOf is document 002's name of blocks that a server holds.
func handleOf(s *server, held *engine.Effect, promptTokens int) string {
	host, _, _ := strings.Cut(s.endpoint, ":")
	return fmt.Sprintf("kv://%s:%d/%s/%d-%d-%d", host, scenario.SideChannelPort, s.name, held.Handle, held.Count, promptTokens)
}

// goOn puts the prompt behind the tokens that a handle stands for. What they
// are nobody says; that they are those of the handle is enough for the cache.
func (a *ask) goOn(w *world) *openai.Error {
	text, _ := strings.CutPrefix(a.handle, "kv://")
	parts := strings.Split(text, "/")
	var handle uint64
	var count, known int
	bad := len(parts) != 3
	if !bad {
		n, err := fmt.Sscanf(parts[2], "%d-%d-%d", &handle, &count, &known)
		bad = err != nil || n != 3 || known < 1 || known > 1<<24 || w.byName[parts[1]] == nil
	}
	if bad {
		return openai.Errorf(400, "kv_handle", "kv_handle %.100q names no blocks; expected a handle that a prefill gave in kv_metadata.", a.handle)
	}
	d := machine.DrawFor(0, "server", "kv_handle", a.handle)
	prompt := make([]uint32, known, known+len(a.prompt))
	for i := range prompt {
		prompt[i] = uint32(d.Uint64())
	}
	a.prompt = append(prompt, a.prompt...)
	a.remote = engine.RemoteKV{From: engine.EngineID(w.byName[parts[1]].index), Handle: handle, Tokens: known}
	return nil
}

// fits says what is wrong with the lengths for an engine.
func (a *ask) fits(maxModelLen int) *openai.Error {
	switch n := len(a.prompt); {
	case a.bad != nil:
		return a.bad
	case n >= maxModelLen:
		return openai.TooLong(maxModelLen, n)
	case a.max > 0 && n+a.max > maxModelLen:
		return openai.OutputTooLong(maxModelLen, a.max, n)
	}
	return nil
}
