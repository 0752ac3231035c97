package modelserver

import (
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Request is what any of the APIs asks of the engine, in one form.
type Request struct {
	Key     string // the request's own id, which keys everything random about it
	ID      string // the response's id
	Model   string // the name to answer with
	Adapter engine.AdapterID
	LoRA    string // the adapter's name, empty for the base model
	Prompts []Prompt
	N       int // completions per prompt
	Stream  bool

	MaxTokens int // 0: as far as the context allows
	MinTokens int
	IgnoreEOS bool
	Priority  int64
	Salt      string // of the prefix cache
	Media     []Media
	Image     bool // the answer has a picture
	KV        KVParams
	// Encoder writes the answer; nil where nobody reads it.
	Encoder Encoder

	knownKV  *connector.Params // what the body says of caches; nil is to be read
	counted  bool              // an answer that nobody reads would tell its usage with each token
	echoText string            // what echo mode says back
	shownText

	encodes []string // hashes of media that are encoded for other servers

	tools      []openai.Tool
	toolChoice openai.ToolChoice
	arguments  map[int]*structured.Grammar // of the tools, as far as they were read
	form       *structured.Grammar         // of the answer; nil is any words

	work       work // that its answer takes
	tokenBytes int  // what each token adds to an answer that is collected
}

// shownText is what of an output and of its prompt the client is shown.
type shownText struct {
	stops    []string
	stopIDs  []uint32
	keepStop bool // the stop string stays in the output
	echo     bool // the prompt stands before the output
	silent   bool // the output itself is not told
	// promptTop is how many alternatives to each token of the prompt are told, 0 the
	// token itself alone; nil where none is.
	promptTop *int
}

// Memory is a request with OpenAI's encoders and room for its prompt, all in one
// piece.
type Memory struct {
	room
	stream openaiStream
	whole  openaiWhole
}

// room is a request with its prompt.
type room struct {
	request Request
	prompt  [1]Prompt
}

// newRequest is an empty request in the memory that there is, or in new memory. It has
// no encoder where nobody reads the answer.
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

// Prompt is one text to go on from.
type Prompt struct {
	Tokens []uint32
	Text   string // empty where only tokens came

	// words keys the words that follow the prompt; empty is the request's id.
	words string
	of    *described.Body // spells it out, where there is neither of them
	count int             // of its tokens then
}

// Len is how many tokens the prompt has.
func (p *Prompt) Len() int { return max(p.count, len(p.Tokens)) }

// wordsOf keys the words and the length of choice number i. The request's id keys them, unless the client expects
// the same words for the same prompt.
func (r *Request) wordsOf(i int) string {
	if words := r.Prompts[i/r.N].words; words != "" {
		return keyOf(words, i%r.N)
	}
	return keyOf(r.Key, i)
}

// Choices is how many completions the request makes in all.
func (r *Request) Choices() int { return len(r.Prompts) * r.N }

// PromptTokens is how many tokens its prompts have in all.
func (r *Request) PromptTokens() int {
	n := 0
	for i := range r.Prompts {
		n += r.Prompts[i].Len()
	}
	return n
}

// Encoder writes one API's response. Everything is appended to a buffer; the
// driver writes and flushes it. Choices are numbered over prompts and n.
type Encoder interface {
	// ContentType is the response's content type.
	ContentType() string
	// Begin is what comes before the first token.
	Begin(b []byte, u openai.Usage) []byte
	// Token is the next token of a choice; t.Done is set with its last one. t may
	// be kept no longer than the call.
	Token(b []byte, t *Token) []byte
	// End is what comes after the last token; extra are more top-level fields,
	// encoded as `,"name":value`, and kv the encoded kv_transfer_params.
	End(b []byte, u openai.Usage, kv, extra []byte) []byte
	// Fail tells an error inside a response that has begun, and ends it.
	Fail(b []byte, e *openai.Error) []byte
}

// Token is one generated token, or the news that a choice has ended.
type Token struct {
	Choice int
	Index  int  // in its choice, from 0
	None   bool // no token, only the end
	ID     uint32
	Text   string
	Done   openai.FinishReason // empty while the choice goes on
	Stop   string              // the stop string met, if one was
	StopID *uint32             // the stop token met, if one was

	of *content
	kv []byte // document 002's kv_metadata, on a choice's last token
}
