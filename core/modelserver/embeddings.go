package modelserver

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Lengths of embeddings. DefaultDimensions holds if the request sets none.
const (
	DefaultDimensions = 384
	maxDimensions     = 65_536
	maxNumbers        = 4 << 20 // of one answer
)

// readEmbeddings reads /v1/embeddings. The engine computes each input as one request: the prompt and one token that the
// client never sees. Embeddings therefore wait, and take time, as prefills do.
func (r *Reader) readEmbeddings(head *Head, body []byte) (*Request, *openai.Error) {
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
		text, bad := r.ChatText(&openai.Chat{Messages: q.Messages}, head.Client)
		if bad != nil {
			return nil, bad
		}
		q.Input.Texts = []string{text}
	}
	switch {
	case q.Input.Len() == 0:
		return nil, openai.Errorf(400, "input",
			"input: expected a string, a list of strings or token ids, got nothing.")
	case q.Input.Len() > openai.MaxPrompts:
		return nil, openai.Errorf(400, "input", "input: expected at most %d inputs, got %d.", openai.MaxPrompts,
			q.Input.Len())
	case q.Format != "" && q.Format != "float" && q.Format != "base64":
		return nil, openai.Errorf(400, "encoding_format", "encoding_format: expected float or base64, got %q.",
			q.Format)
	}
	dimensions := r.dimensions()
	if q.Dimensions != nil {
		dimensions = *q.Dimensions
	}
	if dimensions < 1 || dimensions > maxDimensions {
		return nil, openai.Errorf(400, "dimensions", "dimensions: expected 1 to %d, got %d.", maxDimensions, dimensions)
	}
	if dimensions*q.Input.Len() > maxNumbers {
		return nil, openai.Errorf(400, "dimensions", "dimensions times inputs: expected at most %d, got %d.",
			maxNumbers, dimensions*q.Input.Len())
	}
	p := openai.Sampling{Model: q.Model, TruncatePrompt: q.Truncate, Priority: q.Priority, RequestID: q.RequestID}
	key := head.id(&p)
	req := &Request{Key: key, ID: "embd-" + key, N: 1}
	req.Prompts = r.prompts(&q.Input)
	if bad := r.fill(req, &p, 1, true); bad != nil {
		return nil, bad
	}
	req.IgnoreEOS = true
	req.Encoder = &embeddings{req: req, dimensions: dimensions, base64: q.Format == "base64", created: head.Created}
	return req, nil
}

// dimensions returns the length of an embedding if the request sets none.
func (c *Config) dimensions() int {
	if c.Dimensions > 0 {
		return c.Dimensions
	}
	return DefaultDimensions
}

// Embedding returns the vector of a prompt, with the default length.
func (c *Config) Embedding(tokens []uint32) []float32 { return unit(tokens, c.dimensions()) }

// embeddings encodes the answers of /v1/embeddings.
type embeddings struct {
	req        *Request
	dimensions int
	base64     bool
	created    int64
}

func (e *embeddings) ContentType() string                     { return jsonType }
func (e *embeddings) Begin(b []byte, _ openai.Usage) []byte   { return b }
func (e *embeddings) Token(b []byte, _ *Token) []byte         { return b }
func (e *embeddings) Fail(b []byte, err *openai.Error) []byte { return openai.AppendError(b, err) }
func (e *embeddings) End(b []byte, u openai.Usage, _, _ []byte) []byte {
	b = openai.Fill(b, `{"id":$,"object":"list","created":$,"model":$,"data":[`, e.req.ID, e.created, e.req.Model)
	for i := range e.req.Prompts {
		if i > 0 {
			b = append(b, ',')
		}
		b = openai.Fill(b, `{"index":$,"object":"embedding","embedding":$}`, i, e.vector(e.req.Prompts[i].Tokens))
	}
	b = openai.AppendUsage(append(b, `],"usage":`...), openai.Usage{PromptTokens: u.PromptTokens}, true)
	return append(b, '}')
}

// unit returns a unit vector that depends on the tokens alone. Each token and each pair of neighbours adds a fixed
// vector, so texts with common words have similar vectors.
func unit(tokens []uint32, dimensions int) []float32 {
	v := make([]float32, dimensions)
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

func (e *embeddings) vector(tokens []uint32) []byte {
	v := unit(tokens, e.dimensions)
	if e.base64 {
		raw := make([]byte, 0, 4*len(v))
		for _, x := range v {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		return openai.Fill(nil, "$", base64.StdEncoding.EncodeToString(raw))
	}
	b := make([]byte, 0, 12*len(v))
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return append(b, ']')
}
