package modelserver

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// readGenerate reads /inference/v1/generate: tokens in, tokens out.
func (r *Reader) readGenerate(head *Head, body []byte) (*Request, *openai.Error) {
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
	p.RequestID, p.Model, p.Stream, p.CacheSalt, p.Priority, p.KVTransferParams = q.RequestID, q.Model, q.Stream,
		q.CacheSalt, q.Priority, q.KV
	limit := openai.DefaultCompletionTokens
	if p.MaxTokens != nil {
		limit = *p.MaxTokens
	}
	req, bad := r.FromPrompt(head.id(&p), Prompt{Tokens: q.TokenIDs}, &p, limit, true)
	if bad != nil {
		return nil, bad
	}
	for _, kind := range slices.Sorted(maps.Keys(q.Features.Hashes)) {
		req.encodes = append(req.encodes, q.Features.Hashes[kind]...)
	}
	if len(req.encodes) > maxEncodes {
		return nil, openai.Errorf(400, "features", "features.mm_hashes: expected at most %d, got %d.", maxEncodes,
			len(req.encodes))
	}
	req.Encoder = &generateEncoder{req: req, encoded: r.encoded(req)}
	return req, nil
}

// generateEncoder encodes /inference/v1/generate.
type generateEncoder struct {
	req     *Request
	encoded []byte // ec_transfer_params; nil if there are none
	open    bool
	any     bool
	prompt  []byte // prompt_logprobs
}

// maxEncodes limits the number of media of one request.
const maxEncodes = 4096

func (e *generateEncoder) ContentType() string { return e.req.contentType() }

func (e *generateEncoder) Begin(b []byte, _ openai.Usage) []byte {
	if e.req.Stream {
		return b
	}
	return openai.Fill(b, `{"request_id":$,"choices":[`, e.req.ID)
}

func (e *generateEncoder) Token(b []byte, t *Token) []byte {
	if e.req.Stream {
		ids := []uint32{t.ID}
		if t.None {
			ids = ids[:0]
		}
		return openai.Fill(b, `data: {"request_id":$,"choices":[{"index":$,"logprobs":null,"finish_reason":$,`+
			`"token_ids":$}]}`+"\n\n", e.req.ID, t.Choice, openai.OrNull(string(t.Done)), ids)
	}
	if top := e.req.promptTop; top != nil && t.of != nil && e.prompt == nil {
		e.prompt = t.of.appendPrompt(nil, *top)
	}
	if !e.open {
		if t.Choice > 0 {
			b = append(b, ',')
		}
		b = openai.Fill(b, `{"index":$,"logprobs":null,"token_ids":[`, t.Choice)
		e.open, e.any = true, false
	}
	if !t.None {
		if e.any {
			b = append(b, ',')
		}
		b, e.any = strconv.AppendUint(b, uint64(t.ID), 10), true
	}
	if t.Done != "" {
		b, e.open = openai.Fill(b, `],"finish_reason":$}`, t.Done), false
	}
	return b
}

func (e *generateEncoder) End(b []byte, u openai.Usage, kv, extra []byte) []byte {
	if e.req.Stream {
		return append(b, openai.Done...)
	}
	b = openai.Fill(b, `],"prompt_logprobs":$,"kv_transfer_params":$`, e.prompt, kv)
	return append(append(append(b, e.encoded...), extra...), '}')
}

func (e *generateEncoder) Fail(b []byte, err *openai.Error) []byte {
	if e.req.Stream {
		return append(openai.AppendStreamError(b, err), openai.Done...)
	}
	if e.open {
		b = append(b, `],"finish_reason":"error"}`...)
	}
	return openai.Fill(b, `],"error":$}`, openai.ErrorInfo(err))
}
