package modelserver

import (
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// SGLangGenerate is SGLang's native API for completions (python/sglang/srt/managers/io_struct.py, GenerateReqInput).
var SGLangGenerate = &API{"/generate", (*Reader).readSGLang, func(b []byte, e *openai.Error) []byte {
	return openai.Fill(b, `{"error":{"message":$}}`, e.Message)
}}

// sglangRequest holds the fields of a POST to /generate that have an effect. A list is a batch.
type sglangRequest struct {
	Text      *openai.Prompt  `json:"text"`
	IDs       *openai.Prompt  `json:"input_ids"`
	Sampling  json.RawMessage `json:"sampling_params"`
	Stream    bool            `json:"stream"`
	RequestID string          `json:"rid"`
	Adapter   string          `json:"lora_path"`
	Priority  int64           `json:"priority"`
	ExtraKey  string          `json:"extra_key"`
	Host      json.RawMessage `json:"bootstrap_host"`
	Port      json.RawMessage `json:"bootstrap_port"`
	Room      json.RawMessage `json:"bootstrap_room"`
}

type sglangSampling struct {
	MaxNewTokens     *int            `json:"max_new_tokens"`
	MinNewTokens     int             `json:"min_new_tokens"`
	N                *int            `json:"n"`
	Seed             *int64          `json:"sampling_seed"`
	Temperature      *float64        `json:"temperature"`
	TopP             *float64        `json:"top_p"`
	TopK             *int            `json:"top_k"`
	MinP             *float64        `json:"min_p"`
	PresencePenalty  *float64        `json:"presence_penalty"`
	FrequencyPenalty *float64        `json:"frequency_penalty"`
	Stop             openai.Strings  `json:"stop"`
	StopTokenIDs     []uint32        `json:"stop_token_ids"`
	IgnoreEOS        bool            `json:"ignore_eos"`
	JSONSchema       json.RawMessage `json:"json_schema"`
	Regex            json.RawMessage `json:"regex"`
	EBNF             json.RawMessage `json:"ebnf"`
	StructuralTag    json.RawMessage `json:"structural_tag"`
}

// sglangNewTokens is the number of tokens that SGLang generates if sampling_params does not set one.
const sglangNewTokens = 128

// form converts the constraint on the answer to structured_outputs.
func (s *sglangSampling) form() json.RawMessage {
	forms := map[string]json.RawMessage{}
	for name, form := range map[string]json.RawMessage{"json": s.JSONSchema, "regex": s.Regex, "grammar": s.EBNF,
		"structural_tag": s.StructuralTag} {
		if given(form) {
			forms[name] = form
		}
	}
	if len(forms) == 0 {
		return nil
	}
	raw, _ := json.Marshal(forms) // JSON when they were parsed
	return raw
}

// readSGLang reads /generate.
func (r *Reader) readSGLang(head *Head, body []byte) (*Request, *openai.Error) {
	var m sglangRequest
	if bad := openai.Decode(body, &m); bad != nil {
		return nil, bad
	}
	most := sglangNewTokens
	s := sglangSampling{MaxNewTokens: &most}
	if given(m.Sampling) {
		if bad := openai.Decode(m.Sampling, &s); bad != nil {
			bad.Message = "sampling_params: " + bad.Message
			return nil, bad
		}
	}
	prompt := m.Text
	if (m.Text == nil) == (m.IDs == nil) {
		return nil, openai.Errorf(400, "text", "Either text, input_ids or input_embeds should be provided.")
	} else if prompt == nil {
		prompt = m.IDs
	}
	p := openai.Sampling{Model: m.Adapter, N: s.N, MaxTokens: s.MaxNewTokens, MinTokens: s.MinNewTokens, Seed: s.Seed,
		Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, MinP: s.MinP, PresencePenalty: s.PresencePenalty,
		FrequencyPenalty: s.FrequencyPenalty, Stop: s.Stop, StopTokenIDs: s.StopTokenIDs, IgnoreEOS: s.IgnoreEOS,
		StructuredOutputs: s.form(), Priority: m.Priority, CacheSalt: m.ExtraKey, BootstrapHost: m.Host,
		BootstrapPort: m.Port, BootstrapRoom: m.Room, RequestID: m.RequestID}
	if bad := p.Check(); bad != nil {
		return nil, bad
	}
	key, limit := head.id(&p), 0
	if s.MaxNewTokens != nil {
		limit = max(1, *s.MaxNewTokens)
	}
	q := &Request{Key: key, ID: key, N: p.Choices(), Stream: m.Stream, Prompts: r.prompts(prompt)}
	if len(prompt.Texts) > 0 {
		q.echoText = prompt.Texts[0]
	}
	if bad := r.fill(q, &p, limit, s.MaxNewTokens != nil); bad != nil {
		return nil, bad
	}
	q.Encoder = &sglangEncoder{req: q, said: make([]sglangSaid, q.Choices())}
	return q, nil
}

// sglangEncoder encodes the answers of /generate: an object, or a list of them for a batch or several choices.
type sglangEncoder struct {
	req    *Request
	cached int
	said   []sglangSaid // by choice
	open   bool         // the text of a choice has begun, in an answer that is not streamed
}

// sglangSaid holds the text and the tokens of a choice so far.
type sglangSaid struct {
	text []byte
	ids  []uint32
}

func (e *sglangEncoder) ContentType() string { return e.req.contentType() }

func (e *sglangEncoder) Begin(b []byte, u openai.Usage) []byte {
	e.cached = u.CachedTokens
	if !e.req.Stream && len(e.said) > 1 {
		b = append(b, '[')
	}
	return b
}

func (e *sglangEncoder) Token(b []byte, t *Token) []byte {
	said := &e.said[t.Choice]
	if !t.None {
		said.text, said.ids = append(said.text, t.Text...), append(said.ids, t.ID)
	}
	if e.req.Stream { // each event repeats the text of those before it
		b = openai.Fill(b, `data: {"text":$,"output_ids":$,"meta_info":$`, string(said.text), said.tokens(), e.meta(t))
		if len(e.said) > 1 {
			b = openai.Fill(b, `,"index":$`, t.Choice)
		}
		return append(b, "}\n\n"...)
	}
	if !e.open {
		if t.Choice > 0 {
			b = append(b, ',')
		}
		b, e.open = append(b, `{"text":"`...), true
	}
	if !t.None {
		b = openai.AppendText(b, t.Text)
	}
	if t.Done == "" {
		return b
	}
	e.open = false
	b = openai.Fill(b, `","output_ids":$,"meta_info":$`, said.tokens(), e.meta(t))
	if len(e.said) > 1 {
		b = append(b, '}')
	}
	return b
}

// tokens returns the ids; never nil.
func (s *sglangSaid) tokens() []uint32 { return append([]uint32{}, s.ids...) }

// meta returns the meta_info of a choice up to a token.
func (e *sglangEncoder) meta(t *Token) []byte {
	var reason any
	switch {
	case t.Done == "":
	case t.Done == openai.FinishLength:
		reason = openai.Fill(nil, `{"type":"length","length":$}`, len(e.said[t.Choice].ids))
	case t.StopID != nil:
		reason = openai.Fill(nil, `{"type":$,"matched":$}`, t.Done, *t.StopID)
	default:
		reason = openai.Fill(nil, `{"type":$,"matched":$}`, t.Done, openai.OrNull(t.Stop))
	}
	return openai.Fill(nil, `{"id":$,"finish_reason":$,"prompt_tokens":$,"weight_version":"default",`+
		`"completion_tokens":$,"cached_tokens":$}`, keyOf(e.req.ID, t.Choice), reason,
		e.req.Prompts[t.Choice/e.req.N].Len(), len(e.said[t.Choice].ids), e.cached)
}

func (e *sglangEncoder) End(b []byte, _ openai.Usage, _, extra []byte) []byte {
	switch {
	case e.req.Stream && len(extra) > 0: // `,"name":value`
		b = append(append(append(b, "data: {"...), extra[1:]...), "}\n\n"...)
		fallthrough
	case e.req.Stream:
		return append(b, openai.Done...)
	case len(e.said) > 1:
		return append(b, ']')
	}
	return append(append(b, extra...), '}')
}

func (e *sglangEncoder) Fail(b []byte, err *openai.Error) []byte {
	if e.req.Stream {
		b = openai.Fill(b, `data: {"error":{"message":$}}`+"\n\n", err.Message)
		return append(b, openai.Done...)
	}
	if e.open {
		b = append(b, `",`...)
	} else {
		b = append(b, '{')
	}
	b = openai.Fill(b, `"error":{"message":$}}`, err.Message)
	if len(e.said) > 1 {
		b = append(b, ']')
	}
	return b
}
