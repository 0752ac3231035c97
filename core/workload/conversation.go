package workload

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
)

// maxHistory bounds what one conversation remembers, in bytes of text.
const maxHistory = 64 << 20

// Conversation is requests in a row: each goes on from what was said before.
// Most workloads have conversations of one request.
type Conversation struct {
	// Index counts conversations from 0, First is the number of its first
	// request, and Turns how many requests it has.
	Index, First, Turns int

	c       *Config
	turn    int
	model   string
	user    string // what the turn under way says
	history []message
	size    int
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Conversation makes the conversation with this number, whose first request has
// the number first; nil when the workload has no such request any more. A
// driver asks for one after the other, each beginning where the last one ended.
func (c *Config) Conversation(index, first int) *Conversation {
	if c.Requests > 0 && first >= c.Requests {
		return nil
	}
	v := &Conversation{Index: index, First: first, Turns: 1, c: c, model: c.adapter(index)}
	if c.Turns != nil {
		d := machine.NewDraw(c.Seed, "client", "turns", uint64(index))
		v.Turns = max(1, int(c.Turns(&d)))
	}
	if c.Requests > 0 {
		v.Turns = min(v.Turns, c.Requests-first)
	}
	return v
}

// adapter is the model that a conversation asks for: the base model, or one of
// the adapters by their shares.
func (c *Config) adapter(index int) string {
	if len(c.Adapters) == 0 {
		return c.Model
	}
	d := machine.NewDraw(c.Seed, "client", "adapter", uint64(index))
	at := d.Float64()
	for _, a := range c.Adapters {
		if at -= a.Share; at < 0 {
			return a.Name
		}
	}
	return c.Model
}

// Request makes the request whose turn it is.
func (v *Conversation) Request() Request {
	c, index := v.c, v.First+v.turn
	if c.Recorded != nil {
		return c.Recorded[index].request(v.model, index)
	}
	v.user = c.prompt(index)
	if n := len(c.Prefixes); n > 0 && v.turn == 0 {
		d := machine.NewDraw(c.Seed, "client", "group", uint64(index))
		v.user = c.Prefixes[d.Intn(n)] + v.user
	}
	messages := append(v.history[:len(v.history):len(v.history)], message{"user", v.user})
	r := Request{ID: c.ID(index), Index: index, Path: "/v1/chat/completions", Body: c.body(v.model, messages)}
	if c.Completions {
		r.Path = "/v1/completions"
	}
	r.Header = c.headers(index)
	if c.SessionHeader != "" {
		r.Header = append(r.Header, header.Header{Name: c.SessionHeader, Value: v.Session()})
	}
	return r
}

// Session is what the conversation is called in Config.SessionHeader.
func (v *Conversation) Session() string {
	return fmt.Sprintf("conv-%d-%06d", v.c.Seed, v.Index+1)
}

// More tells whether there is another turn after this one.
func (v *Conversation) More() bool { return v.turn+1 < v.Turns }

// Next ends a turn: answer is what was said, and o how its request ended. What
// was not answered whole is not spoken of again. It returns how long the user thinks
// before the next request.
func (v *Conversation) Next(answer string, o flow.Outcome) machine.Time {
	if n := len(v.user) + len(answer); o == flow.Completed && v.size+n <= maxHistory {
		v.history = append(v.history, message{"user", v.user}, message{"assistant", answer})
		v.size += n
	}
	v.turn++
	if v.c.ThinkTime == nil {
		return 0
	}
	d := machine.NewDraw(v.c.Seed, "client", "think time", uint64(v.First+v.turn))
	return machine.Time(v.c.ThinkTime(&d))
}

// body is the JSON of a request.
func (c *Config) body(model string, messages []message) []byte {
	body := struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages,omitempty"`
		Prompt   string    `json:"prompt,omitempty"`
		Stream   bool      `json:"stream,omitempty"`
		Max      int       `json:"max_tokens,omitempty"`
	}{Model: model, Messages: messages, Stream: c.Stream, Max: c.MaxTokens}
	if c.Completions {
		body.Messages, body.Prompt = nil, messages[len(messages)-1].Content
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		panic(err) // strings, a bool and an int always encode
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(c.Fields) > 0 {
		out = append(append(append(out[:len(out)-1], ','), c.Fields...), '}')
	}
	return out
}

// Leaves tells whether the client goes away on purpose during the request with
// this number, and how long after it was sent.
func (c *Config) Leaves(index int) (after machine.Time, leaves bool) {
	l := &c.Leaving
	if l.After == nil {
		return 0, false
	}
	d := machine.NewDraw(c.Seed, "client", "leaving", uint64(index))
	all := l.Share == 0 && len(l.Numbers) == 0
	if drawn := d.Float64() < l.Share; !all && !drawn && !l.Numbers[index] {
		return 0, false
	}
	return machine.Time(l.After(&d)), true
}
