package modelserver

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/openai"
)

// request is what any of the APIs asks of the engine, in one form.
type request struct {
	key     string // the request's own id, which keys everything random about it
	id      string // the response's id
	model   string // the name to answer with
	adapter engine.AdapterID
	lora    string // the adapter's name, empty for the base model
	prompts []prompt
	n       int // completions per prompt
	stream  bool

	maxTokens int // 0: as far as the context allows
	minTokens int
	ignoreEOS bool
	stops     []string
	stopIDs   []uint32
	keepStop  bool // the stop string stays in the output
	echo      bool // the prompt stands before the output
	silent    bool // the output itself is not told
	priority  int64
	seed      uint64
	echoText  string // what echo mode says back
	salt      string // of the prefix cache

	media   []media  // images, sounds and videos of the prompt
	encodes []string // hashes of those that are encoded for other servers
	image   bool     // the answer has a picture

	tools      []openai.Tool
	toolChoice openai.ToolChoice
	schemas    map[int]any // of the tools, as far as they were read

	work       work // that its answer takes
	tokenBytes int  // what each token adds to an answer that is collected

	kv  kvParams
	enc encoder
}

// newRequest is a request with OpenAI's encoder and room for its prompt, all in
// one piece of memory.
func newRequest(stream bool) *request {
	if stream {
		r := new(struct {
			request
			enc    openaiStream
			prompt [1]prompt
		})
		r.stream, r.request.enc, r.prompts = true, &r.enc, r.prompt[:0]
		return &r.request
	}
	r := new(struct {
		request
		enc    openaiWhole
		prompt [1]prompt
	})
	r.request.enc, r.prompts = &r.enc, r.prompt[:0]
	return &r.request
}

// prompt is one text to go on from.
type prompt struct {
	tokens []uint32
	text   string
}

// choices is how many completions the request makes in all.
func (r *request) choices() int { return len(r.prompts) * r.n }

// encoder writes one API's response. Everything is appended to a buffer; the
// caller writes and flushes it. Choices are numbered over prompts and n.
type encoder interface {
	// contentType is the response's content type.
	contentType() string
	// begin is what comes before the first token.
	begin(b []byte, u openai.Usage) []byte
	// token is the next token of a choice; done is set with its last one.
	token(b []byte, t *token) []byte
	// end is what comes after the last token; extra are more top-level fields,
	// encoded as `,"name":value`, and kv the encoded kv_transfer_params.
	end(b []byte, u openai.Usage, kv, extra []byte) []byte
	// fail tells an error inside a response that has begun, and ends it.
	fail(b []byte, e *openai.Error) []byte
}

// token is one generated token, or the news that a choice has ended.
type token struct {
	choice int
	index  int  // in its choice, from 0
	none   bool // no token, only the end
	id     uint32
	text   string
	of     *content
	done   openai.FinishReason // empty while the choice goes on
	kv     []byte              // document 002's kv_metadata, on a choice's last token
	stop   string              // the stop string met, if one was
	stopID *uint32             // the stop token met, if one was
}
