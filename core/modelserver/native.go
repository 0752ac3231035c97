package modelserver

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Native is the API between a Dynamo frontend and its workers: token ids in, token ids out, at the path of Dynamo's
// request plane over HTTP (DYN_HTTP_RPC_ROOT_PATH and the endpoint's name). The fields are those of Dynamo's
// PreprocessedRequest and LLMEngineOutput. A streamed answer has one LLMEngineOutput per line.
var Native = &API{connector.NativePath, (*Reader).readNative, openai.AppendError}

// nativeType is the content type of a streamed answer.
const nativeType = "application/x-ndjson"

// nativeRequest holds the fields of a PreprocessedRequest that affect a simulated worker.
type nativeRequest struct {
	Model    string         `json:"model"`
	TokenIDs []uint32       `json:"token_ids"`
	Stop     nativeStop     `json:"stop_conditions"`
	Sampling nativeSampling `json:"sampling_options"`
	Instance *uint64        `json:"backend_instance_id,omitempty"`
	Priority int64          `json:"priority,omitempty"`
	Salt     string         `json:"cache_salt,omitempty"`
	// Stream is false for a prefill without decode, whose answer is one LLMEngineOutput.
	Stream bool            `json:"stream"`
	KV     json.RawMessage `json:"kv_transfer_params,omitempty"`
}

type nativeStop struct {
	MaxTokens *int     `json:"max_tokens,omitempty"`
	MinTokens int      `json:"min_tokens,omitempty"`
	Stop      []string `json:"stop,omitempty"`
	IDs       []uint32 `json:"stop_token_ids_hidden,omitempty"`
	IgnoreEOS bool     `json:"ignore_eos,omitempty"`
}

type nativeSampling struct {
	N                int             `json:"n"`
	Seed             *int64          `json:"seed,omitempty"`
	Temperature      *float64        `json:"temperature,omitempty"`
	TopP             *float64        `json:"top_p,omitempty"`
	TopK             *int            `json:"top_k,omitempty"`
	MinP             *float64        `json:"min_p,omitempty"`
	PresencePenalty  *float64        `json:"presence_penalty,omitempty"`
	FrequencyPenalty *float64        `json:"frequency_penalty,omitempty"`
	IncludeStop      bool            `json:"include_stop_str_in_output,omitempty"`
	Guided           json.RawMessage `json:"guided_decoding,omitempty"`
}

// readNative reads a PreprocessedRequest.
func (r *Reader) readNative(head *Head, body []byte) (*Request, *openai.Error) {
	n := nativeRequest{Stream: true, Sampling: nativeSampling{N: 1}}
	if bad := openai.Decode(body, &n); bad != nil {
		return nil, bad
	}
	if len(n.TokenIDs) == 0 {
		return nil, openai.Errorf(400, "token_ids", "token_ids: expected at least one token id.")
	}
	s := &n.Sampling
	p := openai.Sampling{Model: n.Model, Stream: n.Stream, N: &s.N, Seed: s.Seed, Temperature: s.Temperature,
		TopP: s.TopP, TopK: s.TopK, MinP: s.MinP, PresencePenalty: s.PresencePenalty,
		FrequencyPenalty: s.FrequencyPenalty, IncludeStop: s.IncludeStop, StructuredOutputs: s.Guided,
		Stop: n.Stop.Stop, StopTokenIDs: n.Stop.IDs, MinTokens: n.Stop.MinTokens, IgnoreEOS: n.Stop.IgnoreEOS,
		MaxTokens: n.Stop.MaxTokens, Priority: n.Priority, CacheSalt: n.Salt, KVTransferParams: n.KV}
	limit := 0
	if n.Stop.MaxTokens != nil {
		limit = *n.Stop.MaxTokens
	}
	q, bad := r.FromPrompt(head.id(&p), Prompt{Tokens: n.TokenIDs}, &p, limit, n.Stop.MaxTokens != nil)
	if bad != nil {
		return nil, bad
	}
	q.Encoder = &nativeEncoder{reader: r, stream: n.Stream}
	return q, nil
}

// nativeOutput is an LLMEngineOutput: a token of one choice, the end of a choice, or fields about all choices.
type nativeOutput struct {
	TokenIDs []uint32 `json:"token_ids"`
	Index    int      `json:"index"`
	// Text is set where it differs from the tokens' own text: where a stop string was met, or may follow.
	Text   *string             `json:"text,omitempty"`
	Reason openai.FinishReason `json:"finish_reason,omitempty"`
	// Stopped is the stop string or stop token that ended the output.
	Stopped json.RawMessage `json:"stop_reason,omitempty"`
	Usage   *nativeUsage    `json:"completion_usage,omitempty"`
	KV      json.RawMessage `json:"kv_transfer_params,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

type nativeUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details,omitempty"`
}

// nativeEncoder writes LLMEngineOutputs.
type nativeEncoder struct {
	reader *Reader
	stream bool
	ids    []uint32 // of an answer that is not streamed
	reason openai.FinishReason
}

func (e *nativeEncoder) ContentType() string {
	if e.stream {
		return nativeType
	}
	return jsonType
}

func (e *nativeEncoder) Begin(b []byte, _ openai.Usage) []byte { return b }

func (e *nativeEncoder) Token(b []byte, t *Token) []byte {
	if !e.stream {
		if !t.None {
			e.ids = append(e.ids, t.ID)
		}
		e.reason = t.Done
		return b
	}
	out := nativeOutput{TokenIDs: []uint32{}, Index: t.Choice, Reason: t.Done}
	own := ""
	if !t.None {
		out.TokenIDs = append(out.TokenIDs, t.ID)
		own = string(e.reader.Tokenizer.Decode(nil, t.ID))
	}
	if t.Text != own {
		out.Text = &t.Text
	}
	switch {
	case t.Stop != "":
		out.Stopped = openai.AppendString(nil, t.Stop)
	case t.StopID != nil:
		out.Stopped = strconv.AppendUint(nil, uint64(*t.StopID), 10)
	}
	return e.line(b, &out)
}

func (e *nativeEncoder) End(b []byte, u openai.Usage, kv, _ []byte) []byte {
	usage := &nativeUsage{Prompt: u.PromptTokens, Completion: u.CompletionTokens,
		Total: u.PromptTokens + u.CompletionTokens}
	if u.Details {
		usage.Details = &struct {
			Cached int `json:"cached_tokens"`
		}{u.CachedTokens}
	}
	return e.line(b, &nativeOutput{TokenIDs: append([]uint32{}, e.ids...), Reason: e.reason, Usage: usage, KV: kv})
}

func (e *nativeEncoder) Fail(b []byte, err *openai.Error) []byte {
	return e.line(b, &nativeOutput{TokenIDs: []uint32{}, Reason: openai.FinishError,
		Error: openai.AppendError(nil, err)})
}

func (e *nativeEncoder) line(b []byte, out *nativeOutput) []byte {
	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // numbers and strings always encode
	}
	if b = append(b, text...); e.stream {
		b = append(b, '\n')
	}
	return b
}

// Preprocessed is a client's request after a Dynamo frontend has parsed it.
type Preprocessed struct {
	// Body is the body of the request to a worker, and Tokens the prompt in it.
	Body   []byte
	Tokens []uint32
	// Stream reports whether the client wants a streamed answer.
	Stream bool

	reader *Reader
	q      *Request
}

// Preprocess parses a request as a Dynamo frontend does. The frontend renders templates and tokenizes. given, if there
// are any, are the tokens of the prompt from another component (nvext.token_data).
func (r *Reader) Preprocess(api *API, head *Head, body []byte, given []uint32) (*Preprocessed, *openai.Error) {
	var s *openai.Sampling
	var q *Request
	var bad *openai.Error
	var limit func() (int, bool)
	switch api {
	case Chat:
		c := new(openai.Chat)
		if bad = c.Parse(body); bad != nil {
			return nil, bad
		}
		p := Prompt{Tokens: given}
		if given == nil {
			var text string
			if text, bad = r.ChatText(c, head.Client); bad != nil {
				return nil, bad
			}
			p = r.Prompt(text)
		}
		if c.ToolChoice.Mode == "required" || c.ToolChoice.Mode == "function" {
			return nil, openai.Errorf(400, "tool_choice",
				"tool_choice: found %s; behind this frontend workers call no tools, expected none or auto.",
				c.ToolChoice.Mode)
		}
		c.Tools = nil
		if c.Logprobs {
			return nil, noLogprobs
		}
		s, limit = &c.Sampling, c.Limit
		q, bad = r.fillChat(head, c, p)
	case Completions:
		var c *openai.Completion
		if c, bad = openai.ParseCompletion(body); bad != nil {
			return nil, bad
		}
		switch {
		case c.Logprobs != nil:
			return nil, noLogprobs
		case c.Prompt.Len() != 1:
			return nil, openai.Errorf(400, "prompt", "prompt: found %d; behind this frontend expected one.",
				c.Prompt.Len())
		case c.Echo || *c.MaxTokens == 0:
			return nil, openai.Errorf(400, "echo",
				"echo and max_tokens 0: behind this frontend a worker does not return the prompt.")
		}
		list := []Prompt{{Tokens: given}}
		if given == nil {
			list = r.prompts(&c.Prompt)
		}
		s, limit = &c.Sampling, func() (int, bool) { return *c.MaxTokens, true }
		q, bad = r.fillCompletion(head, c, list...)
	default:
		return nil, openai.Errorf(404, "",
			"Expected /v1/chat/completions or /v1/completions: this frontend serves no others.")
	}
	if bad != nil {
		return nil, bad
	}
	if s.PromptLogprobs != nil {
		return nil, noLogprobs
	}
	if len(q.Media) > 0 {
		return nil, openai.Errorf(400, "messages",
			"messages: found images or sounds; behind this frontend expected text alone.")
	}
	n := nativeRequest{Model: q.Model, TokenIDs: q.Prompts[0].Tokens, Stream: true, Priority: q.Priority, Salt: q.Salt,
		Stop: nativeStop{MinTokens: s.MinTokens, Stop: s.Stop, IDs: s.StopTokenIDs, IgnoreEOS: s.IgnoreEOS},
		Sampling: nativeSampling{N: q.N, Seed: s.Seed, Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK,
			MinP: s.MinP, PresencePenalty: s.PresencePenalty,
			FrequencyPenalty: s.FrequencyPenalty, IncludeStop: s.IncludeStop}}
	if most, limited := limit(); limited {
		n.Stop.MaxTokens = &most
	}
	if q.form != nil {
		var form structuredOutputs
		if _, bad := form.read(s); bad != nil {
			return nil, bad
		}
		n.Sampling.Guided = form.write()
	}
	text, err := json.Marshal(&n)
	if err != nil {
		return nil, openai.Errorf(400, "", "The request cannot be written for a worker: %v.", err)
	}
	return &Preprocessed{Body: text, Tokens: n.TokenIDs, Stream: q.Stream, reader: r, q: q}, nil
}

var noLogprobs = openai.Errorf(400, "logprobs", "logprobs: behind this frontend workers return no likelihoods.")

// write encodes the constraint as structured_outputs, with a structural tag as a string.
func (s structuredOutputs) write() json.RawMessage {
	if given(s.Tag) {
		s.Tag = openai.AppendString(nil, string(s.Tag))
	}
	text, err := json.Marshal(&s)
	if err != nil {
		return nil // the worker reports the error
	}
	return text
}

// maxNativeLine limits the bytes of one LLMEngineOutput.
const maxNativeLine = 16 << 20

// Postprocessing converts a worker's answer to the client's answer, as a Dynamo frontend does.
type Postprocessing struct {
	reader *Reader
	q      *Request
	said   content
	rest   []byte // an incomplete line
	out    []byte
	tokens []int          // of each choice
	held   []nativeOutput // of an answer that is not streamed, one choice after the other
	begun  bool
	ended  bool
	failed *openai.Error
}

// Postprocess starts the conversion of the worker's answer.
func (p *Preprocessed) Postprocess() *Postprocessing {
	return &Postprocessing{reader: p.reader, q: p.q, tokens: make([]int, p.q.N)}
}

// ContentType returns the content type of the client's answer.
func (p *Postprocessing) ContentType() string { return p.q.Encoder.ContentType() }

// Write converts a piece of the worker's answer, and returns the bytes for the client. The result is valid until the
// next call.
func (p *Postprocessing) Write(data []byte) []byte {
	p.out = p.out[:0]
	for !p.ended {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if len(p.rest)+len(line) > maxNativeLine {
			p.fail("a line of the worker's answer is too long")
			break
		}
		if !whole {
			p.rest = append(p.rest, line...)
			break
		}
		if len(p.rest) > 0 {
			line = append(p.rest, line...)
		}
		p.line(line)
		p.rest, data = p.rest[:0], rest
	}
	return p.out
}

// End returns the remaining bytes for the client after the worker's answer is complete.
func (p *Postprocessing) End() []byte {
	p.out = p.out[:0]
	if !p.ended {
		p.fail("the worker's answer broke off")
	}
	return p.out
}

// Failed returns the error that the client received inside the answer; nil if there was none.
func (p *Postprocessing) Failed() *openai.Error { return p.failed }

func (p *Postprocessing) writeHead() {
	if !p.begun {
		p.begun = true
		p.out = p.q.Encoder.Begin(p.out, openai.Usage{PromptTokens: p.q.PromptTokens()})
	}
}

func (p *Postprocessing) line(text []byte) {
	var x nativeOutput
	if err := json.Unmarshal(text, &x); err != nil {
		p.fail("the worker's answer is no LLMEngineOutput: " + err.Error())
		return
	}
	p.writeHead()
	switch {
	case x.Error != nil:
		var e struct {
			Error struct {
				Message string `json:"message"`
				Type    string `json:"type"`
				Code    int    `json:"code"`
			} `json:"error"`
		}
		if json.Unmarshal(x.Error, &e) != nil {
			p.fail("the worker failed")
			return
		}
		p.failed, p.ended = &openai.Error{Status: e.Error.Code, Type: e.Error.Type, Message: e.Error.Message}, true
		p.out = p.q.Encoder.Fail(p.out, p.failed)
	case x.Usage != nil:
		u := openai.Usage{PromptTokens: x.Usage.Prompt, CompletionTokens: x.Usage.Completion}
		if d := x.Usage.Details; d != nil {
			u.CachedTokens, u.Details = d.Cached, true
		}
		p.ended = true
		machine.SortStableFunc(p.held, func(a, b nativeOutput) int { return a.Index - b.Index })
		for i := range p.held {
			p.choice(&p.held[i])
		}
		p.out = p.q.Encoder.End(p.out, u, nil, nil)
	case x.Index < 0 || x.Index >= len(p.tokens):
		p.fail("the worker answers with choice " + strconv.Itoa(x.Index))
	case !p.q.Stream:
		p.held = append(p.held, x)
	default:
		p.choice(&x)
	}
}

// choice processes an output's fields about one choice.
func (p *Postprocessing) choice(x *nativeOutput) {
	t := Token{Choice: x.Index, None: true, Index: p.tokens[x.Index], of: &p.said}
	for i, id := range x.TokenIDs {
		if i > 0 { // another one follows
			p.out = p.q.Encoder.Token(p.out, &t)
		}
		t.None, t.ID, t.Index = false, id, p.tokens[x.Index]
		t.Text = string(p.reader.Tokenizer.Decode(nil, id))
		p.tokens[x.Index]++
	}
	if x.Text != nil {
		t.Text = *x.Text
	}
	t.Done = x.Reason
	var id uint32
	switch {
	case len(x.Stopped) == 0:
	case json.Unmarshal(x.Stopped, &t.Stop) == nil:
	case json.Unmarshal(x.Stopped, &id) == nil:
		t.StopID = &id
	}
	p.out = p.q.Encoder.Token(p.out, &t)
}

func (p *Postprocessing) fail(why string) {
	p.writeHead()
	p.failed, p.ended = openai.Errorf(502, "", "%s", why), true
	p.out = p.q.Encoder.Fail(p.out, p.failed)
}
