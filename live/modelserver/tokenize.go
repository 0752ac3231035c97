package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// tokenizeText answers POST /tokenize: the tokens of a prompt or of a chat.
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
	b := append([]byte(`{"count":`), strconv.Itoa(len(ids))...)
	b = openai.AppendField(b, "max_model_len", s.cfg.MaxModelLen)
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
			b = openai.AppendString(b, string(s.reader.Tokenizer.Decode(nil, id)))
		}
		b = append(b, ']')
	}
	wire.Write(w, http.StatusOK, wire.JSON, append(b, '}'))
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
	b := openai.AppendString([]byte(`{"prompt":`), tokens.Decode(s.reader.Tokenizer, q.Tokens))
	wire.Write(w, http.StatusOK, wire.JSON, append(b, '}'))
}

// render answers the render endpoints: what /inference/v1/generate would be
// asked for, tokens included, without generating anything. A chat gives one
// object, a completion a list with one object per prompt.
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
	b = append(b, `{"request_id":`...)
	b = openai.AppendString(b, req.ID)
	b = append(b, `,"token_ids":`...)
	b = openai.AppendTokens(b, req.Prompts[i].Tokens)
	b = append(b, `,"features":`...)
	b = modelserver.AppendFeatures(b, req.Media)
	b = append(b, `,"sampling_params":{"n":`...)
	b = strconv.AppendInt(b, int64(req.N), 10)
	if req.MaxTokens > 0 {
		b = openai.AppendField(b, "max_tokens", req.MaxTokens)
	}
	b = openai.AppendField(b, "min_tokens", req.MinTokens)
	b = append(b, `,"ignore_eos":`...)
	b = strconv.AppendBool(b, req.IgnoreEOS)
	b = append(b, `},"model":`...)
	b = openai.AppendString(b, req.Model)
	b = append(b, `,"stream":`...)
	b = strconv.AppendBool(b, req.Stream)
	b = append(b, `,"stream_options":null,"cache_salt":`...)
	if req.Salt == "" {
		b = append(b, "null"...)
	} else {
		b = openai.AppendString(b, req.Salt)
	}
	b = append(b, `,"priority":`...)
	b = strconv.AppendInt(b, req.Priority, 10)
	b = append(b, `,"kv_transfer_params":`...)
	if len(req.KV.Raw) == 0 {
		b = append(b, "null"...)
	} else {
		b = append(b, req.KV.Raw...)
	}
	return append(b, '}')
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
	b := strconv.AppendInt([]byte(`{"input_tokens":`), int64(n), 10)
	wire.Write(w, http.StatusOK, wire.JSON, append(b, '}'))
}

// client is the sender of an HTTP request.
type client struct{ *http.Request }

// HasLeft implements chattemplate.Client.
func (c client) HasLeft() bool { return c.Context().Err() != nil }

// Tokens are those of the first prompt of a request to a path, as the server would count
// them.
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
