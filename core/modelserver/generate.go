package modelserver

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/openai"
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
	encoded []byte // ec_transfer_params; nil where there are none
	open    bool
	any     bool
	prompt  []byte // prompt_logprobs
}

// maxEncodes bounds the media of one request.
const maxEncodes = 4096

func (e *generateEncoder) ContentType() string {
	if e.req.Stream {
		return eventStream
	}
	return jsonType
}

func (e *generateEncoder) Begin(b []byte, _ openai.Usage) []byte {
	if e.req.Stream {
		return b
	}
	b = append(b, `{"request_id":`...)
	b = openai.AppendString(b, e.req.ID)
	return append(b, `,"choices":[`...)
}

func (e *generateEncoder) Token(b []byte, t *Token) []byte {
	if e.req.Stream {
		b = append(b, `data: {"request_id":`...)
		b = openai.AppendString(b, e.req.ID)
		b = append(b, `,"choices":[{"index":`...)
		b = strconv.AppendInt(b, int64(t.Choice), 10)
		b = append(b, `,"logprobs":null,"finish_reason":`...)
		b = appendReason(b, t.Done)
		b = append(b, `,"token_ids":[`...)
		if !t.None {
			b = strconv.AppendUint(b, uint64(t.ID), 10)
		}
		return append(b, "]}]}\n\n"...)
	}
	if top := e.req.promptTop; top != nil && t.of != nil && e.prompt == nil {
		e.prompt = t.of.appendPrompt(nil, *top)
	}
	if !e.open {
		if t.Choice > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(t.Choice), 10)
		b = append(b, `,"logprobs":null,"token_ids":[`...)
		e.open, e.any = true, false
	}
	if !t.None {
		if e.any {
			b = append(b, ',')
		}
		b, e.any = strconv.AppendUint(b, uint64(t.ID), 10), true
	}
	if t.Done != "" {
		b = append(b, `],"finish_reason":`...)
		b = appendReason(b, t.Done)
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

func (e *generateEncoder) End(b []byte, u openai.Usage, kv, extra []byte) []byte {
	if e.req.Stream {
		return append(b, openai.Done...)
	}
	b = append(b, `],"prompt_logprobs":`...)
	b = openai.AppendOrNull(b, e.prompt)
	b = append(b, `,"kv_transfer_params":`...)
	b = openai.AppendOrNull(b, kv)
	b = append(b, e.encoded...)
	b = append(b, extra...)
	return append(b, '}')
}

func (e *generateEncoder) Fail(b []byte, err *openai.Error) []byte {
	if e.req.Stream {
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
