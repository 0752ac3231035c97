// Package response is how a client sees its request end: Facts says what came of
// it, and Reader reads the facts of a response's bytes: how many tokens came,
// whether it is whole, which metadata it echoes (document 000, docs/documents.md), and whether it
// tells of an error inside a 2xx.
package response

import (
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// MaxBytes bounds what is kept of a response that is not streamed, and of one
// event of one that is.
const MaxBytes = 64 << 20

// Reader takes a response body in pieces of any size.
type Reader struct {
	sse    bool
	grpc   bool
	events sse.Scanner
	buf    []byte // of a response that is not streamed
	size   int64

	tokens   int
	done     bool // [DONE] was seen, or the JSON object is whole
	metadata string
	echoed   bool
	err      *Error
	bad      string

	keep   bool
	closed bool
	text   []byte
}

// Error is an error told inside a response.
type Error struct {
	Message string `json:"message"`
	Type    string `json:"type"`
}

// NewReader reads a response of this content type.
func NewReader(contentType string) *Reader {
	return &Reader{sse: strings.HasPrefix(contentType, "text/event-stream"), grpc: vllmgrpc.IsGRPC(contentType),
		events: sse.Scanner{Limit: MaxBytes}}
}

// Keep has the reader keep what the answer says, for Text.
func (r *Reader) Keep() { r.keep = true }

// Text is what the first choice says, up to now.
func (r *Reader) Text() string { return string(r.text) }

// Write takes the next bytes.
func (r *Reader) Write(p []byte) (int, error) {
	r.size += int64(len(p))
	switch {
	case r.tooLong():
	case r.sse:
		r.events.Write(p)
		for e, ok := r.events.Next(); ok; e, ok = r.events.Next() {
			r.event(e)
		}
	default:
		r.buf = append(r.buf, p...)
		if r.grpc {
			r.messages()
		}
	}
	if r.tooLong() {
		r.bad = "the response is larger than a client keeps"
	}
	return len(p), nil
}

func (r *Reader) tooLong() bool { return r.events.TooLong() || len(r.buf) > MaxBytes }

func (r *Reader) event(e sse.Event) {
	switch {
	case string(e.Data) == "[DONE]":
		r.done = true
	case e.Data != nil:
		r.object(e.Data)
	}
}

// words are a message's content: a string, or a list of parts of which the texts
// count.
type words string

func (w *words) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '[' {
		return json.Unmarshal(raw, (*string)(w))
	}
	var parts []struct{ Text string }
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*w += words(p.Text)
	}
	return nil
}

// usage is what an answer says of its tokens: OpenAI's completions call them by
// the first name, OpenAI's responses and Anthropic's messages by the second.
type usage struct {
	CompletionTokens int `json:"completion_tokens"`
	OutputTokens     int `json:"output_tokens"`
}

func (u *usage) tokens() int {
	if u == nil {
		return 0
	}
	return max(u.CompletionTokens, u.OutputTokens)
}

// piece is text, or a part of a tool call's arguments, in an event of Anthropic's messages or of
// OpenAI's responses, whose deltas are strings.
type piece struct {
	Text string
	JSON string `json:"partial_json"`
}

func (p *piece) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &p.Text)
	}
	type object piece
	return json.Unmarshal(raw, (*object)(p))
}

// object reads one chunk, or the whole of a response that is not streamed.
func (r *Reader) object(data []byte) {
	var o struct {
		Type    string
		Choices []struct {
			Index          int
			Delta, Message struct {
				Content *words
				Calls   []struct{} `json:"tool_calls"`
			}
			Text *string
		}
		Usage    *usage
		Delta    piece
		Content  words                     // of a message
		Output   []struct{ Content words } // of a response
		Response struct{ Usage *usage }    // that ends
		Metadata json.RawMessage
		Held     *string `json:"held_metadata"` // of a response
		Error    *Error
	}
	if err := json.Unmarshal(data, &o); err != nil {
		r.bad = "the response is not JSON: " + err.Error()
		return
	}
	for i, c := range o.Choices {
		if r.keep && i == 0 && c.Index == 0 && len(r.text) < MaxBytes {
			for _, said := range []*string{(*string)(c.Delta.Content), (*string)(c.Message.Content), c.Text} {
				if said != nil {
					r.text = append(r.text, *said...)
				}
			}
		}
		if r.sse && (c.Delta.Content != nil && *c.Delta.Content != "" || c.Text != nil && *c.Text != "" ||
			len(c.Delta.Calls) > 0) {
			r.tokens++
		}
	}
	switch o.Type {
	case "content_block_delta", "response.output_text.delta", "response.function_call_arguments.delta":
		r.say(o.Delta.Text, o.Type != "response.function_call_arguments.delta")
		if o.Delta != (piece{}) {
			r.tokens++
		}
	case "message_stop", "response.completed", "response.incomplete", "response.failed", "error":
		r.done = true
	}
	if !r.sse {
		r.say(string(o.Content), true)
		for _, x := range o.Output {
			r.say(string(x.Content), true)
		}
	}
	r.tokens = max(r.tokens, o.Usage.tokens(), o.Response.Usage.tokens())
	if o.Error != nil {
		r.err = o.Error
	}
	echo := o.Held
	if echo == nil && json.Unmarshal(o.Metadata, &echo) != nil {
		echo = nil // a client's own object
	}
	if echo != nil {
		r.metadata, r.echoed = *echo, true
	}
}

// say notes what the first choice says.
func (r *Reader) say(text string, said bool) {
	if r.keep && said && len(r.text) < MaxBytes {
		r.text = append(r.text, text...)
	}
}

// messages reads the gRPC messages that are whole.
func (r *Reader) messages() {
	for {
		m, rest, _, ok := vllmgrpc.Next(r.buf)
		if !ok {
			return
		}
		r.message(m)
		r.buf = append(r.buf[:0], rest...)
	}
}

// message reads a message of Generate's answer, or Embed's, which has no tokens: in
// it the second field is a number.
func (r *Reader) message(data []byte) {
	var e vllmgrpc.EmbedResponse
	if proto.Unmarshal(data, &e) == nil && (e.EmbeddingDim > 0 || e.PromptTokens > 0) {
		return
	}
	var m vllmgrpc.GenerateResponse
	if err := proto.Unmarshal(data, &m); err != nil {
		r.bad = "the response is no message of " + vllmgrpc.Service + ": " + err.Error()
		return
	}
	r.tokens += len(m.GetChunk().GetTokenIds())
	r.tokens = max(r.tokens, int(m.GetComplete().GetCompletionTokens()))
}

// Close is told that the body ended without an error of the connection. What is
// told afterwards has no effect.
func (r *Reader) Close() {
	if r.closed || r.tooLong() {
		return
	}
	r.closed = true
	if e, ok := r.events.Last(); ok {
		r.event(e)
	}
	switch {
	case r.grpc:
		if r.done = len(r.buf) == 0 && r.bad == ""; len(r.buf) > 0 && r.bad == "" {
			r.bad = "the response ends inside a gRPC message"
		}
	case len(r.buf) > 0:
		r.object(r.buf)
		r.done = r.bad == ""
	}
}

// Tokens is how many tokens have come: for a stream its content chunks, or
// what usage says if that is more.
func (r *Reader) Tokens() int { return r.tokens }

// Bytes is the size of the body so far.
func (r *Reader) Bytes() int64 { return r.size }

// Facts are what has been read.
func (r *Reader) Facts(status int) Facts {
	f := Facts{Status: status, Bytes: r.size, Tokens: r.tokens, Whole: r.done, Bad: r.bad, Error: r.err}
	f.Metadata, f.Echoed = r.metadata, r.echoed
	if record.OutcomeOfStatus(status) != record.Completed {
		f.Text = string(r.buf[:min(len(r.buf), 200)])
	}
	return f
}
