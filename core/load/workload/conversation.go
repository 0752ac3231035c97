package workload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// maxHistory bounds the history of a conversation, in bytes of text.
const maxHistory = 64 << 20

// Conversation is a series of requests, each with the earlier turns in it. Most workloads have conversations of one
// request.
type Conversation struct {
	// Index counts conversations from 0. First is the number of its first request. Turns is its number of requests.
	Index, First, Turns int

	c       *Config
	turn    int
	model   string
	user    string // the user's text of the current turn
	history []message
	size    int

	// For a described conversation, instead of user and history.
	described bool
	said      described.Message
	past      *described.History
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Conversation returns the conversation with this number, whose first request has the number first, or nil after the
// last request. Drivers ask for conversations in order, each with the first request after the previous one's last.
func (c *Config) Conversation(index, first int) *Conversation {
	return c.ConversationIn(new(Conversation), index, first)
}

// ConversationIn is Conversation in the memory of one that has ended.
func (c *Config) ConversationIn(v *Conversation, index, first int) *Conversation {
	if c.Requests > 0 && first >= c.Requests {
		return nil
	}
	own := c.class(index)
	*v = Conversation{Index: index, First: first, Turns: own.turns(index), c: own, model: own.adapter(index),
		described: own.fields != nil}
	if c.Requests > 0 {
		v.Turns = min(v.Turns, c.Requests-first)
	}
	return v
}

// turns returns the number of requests of a conversation.
func (c *Config) turns(index int) int {
	if c.Turns == nil {
		return 1
	}
	d := machine.NewDraw(c.Seed, "client", "turns", uint64(index))
	return max(1, int(c.Turns(&d)))
}

// adapter returns the model of a conversation: the base model, or one of the adapters by their shares.
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

// Request returns the request of the current turn.
func (v *Conversation) Request() Request {
	c, index := v.c, v.First+v.turn
	if c.Recorded != nil {
		x := &c.Recorded[index]
		r := x.request(cmp.Or(x.Model, v.model), index, c.recordings)
		r.ID = cmp.Or(r.ID, c.ID(index))
		return r
	}
	group := -1 // none
	if n := len(c.Prefixes); n > 0 && v.turn == 0 {
		d := machine.NewDraw(c.Seed, "client", "group", uint64(index))
		group = d.Intn(n)
	}
	r := Request{ID: c.ID(index), Index: index, Path: cmp.Or(c.Path, c.API.Path()), Host: c.Host, GRPC: c.API.GRPC(),
		Model: v.model, Class: c.Class, SLO: c.SLO}
	as := asked{v.model, c.output(index)}
	if v.described {
		v.said = c.say(index, group)
		if v.said.Len() > 0 || c.API != Completions { // an empty prompt has no field
			r.Described = described.NewBody(c.fieldsOf(as), v.past, v.said)
			r.Described.Once = v.Turns == 1
			r.Described.ID = r.ID
		} else {
			r.Body = c.body(as, []message{{"user", ""}})
		}
	} else {
		if v.user = c.prompt(index); group >= 0 {
			v.user = c.Prefixes[group] + v.user
		}
		switch c.API {
		case Generate:
			after := c.sampling(as)
			r.Body = append(append(described.AppendGenerate(nil, r.ID, len(v.user), len(after)), v.user...), after...)
		case Embed:
			r.Body = vllmgrpc.AppendMessage(nil,
				&vllmgrpc.EmbedRequest{RequestId: r.ID,
					Tokenized: &vllmgrpc.TokenizedInput{InputIds: c.Tokenizer.Encode(nil, v.user)}})
		default:
			r.Body = c.body(as, append(v.history[:len(v.history):len(v.history)], message{"user", v.user}))
		}
	}
	r.Header = c.headers(index)
	if c.SessionHeader != "" {
		r.Header = append(r.Header, header.Header{Name: c.SessionHeader, Value: v.Session()})
	}
	return r
}

// Session returns the conversation's name for Config.SessionHeader.
func (v *Conversation) Session() string {
	return fmt.Sprintf("conv-%d-%06d", v.c.Seed, v.Index+1)
}

// Streams reports whether requests ask for server-sent events.
func (v *Conversation) Streams() bool { return v.c.Stream }

// More reports whether there is another turn after this one.
func (v *Conversation) More() bool { return v.turn+1 < v.Turns }

// Next ends a turn with the text of its answer and the outcome of its request. Later turns leave out a turn without a
// whole answer. It returns the user's pause before the next request.
func (v *Conversation) Next(answer string, o record.Outcome) machine.Time {
	if v.described && (o != record.Completed || plain(answer)) {
		return v.NextDescribed(described.Literal(answer), o)
	}
	v.write()
	if n := len(v.user) + len(answer); o == record.Completed && v.size+n <= maxHistory {
		v.history = append(v.history, message{"user", v.user}, message{"assistant", answer})
		v.size += n
	}
	return v.next()
}

// NextDescribed is Next with a described answer.
func (v *Conversation) NextDescribed(answer described.Text, o record.Outcome) machine.Time {
	if !v.described {
		return v.Next(answer.String(), o)
	}
	if n := v.said.Len() + answer.Len(); o == record.Completed && v.size+n <= maxHistory {
		if v.past == nil {
			v.past = new(described.History)
		}
		v.past.Add(v.said)
		v.past.Add(described.NewMessage("assistant", nil, answer))
		v.size += n
	}
	return v.next()
}

// write continues the conversation in bytes.
func (v *Conversation) write() {
	if !v.described {
		return
	}
	v.past.Each(func(m *described.Message) { v.history = append(v.history, message{m.Role, m.String()}) })
	v.user, v.past, v.described = v.said.String(), nil, false
}

// next starts the next turn, and returns the pause before it.
func (v *Conversation) next() machine.Time {
	v.turn++
	if v.c.ThinkTime == nil {
		return 0
	}
	d := machine.NewDraw(v.c.Seed, "client", "think time", uint64(v.First+v.turn))
	return machine.Time(v.c.ThinkTime(&d))
}

// asked are the properties, besides prompts, that differ between requests.
type asked struct {
	model  string
	output int // tokens of the answer; 0: not given
}

// body returns the JSON of a request.
func (c *Config) body(as asked, messages []message) []byte {
	body := struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages,omitempty"`
		Input    []message `json:"input,omitempty"`
		Prompt   string    `json:"prompt,omitempty"`
		Stream   bool      `json:"stream,omitempty"`
		Max      int       `json:"max_tokens,omitempty"`
		MaxOut   int       `json:"max_output_tokens,omitempty"`
		Min      int       `json:"min_tokens,omitempty"`
		NoEOS    bool      `json:"ignore_eos,omitempty"`
	}{Model: as.model, Messages: messages, Stream: c.Stream, Max: cmp.Or(as.output, c.MaxTokens), Min: as.output,
		NoEOS: as.output > 0}
	switch c.API {
	case Completions:
		body.Messages, body.Prompt = nil, messages[len(messages)-1].Content
	case Responses:
		body.Messages, body.Input, body.Max, body.MaxOut = nil, messages, 0, body.Max
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

// sampling returns the fields of a GenerateRequest after its prompt.
func (c *Config) sampling(as asked) []byte {
	p := &vllmgrpc.SamplingParams{MinTokens: uint32(as.output), IgnoreEos: as.output > 0}
	if most := uint32(cmp.Or(as.output, c.MaxTokens)); most > 0 {
		p.MaxTokens = &most
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(
		&vllmgrpc.GenerateRequest{SamplingParams: p, Stream: c.Stream})
	if err != nil {
		panic(err) // numbers and bools always encode
	}
	return b
}

// Leaves reports whether the client leaves on purpose during the request with this number, and how long after sending
// it.
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
