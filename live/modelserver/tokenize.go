package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// tokenizeText answers POST /tokenize with the tokens of a prompt or of a chat.
func (s *Server) tokenizeText(w http.ResponseWriter, r *http.Request) {
	body, ok := wire.ReadBody(w, r, s.opts.MaxBodyBytes)
	if !ok {
		return
	}
	var q struct {
		openai.Chat
		Prompt     *string `json:"prompt"`
		ReturnStrs bool    `json:"return_token_strs"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		wire.Answer(w, openai.BadRequest("", "The request body is not the expected JSON object: %v.", err))
		return
	}
	var req modelserver.Request
	if bad := s.reader.Model(&req, q.Model); bad != nil {
		wire.Answer(w, bad)
		return
	}
	var text string
	switch {
	case q.Prompt != nil:
		text = *q.Prompt
	case q.Messages != nil:
		var bad *openai.Error
		if bad = q.CheckPrompt(); bad == nil {
			text, bad = s.reader.ChatText(&q.Chat, client{r})
		}
		if bad != nil {
			wire.Answer(w, bad)
			return
		}
	default:
		wire.Answer(w, openai.Invalidf("prompt", "prompt: field required, or messages."))
		return
	}
	ids := s.reader.Prompt(text).Tokens
	var strs any
	if q.ReturnStrs {
		list := make([]string, len(ids))
		for i, id := range ids {
			list[i] = string(s.reader.Tokenizer.Decode(nil, id))
		}
		strs = openai.AppendStrings(nil, list)
	}
	wire.Fill(w, `{"count":$,"max_model_len":$,"tokens":$,"token_strs":$}`, len(ids), s.cfg.MaxModelLen, ids, strs)
}

// detokenizeIDs answers POST /detokenize.
func (s *Server) detokenizeIDs(w http.ResponseWriter, r *http.Request) {
	body, ok := wire.ReadBody(w, r, s.opts.MaxBodyBytes)
	if !ok {
		return
	}
	var q struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Tokens == nil {
		wire.Answer(w, openai.BadRequest("tokens", "tokens: expected a list of token ids."))
		return
	}
	wire.Fill(w, `{"prompt":$}`, tokens.Decode(s.reader.Tokenizer, q.Tokens))
}

// render answers the render endpoints with the request that /inference/v1/generate would get, tokens included, and
// generates nothing. A chat gives one object; a completion gives a list with one object for each prompt.
func (s *Server) render(api *modelserver.API, list bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := wire.ReadBody(w, r, s.opts.MaxBodyBytes)
		if !ok {
			return
		}
		var head modelserver.Head
		s.headOf(r, &head)
		head.Client = client{r}
		req, bad := api.Read(&s.reader, &head, body)
		if bad != nil {
			wire.Answer(w, bad)
			return
		}
		var b []byte
		if list {
			b = append(b, '[')
		}
		for i := range req.Prompts {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendRendered(b, req, i)
		}
		if list {
			b = append(b, ']')
		}
		wire.Write(w, http.StatusOK, wire.JSON, b)
	}
}

func appendRendered(b []byte, req *modelserver.Request, i int) []byte {
	var most []byte
	if req.MaxTokens > 0 {
		most = openai.Fill(nil, `,"max_tokens":$`, req.MaxTokens)
	}
	b = openai.Fill(b, `{"request_id":$,"token_ids":$,"features":$,"sampling_params":{"n":$`, req.ID,
		req.Prompts[i].Tokens,
		modelserver.AppendFeatures(nil, req.Media), req.N)
	return openai.Fill(append(b, most...),
		`,"min_tokens":$,"ignore_eos":$},"model":$,"stream":$,"stream_options":null,`+
			`"cache_salt":$,"priority":$,"kv_transfer_params":$}`, req.MinTokens, req.IgnoreEOS, req.Model, req.Stream,
		openai.OrNull(req.Salt), req.Priority, req.KV.Raw)
}

// countTokens answers POST /v1/messages/count_tokens.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	body, ok := wire.ReadBody(w, r, s.opts.MaxBodyBytes)
	if !ok {
		return
	}
	n, bad := s.reader.CountMessages(body, client{r})
	if bad != nil {
		wire.Write(w, bad.Status, wire.JSON, modelserver.AppendMessagesError(nil, bad))
		return
	}
	wire.Fill(w, `{"input_tokens":$}`, n)
}

// client reports whether the sender of an HTTP request has left.
type client struct{ *http.Request }

// HasLeft implements chattemplate.Client.
func (c client) HasLeft() bool { return c.Context().Err() != nil }

// Tokens returns the tokens of the first prompt of a request to a path, as the server counts them.
func (s *Server) Tokens(path string, h http.Header, body []byte) ([]uint32, error) {
	api := modelserver.APIOf(path)
	if api == nil {
		return nil, fmt.Errorf("no requests for tokens are served at %.200s", path)
	}
	head := modelserver.ReadHead(h.Get)
	if head.RequestID == "" {
		head.RequestID = wire.NewID()
	}
	req, bad := api.Read(&s.reader, &head, body)
	if bad != nil {
		return nil, bad
	}
	return req.Prompts[0].Tokens, nil
}
