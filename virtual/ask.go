package virtual

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
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
	answers  bool   // and the answer names them all the same
	room     string // SGLang's, at the server meet
	meet     string
	remote   *enginecore.Remote // nil: nothing is to be fetched
	bad      *openai.Error      // why there is no answer
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
		a.bad = a.goOn()
	case len(c.KVTransferParams) > 0:
		a.params(c.KVTransferParams)
	case len(c.BootstrapRoom) > 0 && w.net != nil && w.net.net.Profile().Name == link.SGLang.Name:
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
	a.remote = &enginecore.Remote{Host: a.meet, Key: a.room}
}

// params reads what kv_transfer_params say to engines that are at hand.
func (a *ask) params(raw []byte) {
	var q struct {
		Decode  bool   `json:"do_remote_decode"`
		Prefill bool   `json:"do_remote_prefill"`
		Engine  string `json:"remote_engine_id"`
		Blocks  []int  `json:"remote_block_ids"`
		Host    string `json:"remote_host"`
		Port    int    `json:"remote_port"`

		Transfer  string  `json:"transfer_id"`
		Bootstrap string  `json:"remote_bootstrap_addr"`
		Notify    any     `json:"remote_notify_port"`
		Decoder   *peerKV `json:"remote_decoder"`
		Prefiller *peerKV `json:"remote_prefiller"`
	}
	if json.Unmarshal(raw, &q) != nil {
		return // another connector's
	}
	a.hold = a.hold || q.Decode || q.Decoder != nil
	switch {
	case q.Decoder != nil:
		a.key = "peer " + q.Decoder.Request
	case q.Prefiller != nil:
		a.remote = &enginecore.Remote{Host: q.Prefiller.Host, Key: "peer " + q.Prefiller.Request}
	case q.Transfer != "" && q.Decode:
		a.key, a.answers = "transfer "+q.Transfer, q.Notify != nil
	case q.Transfer != "" && q.Prefill && q.Notify != nil && len(q.Blocks) == 0: // MoRI-IO, both legs at once
		a.remote = &enginecore.Remote{Host: q.Host, Key: "transfer " + q.Transfer}
	case q.Transfer != "" && q.Prefill && q.Bootstrap != "":
		host, _, _ := strings.Cut(strings.TrimPrefix(q.Bootstrap, "http://"), ":")
		a.remote = &enginecore.Remote{Host: host, EngineID: q.Engine, Key: "transfer " + q.Transfer}
	case q.Prefill && q.Engine != "" && q.Host != "" && len(q.Blocks) > 0:
		a.remote = &enginecore.Remote{Host: q.Host, Port: q.Port, EngineID: q.Engine, Blocks: enginecore.BlocksOf(q.Blocks)}
	}
}

// peerKV is one end of the offloading connector's kv_transfer_params.
type peerKV struct {
	Request string `json:"kv_request_id"`
	Host    string `json:"remote_host"`
}

// handleOf is document 002's name of blocks that a server holds.
func handleOf(s *server, h *enginecore.Hold) string {
	return fmt.Sprintf("kv://%s:%d/%s/%d-%d-%d", s.host(), scenario.SideChannelPort, s.core.Config().EngineID, h.Blocks.First, h.Blocks.Count, h.Tokens)
}

func (s *server) host() string {
	host, _, _ := strings.Cut(s.endpoint, ":")
	return host
}

// goOn puts the prompt behind the tokens that a handle stands for. What they
// are nobody says; that they are those of the handle is enough for the cache.
func (a *ask) goOn() *openai.Error {
	text, _ := strings.CutPrefix(a.handle, "kv://")
	parts := strings.Split(text, "/")
	var blocks enginecore.Blocks
	var known int
	bad := len(parts) != 3
	if !bad {
		n, err := fmt.Sscanf(parts[2], "%d-%d-%d", &blocks.First, &blocks.Count, &known)
		bad = err != nil || n != 3 || known < 1 || known > 1<<24
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
	host, _, _ := strings.Cut(parts[0], ":")
	a.remote = &enginecore.Remote{Host: host, Port: scenario.SideChannelPort, EngineID: parts[1], Blocks: blocks, Tokens: known}
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
