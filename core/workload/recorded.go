package workload

import (
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/described"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Recorded is a request that was once sent, as far as is known of it: enough to
// send one that is like it.
type Recorded struct {
	ID     string
	At     machine.Time // after the first one
	Header header.List
	Chat   bool // messages, else a prompt
	Stream bool
	Prompt []RecordedPrompt
	// Output is how many tokens the answer had, 0 where nobody knows.
	Output int
}

// RecordedPrompt is a prompt of which its length in bytes is known and, for its
// beginnings up to the end of each unit of so many bytes, what tells them apart:
// prompts that had a beginning in common have one again, of other words.
type RecordedPrompt struct {
	Bytes, Unit int
	Heads       []uint64
}

// text makes the prompt up.
func (p *RecordedPrompt) text() string {
	b := make([]byte, 0, p.Bytes)
	unit, heads := p.Unit, p.Heads
	if unit <= 0 || len(heads) == 0 {
		unit, heads = max(1, p.Bytes), []uint64{uint64(p.Bytes)}
	}
	for i, head := range heads {
		n := min(unit, p.Bytes-len(b))
		if i == len(heads)-1 {
			n = p.Bytes - len(b)
		}
		b = described.AppendLetters(b, machine.NewDraw(head, "client", "recorded", 0), n)
	}
	return string(b)
}

// request is like the recorded one.
func (r *Recorded) request(model string, index int) Request {
	body := struct {
		Model     string    `json:"model"`
		Messages  []message `json:"messages,omitempty"`
		Prompt    any       `json:"prompt,omitempty"`
		Stream    bool      `json:"stream,omitempty"`
		Max       int       `json:"max_tokens,omitempty"`
		Min       int       `json:"min_tokens,omitempty"`
		IgnoreEOS bool      `json:"ignore_eos,omitempty"`
	}{Model: model, Stream: r.Stream, Max: r.Output, Min: r.Output, IgnoreEOS: r.Output > 0}
	var texts []string
	for i := range r.Prompt {
		texts = append(texts, r.Prompt[i].text())
	}
	path := "/v1/completions"
	switch {
	case r.Chat:
		path = "/v1/chat/completions"
		for _, t := range texts {
			body.Messages = append(body.Messages, message{"user", t})
		}
	case len(texts) == 1:
		body.Prompt = texts[0]
	default:
		body.Prompt = texts
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings, bools and ints always encode
	}
	return Request{ID: r.ID, Index: index, Path: path, Header: r.Header, Body: text}
}
