package modelserver

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// tokenizeText answers POST /tokenize: the tokens of a prompt or of a chat.
func (s *Server) tokenizeText(w http.ResponseWriter, r *http.Request) {
	body, ok := s.readBody(w, r)
	if !ok {
		return
	}
	var q struct {
		Model      string           `json:"model"`
		Prompt     *string          `json:"prompt"`
		Messages   []openai.Message `json:"messages"`
		ReturnStrs bool             `json:"return_token_strs"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		answer(w, openai.Errorf(400, "", "The request body is not the expected JSON object: %v.", err))
		return
	}
	var req request
	if bad := s.model(&req, q.Model); bad != nil {
		answer(w, bad)
		return
	}
	var text string
	switch {
	case q.Prompt != nil:
		text = *q.Prompt
	case q.Messages != nil:
		text = s.chatText(q.Messages, nil)
	default:
		answer(w, openai.Invalidf("prompt", "prompt: field required, or messages."))
		return
	}
	ids := s.tokenize(text)
	b := append([]byte(`{"count":`), strconv.Itoa(len(ids))...)
	b = field(b, "max_model_len", s.cfg.MaxModelLen)
	b = append(b, `,"tokens":`...)
	b = openai.AppendTokens(b, ids)
	b = append(b, `,"token_strs":`...)
	if !q.ReturnStrs {
		b = append(b, "null"...)
	} else {
		b = append(b, '[')
		for i, id := range ids {
			if i > 0 {
				b = append(b, ',')
			}
			b = openai.AppendString(b, string(s.tokenizer.Decode(nil, id)))
		}
		b = append(b, ']')
	}
	writeWhole(w, http.StatusOK, jsonType, append(b, '}'))
}

// detokenizeIDs answers POST /detokenize.
func (s *Server) detokenizeIDs(w http.ResponseWriter, r *http.Request) {
	body, ok := s.readBody(w, r)
	if !ok {
		return
	}
	var q struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Tokens == nil {
		answer(w, openai.Errorf(400, "tokens", "tokens: expected a list of token ids."))
		return
	}
	b := openai.AppendString([]byte(`{"prompt":`), tokens.Decode(s.tokenizer, q.Tokens))
	writeWhole(w, http.StatusOK, jsonType, append(b, '}'))
}

// render answers the render endpoints: what /inference/v1/generate would be
// asked for, tokens included, without generating anything. A chat gives one
// object, a completion a list with one object per prompt.
func (s *Server) render(parse prepare, list bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := s.readBody(w, r)
		if !ok {
			return
		}
		if r.Header.Get("X-Request-Id") == "" {
			r.Header.Set("X-Request-Id", s.newID())
		}
		req, bad := parse(s, r, body)
		if bad != nil {
			answer(w, bad)
			return
		}
		var b []byte
		if list {
			b = append(b, '[')
		}
		for i := range req.prompts {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendRendered(b, req, i)
		}
		if list {
			b = append(b, ']')
		}
		writeWhole(w, http.StatusOK, jsonType, b)
	}
}

func appendRendered(b []byte, req *request, i int) []byte {
	b = append(b, `{"request_id":`...)
	b = openai.AppendString(b, req.id)
	b = append(b, `,"token_ids":`...)
	b = openai.AppendTokens(b, req.prompts[i].tokens)
	b = append(b, `,"features":`...)
	b = appendFeatures(b, req.media)
	b = append(b, `,"sampling_params":{"n":`...)
	b = strconv.AppendInt(b, int64(req.n), 10)
	if req.maxTokens > 0 {
		b = field(b, "max_tokens", req.maxTokens)
	}
	b = field(b, "min_tokens", req.minTokens)
	b = append(b, `,"ignore_eos":`...)
	b = strconv.AppendBool(b, req.ignoreEOS)
	b = append(b, `},"model":`...)
	b = openai.AppendString(b, req.model)
	b = append(b, `,"stream":`...)
	b = strconv.AppendBool(b, req.stream)
	b = append(b, `,"stream_options":null,"cache_salt":`...)
	if req.salt == "" {
		b = append(b, "null"...)
	} else {
		b = openai.AppendString(b, req.salt)
	}
	b = append(b, `,"priority":`...)
	b = strconv.AppendInt(b, req.priority, 10)
	b = append(b, `,"kv_transfer_params":`...)
	if len(req.kv.raw) == 0 {
		b = append(b, "null"...)
	} else {
		b = append(b, req.kv.raw...)
	}
	return append(b, '}')
}

// readBody reads a body of any allowed length; false means that it has
// answered.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, bad, ok := readWhole(r, nil, s.opts.MaxBodyBytes)
	if bad != nil {
		closeAfter(w, r)
		answer(w, bad)
	}
	return body, ok
}
