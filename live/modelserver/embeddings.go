package modelserver

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
)

// Lengths of embeddings: DefaultDimensions where the request does not say, and
// limits.
const (
	DefaultDimensions = 384
	maxDimensions     = 65_536
	maxNumbers        = 4 << 20 // in one answer
)

// prepareEmbeddings reads /v1/embeddings. Each input is one request to the
// engine that computes the prompt and one token, which nobody sees: embeddings
// wait, and take time, as prefills do.
func prepareEmbeddings(s *Server, r *http.Request, body []byte) (*request, *openai.Error) {
	var q struct {
		Model      string           `json:"model"`
		Input      openai.Prompt    `json:"input"`
		Messages   []openai.Message `json:"messages"`
		Format     string           `json:"encoding_format"`
		Dimensions *int             `json:"dimensions"`
		Truncate   *int             `json:"truncate_prompt_tokens"`
		Priority   int64            `json:"priority"`
		RequestID  string           `json:"request_id"`
	}
	if bad := openai.Decode(body, &q); bad != nil {
		return nil, bad
	}
	if q.Messages != nil && q.Input.Len() == 0 {
		q.Input.Texts = []string{s.chatText(q.Messages, nil)}
	}
	switch {
	case q.Input.Len() == 0:
		return nil, openai.Errorf(400, "input", "input: expected a string, a list of strings or token ids, got nothing.")
	case q.Input.Len() > openai.MaxPrompts:
		return nil, openai.Errorf(400, "input", "input: expected at most %d inputs, got %d.", openai.MaxPrompts, q.Input.Len())
	case q.Format != "" && q.Format != "float" && q.Format != "base64":
		return nil, openai.Errorf(400, "encoding_format", "encoding_format: expected float or base64, got %q.", q.Format)
	}
	dimensions := DefaultDimensions
	if s.opts.Dimensions > 0 {
		dimensions = s.opts.Dimensions
	}
	if q.Dimensions != nil {
		dimensions = *q.Dimensions
	}
	if dimensions < 1 || dimensions > maxDimensions {
		return nil, openai.Errorf(400, "dimensions", "dimensions: expected 1 to %d, got %d.", maxDimensions, dimensions)
	}
	if dimensions*q.Input.Len() > maxNumbers {
		return nil, openai.Errorf(400, "dimensions", "dimensions times inputs: expected at most %d, got %d.", maxNumbers, dimensions*q.Input.Len())
	}
	p := openai.Sampling{Model: q.Model, TruncatePrompt: q.Truncate, Priority: q.Priority, RequestID: q.RequestID}
	key := requestIDOf(r, &p)
	req := &request{key: key, id: "embd-" + key, n: 1}
	for _, t := range q.Input.Texts {
		req.prompts = append(req.prompts, prompt{tokens: s.tokenize(t)})
	}
	for _, ids := range q.Input.Tokens {
		req.prompts = append(req.prompts, prompt{tokens: ids})
	}
	if bad := s.fill(req, &p, 1, true); bad != nil {
		return nil, bad
	}
	req.ignoreEOS = true
	req.enc = &embeddings{req: req, dimensions: dimensions, base64: q.Format == "base64", created: createdNow()}
	return req, nil
}

// embeddings encodes the answer of /v1/embeddings.
type embeddings struct {
	req        *request
	dimensions int
	base64     bool
	created    int64
}

func (e *embeddings) contentType() string                     { return jsonType }
func (e *embeddings) begin(b []byte, _ openai.Usage) []byte   { return b }
func (e *embeddings) token(b []byte, _ *token) []byte         { return b }
func (e *embeddings) fail(b []byte, err *openai.Error) []byte { return openai.AppendError(b, err) }
func (e *embeddings) end(b []byte, u openai.Usage, _, _ []byte) []byte {
	b = append(b, `{"id":`...)
	b = openai.AppendString(b, e.req.id)
	b = append(b, `,"object":"list","created":`...)
	b = strconv.AppendInt(b, e.created, 10)
	b = append(b, `,"model":`...)
	b = openai.AppendString(b, e.req.model)
	b = append(b, `,"data":[`...)
	for i := range e.req.prompts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `,"object":"embedding","embedding":`...)
		b = e.vector(b, e.req.prompts[i].tokens)
		b = append(b, '}')
	}
	b = append(b, `],"usage":`...)
	b = openai.AppendUsage(b, openai.Usage{PromptTokens: u.PromptTokens}, true)
	return append(b, '}')
}

// unit is a unit vector that depends on the tokens alone: the sum of what
// each token and each pair of neighbours adds, so that texts with words in
// common are near to one another.
func (e *embeddings) unit(tokens []uint32) []float32 {
	v := make([]float32, e.dimensions)
	add := func(key uint64) {
		d := machine.NewDraw(0, "server", "embedding", key)
		for range 8 {
			x := d.Uint64()
			v[x%uint64(len(v))] += float32(int8(x>>56)) / 128
		}
	}
	for i, t := range tokens {
		add(uint64(t))
		if i > 0 {
			add(uint64(tokens[i-1])<<32 | uint64(t))
		}
	}
	var norm float64
	for _, x := range v {
		norm += float64(x) * float64(x)
	}
	if norm == 0 {
		v[0], norm = 1, 1
	}
	scale := float32(1 / math.Sqrt(norm))
	for i := range v {
		v[i] *= scale
	}
	return v
}

func (e *embeddings) vector(b []byte, tokens []uint32) []byte {
	v := e.unit(tokens)
	if e.base64 {
		raw := make([]byte, 0, 4*len(v))
		for _, x := range v {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, raw)
		return append(b, '"')
	}
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return append(b, ']')
}

// prepareGenerate reads /inference/v1/generate: tokens in, tokens out.
func prepareGenerate(s *Server, r *http.Request, body []byte) (*request, *openai.Error) {
	var q struct {
		RequestID string          `json:"request_id"`
		TokenIDs  []uint32        `json:"token_ids"`
		Params    json.RawMessage `json:"sampling_params"`
		Model     string          `json:"model"`
		Stream    bool            `json:"stream"`
		CacheSalt string          `json:"cache_salt"`
		Priority  int64           `json:"priority"`
		KV        json.RawMessage `json:"kv_transfer_params"`
		EC        json.RawMessage `json:"ec_transfer_params"`
		Features  struct {
			Hashes map[string][]string `json:"mm_hashes"`
		} `json:"features"`
	}
	if bad := openai.Decode(body, &q); bad != nil {
		return nil, bad
	}
	if len(q.TokenIDs) == 0 {
		return nil, openai.Errorf(400, "token_ids", "token_ids: expected at least one token id.")
	}
	var p openai.Sampling
	if len(bytes.TrimSpace(q.Params)) > 0 {
		if bad := openai.Decode(q.Params, &p); bad != nil {
			return nil, bad
		}
	}
	p.RequestID, p.Model, p.Stream, p.CacheSalt, p.Priority, p.KVTransferParams = q.RequestID, q.Model, q.Stream, q.CacheSalt, q.Priority, q.KV
	if bad := p.Check(); bad != nil {
		return nil, bad
	}
	key := requestIDOf(r, &p)
	req := &request{key: key, id: key, n: p.Choices(), stream: p.Stream, prompts: []prompt{{tokens: q.TokenIDs}}}
	limit, limited := openai.DefaultCompletionTokens, true
	if p.MaxTokens != nil {
		limit = *p.MaxTokens
	}
	if bad := s.fill(req, &p, limit, limited); bad != nil {
		return nil, bad
	}
	for _, kind := range slices.Sorted(maps.Keys(q.Features.Hashes)) {
		req.encodes = append(req.encodes, q.Features.Hashes[kind]...)
	}
	if len(req.encodes) > maxEncodes {
		return nil, openai.Errorf(400, "features", "features.mm_hashes: expected at most %d, got %d.", maxEncodes, len(req.encodes))
	}
	req.enc = &generateEncoder{req: req, encoded: s.encoded(req)}
	return req, nil
}

// generateEncoder encodes /inference/v1/generate.
type generateEncoder struct {
	req     *request
	encoded []byte // ec_transfer_params; nil where there are none
	open    bool
	any     bool
}

// maxEncodes bounds the media of one request.
const maxEncodes = 4096

func (e *generateEncoder) contentType() string {
	if e.req.stream {
		return eventStream
	}
	return jsonType
}

func (e *generateEncoder) begin(b []byte, _ openai.Usage) []byte {
	if e.req.stream {
		return b
	}
	b = append(b, `{"request_id":`...)
	b = openai.AppendString(b, e.req.id)
	return append(b, `,"choices":[`...)
}

func (e *generateEncoder) token(b []byte, t *token) []byte {
	if e.req.stream {
		b = append(b, `data: {"request_id":`...)
		b = openai.AppendString(b, e.req.id)
		b = append(b, `,"choices":[{"index":`...)
		b = strconv.AppendInt(b, int64(t.choice), 10)
		b = append(b, `,"logprobs":null,"finish_reason":`...)
		b = appendReason(b, t.done)
		b = append(b, `,"token_ids":[`...)
		if !t.none {
			b = strconv.AppendUint(b, uint64(t.id), 10)
		}
		return append(b, "]}]}\n\n"...)
	}
	if !e.open {
		if t.choice > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(t.choice), 10)
		b = append(b, `,"logprobs":null,"token_ids":[`...)
		e.open, e.any = true, false
	}
	if !t.none {
		if e.any {
			b = append(b, ',')
		}
		b, e.any = strconv.AppendUint(b, uint64(t.id), 10), true
	}
	if t.done != "" {
		b = append(b, `],"finish_reason":`...)
		b = appendReason(b, t.done)
		b, e.open = append(b, '}'), false
	}
	return b
}

func appendReason(b []byte, r openai.FinishReason) []byte {
	if r == "" {
		return append(b, "null"...)
	}
	return openai.AppendString(b, string(r))
}

func (e *generateEncoder) end(b []byte, u openai.Usage, kv, extra []byte) []byte {
	if e.req.stream {
		return append(b, openai.Done...)
	}
	b = append(b, `],"prompt_logprobs":null,"kv_transfer_params":`...)
	if kv == nil {
		kv = []byte("null")
	}
	b = append(b, kv...)
	b = append(b, e.encoded...)
	b = append(b, extra...)
	return append(b, '}')
}

func (e *generateEncoder) fail(b []byte, err *openai.Error) []byte {
	if e.req.stream {
		return append(openai.AppendStreamError(b, err), openai.Done...)
	}
	if e.open {
		b = append(b, `],"finish_reason":"error"}`...)
	}
	b = append(b, `],"error":`...)
	whole := openai.AppendError(nil, err)
	b = append(b, whole[len(`{"error":`):len(whole)-1]...)
	return append(b, '}')
}
