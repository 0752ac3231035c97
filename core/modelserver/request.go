package modelserver

import (
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Request is a request to the engine, in the same form for all APIs.
type Request struct {
	Key     string // the request's own id, which keys all its random draws
	ID      string // the response's id
	Model   string // the model's name in the answer
	Adapter engine.AdapterID
	LoRA    string // the adapter's name, empty for the base model
	Prompts []Prompt
	N       int // completions per prompt
	Stream  bool

	MaxTokens int // 0: up to the end of the context
	MinTokens int
	IgnoreEOS bool
	Priority  int64
	Salt      string // of the prefix cache: only requests with the same salt share blocks
	Media     []Media
	Image     bool // the answer contains a picture
	KV        KVParams
	// Encoder writes the answer; nil if no client reads it.
	Encoder Encoder

	knownKV  *connector.Params // the body's fields about caches; nil: not parsed yet
	counted  bool              // no client reads the answer, which would report usage with each token
	echoText string            // the text that echo mode repeats
	shownText

	encodes []string // hashes of media to encode for other servers

	tools      []openai.Tool
	toolChoice openai.ToolChoice
	arguments  map[int]*structured.Grammar // of the tools, as far as they are parsed
	form       *structured.Grammar         // of the answer; nil allows any words

	work       work // to make the answer
	tokenBytes int  // bytes that each token adds to an answer that is collected
}

// shownText selects the parts of an output and of its prompt that the client sees.
type shownText struct {
	stops    []string
	stopIDs  []uint32
	keepStop bool // the stop string stays in the output
	echo     bool // the prompt stands before the output
	silent   bool // the client does not see the output itself
	// promptTop is the number of alternatives to each token of the prompt in the answer. 0 returns the token itself
	// alone; nil returns nothing about the prompt.
	promptTop *int
}

// Memory holds a request, OpenAI's encoders and space for a prompt in one allocation.
type Memory struct {
	room
	stream openaiStream
	whole  openaiWhole
}

// room holds a request and its prompt in one allocation.
type room struct {
	request Request
	prompt  [1]Prompt
}

// newRequest returns an empty request in the memory of the head, or in new memory. The request has no encoder if no
// client reads the answer.
func (h *Head) newRequest(stream bool) *Request {
	in, m := h.room, h.Memory
	if in == nil {
		if m == nil {
			m = new(Memory)
		}
		in = &m.room
	}
	*in = room{}
	r := &in.request
	r.Stream, r.Prompts, r.knownKV, r.work.client = stream, in.prompt[:0], h.kv, h.Client
	switch {
	case h.room != nil:
	case stream:
		r.Encoder = &m.stream
	default:
		r.Encoder = &m.whole
	}
	return r
}

// Prompt is one text for the model to continue.
type Prompt struct {
	Tokens []uint32
	Text   string // empty if the client sent only tokens

	// words keys the random words after the prompt; empty is the request's id.
	words string
	of    *described.Body // the described body, if there is neither text nor tokens
	count int             // number of tokens of that body
}

// Len returns the number of tokens of the prompt.
func (p *Prompt) Len() int { return max(p.count, len(p.Tokens)) }

// wordsOf returns the key of the words and of the length of choice number i. It is the request's id, unless the client
// expects the same words for the same prompt.
func (r *Request) wordsOf(i int) string {
	if words := r.Prompts[i/r.N].words; words != "" {
		return keyOf(words, i%r.N)
	}
	return keyOf(r.Key, i)
}

// Choices returns the number of completions of all prompts.
func (r *Request) Choices() int { return len(r.Prompts) * r.N }

// PromptTokens returns the number of tokens of all prompts.
func (r *Request) PromptTokens() int {
	n := 0
	for i := range r.Prompts {
		n += r.Prompts[i].Len()
	}
	return n
}

// Encoder writes the responses of one API. Each method appends to a buffer, which the driver writes and flushes.
// Choices are numbered over prompts and n.
type Encoder interface {
	// ContentType is the response's content type.
	ContentType() string
	// Begin appends the bytes before the first token.
	Begin(b []byte, u openai.Usage) []byte
	// Token appends the next token of a choice. t.Done is set with the last one. The encoder may not keep t beyond the
	// call.
	Token(b []byte, t *Token) []byte
	// End appends the bytes after the last token. extra holds more top-level fields, encoded as `,"name":value`. kv
	// holds the encoded kv_transfer_params.
	End(b []byte, u openai.Usage, kv, extra []byte) []byte
	// Fail appends an error to a response that has begun, and ends it.
	Fail(b []byte, e *openai.Error) []byte
}

// Token is one generated token, or only the end of a choice.
type Token struct {
	Choice int
	Index  int  // in its choice, from 0
	None   bool // no token, only the end
	ID     uint32
	Text   string
	Done   openai.FinishReason // empty until the choice ends
	Stop   string              // the stop string met, if one was
	StopID *uint32             // the stop token met, if one was

	of *content
	kv []byte // document 002's kv_metadata, on a choice's last token
}
