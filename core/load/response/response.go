// Package response determines how a request ended, from the client's side. Reader reads a response's bytes: the number
// of tokens, whether it is whole, the metadata that it echoes (document 000, docs/documents.md), and an error inside a
// 2xx. Facts derives the outcome.
package response

import (
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// MaxBytes bounds a response that is not streamed, and one event of a streamed one.
const MaxBytes = 64 << 20

// Reader reads a response body in pieces of any size.
type Reader struct {
	sse    bool
	grpc   bool
	events sse.Scanner
	buf    []byte // a response that is not streamed
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

// Error is an error inside a response.
type Error struct {
	Message string `json:"message"`
	Type    string `json:"type"`
}

// NewReader returns a Reader for a content type.
func NewReader(contentType string) *Reader {
	return &Reader{sse: strings.HasPrefix(contentType, "text/event-stream"), grpc: vllmgrpc.IsGRPC(contentType),
		events: sse.Scanner{Limit: MaxBytes}}
}

// Keep makes the reader keep the answer's text, for Text.
func (r *Reader) Keep() { r.keep = true }

// Text returns the text of the first choice so far.
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

// words are a message's content: a string, or a list of parts with texts.
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

// usage holds an answer's number of tokens: OpenAI's completions use the first name, OpenAI's responses and Anthropic's
// messages the second.
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

// piece is text, or a part of a tool call's arguments, in an event of Anthropic's messages or of OpenAI's responses.
// Deltas of responses are strings.
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

// object reads one chunk, or a whole response that is not streamed.
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
		Response struct{ Usage *usage }    // at its end
		Metadata json.RawMessage
		Held     *string `json:"held_metadata"` // of a response
		Error    *Error
	}
	if err := json.Unmarshal(data, &o); err != nil {
		r.bad = "the response is not JSON: " + err.Error()
		return
	}
	for i, c := range o.Choices {
		for _, text := range []*string{(*string)(c.Delta.Content), (*string)(c.Message.Content), c.Text} {
			if text != nil {
				r.say(*text, i == 0 && c.Index == 0)
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

// say keeps text of the first choice.
func (r *Reader) say(text string, first bool) {
	if r.keep && first && len(r.text) < MaxBytes {
		r.text = append(r.text, text...)
	}
}

// messages reads the complete gRPC messages.
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

// message reads a message of Generate's answer, or of Embed's, which has no tokens. The second field of Embed's is a
// number.
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

// Close ends the body without an error of the connection. Later calls have no effect.
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

// Tokens returns the number of tokens so far: a stream's content chunks, or the number in usage if that is larger.
func (r *Reader) Tokens() int { return r.tokens }

// Bytes returns the size of the body so far.
func (r *Reader) Bytes() int64 { return r.size }

// Facts returns the facts of the response.
func (r *Reader) Facts(status int) Facts {
	f := Facts{Status: status, Bytes: r.size, Tokens: r.tokens, Whole: r.done, Bad: r.bad, Error: r.err}
	f.Metadata, f.Echoed = r.metadata, r.echoed
	if record.OutcomeOfStatus(status) != record.Completed {
		f.Text = string(r.buf[:min(len(r.buf), 200)])
	}
	return f
}
