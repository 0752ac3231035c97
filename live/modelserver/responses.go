package modelserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/windtunnel/windtunnel/core/openai"
)

// responsesRequest is what is read of a POST to /v1/responses.
type responsesRequest struct {
	Model        string            `json:"model"`
	Input        json.RawMessage   `json:"input"`
	Instructions string            `json:"instructions"`
	MaxTokens    *int              `json:"max_output_tokens"`
	Stream       bool              `json:"stream"`
	Temperature  *float64          `json:"temperature"`
	TopP         *float64          `json:"top_p"`
	Tools        []json.RawMessage `json:"tools"`
	ToolChoice   openai.ToolChoice `json:"tool_choice"`
	Previous     string            `json:"previous_response_id"`
	Conversation json.RawMessage   `json:"conversation"`
	Store        *bool             `json:"store"`
	Metadata     json.RawMessage   `json:"metadata"`
	Priority     int64             `json:"priority"`
	CacheSalt    string            `json:"cache_salt"`
	RequestID    string            `json:"request_id"`
	KV           json.RawMessage   `json:"kv_transfer_params"`
}

// prepareResponses reads /v1/responses.
func prepareResponses(s *Server, r *http.Request, body []byte) (*request, *openai.Error) {
	q := new(responsesRequest)
	if bad := openai.Decode(body, q); bad != nil {
		return nil, bad
	}
	items, bad := parseItems(q.Input)
	if bad != nil {
		return nil, bad
	}
	p := openai.Sampling{Model: q.Model, Temperature: q.Temperature, TopP: q.TopP, Priority: q.Priority, CacheSalt: q.CacheSalt,
		RequestID: q.RequestID, KVTransferParams: q.KV}
	if bad := p.Check(); bad != nil {
		return nil, bad
	}
	key := requestIDOf(r, &p)
	enc := &responsesEncoder{s: s, q: q, id: "resp_" + key, created: createdNow(), items: items, store: q.Store == nil || *q.Store}
	var messages []openai.Message
	if q.Instructions != "" {
		messages = append(messages, openai.Message{Role: "system", Content: openai.Content{Text: q.Instructions}})
	}
	if messages, bad = enc.history(messages); bad != nil {
		return nil, bad
	}
	for _, it := range items {
		messages = append(messages, it.message())
	}
	text := s.chatText(messages, nil)
	req := &request{key: key, id: enc.id, n: 1, stream: q.Stream, prompts: []prompt{{text: text, tokens: s.tokenize(text)}}}
	req.echoText = messages[len(messages)-1].Content.Text
	limit, limited := 0, q.MaxTokens != nil
	if limited {
		if limit = *q.MaxTokens; limit < 1 {
			return nil, openai.Errorf(400, "max_output_tokens", "max_output_tokens must be at least 1, got %d.", limit)
		}
	}
	if bad := s.fill(req, &p, limit, limited); bad != nil {
		return nil, bad
	}
	if req.tools, bad = responsesTools(q.Tools); bad != nil {
		return nil, bad
	}
	req.toolChoice = q.ToolChoice
	enc.req, req.enc = req, enc
	return req, nil
}

// history puts what came before in front of the input: the response that this
// one follows, or the conversation that it belongs to.
func (e *responsesEncoder) history(m []openai.Message) ([]openai.Message, *openai.Error) {
	if e.q.Previous != "" {
		v, ok := e.s.store.get(e.q.Previous)
		prev, isResponse := v.(*storedResponse)
		if !ok || !isResponse {
			return nil, openai.Errorf(404, "previous_response_id", "Response with id '%s' not found.", e.q.Previous)
		}
		m = append(m, prev.messages...)
	}
	if len(e.q.Conversation) == 0 || string(e.q.Conversation) == "null" {
		return m, nil
	}
	if json.Unmarshal(e.q.Conversation, &e.conversation) != nil {
		var o struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(e.q.Conversation, &o) != nil || o.ID == "" {
			return nil, openai.Errorf(400, "conversation", "conversation: expected an id or an object with an id.")
		}
		e.conversation = o.ID
	}
	c := e.s.conversation(e.conversation)
	if c == nil {
		return nil, openai.Errorf(404, "conversation", "Conversation with id '%s' not found.", e.conversation)
	}
	for _, it := range c.list() {
		m = append(m, it.message())
	}
	return m, nil
}

// responsesTools reads tools in the Responses API's flat form.
func responsesTools(raw []json.RawMessage) ([]openai.Tool, *openai.Error) {
	if len(raw) > openai.MaxTools {
		return nil, openai.Errorf(400, "tools", "tools: expected at most %d, got %d.", openai.MaxTools, len(raw))
	}
	var out []openai.Tool
	for i, t := range raw {
		var flat struct {
			Type       string          `json:"type"`
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		}
		if err := json.Unmarshal(t, &flat); err != nil {
			return nil, openai.Errorf(400, "tools", "tools[%d]: expected an object: %v.", i, err)
		}
		if flat.Type != "function" {
			continue // tools that the server would run itself are never called
		}
		if flat.Name == "" {
			return nil, openai.Invalidf("tools", "tools[%d].name: field required.", i)
		}
		var tool openai.Tool
		tool.Type, tool.Function.Name, tool.Function.Parameters = flat.Type, flat.Name, flat.Parameters
		out = append(out, tool)
	}
	return out, nil
}

// item is one item of a response's input or of a conversation.
type item struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   openai.Content  `json:"content"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	CallID    string          `json:"call_id"`
	Output    json.RawMessage `json:"output"`
	raw       json.RawMessage
}

// maxItems limits the items of one request and of one conversation.
const maxItems = 4096

func parseItems(raw json.RawMessage) ([]item, *openai.Error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, openai.Invalidf("input", "input: field required, expected a string or a list of items.")
	}
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, openai.Errorf(400, "input", "input: %v.", err)
		}
		return []item{{Type: "message", Role: "user", Content: openai.Content{Text: text}}}, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, openai.Errorf(400, "input", "input: expected a string or a list of items.")
	}
	if len(parts) == 0 || len(parts) > maxItems {
		return nil, openai.Errorf(400, "input", "input: expected 1 to %d items, got %d.", maxItems, len(parts))
	}
	out := make([]item, len(parts))
	for i, p := range parts {
		if bad := openai.Decode(p, &out[i]); bad != nil {
			return nil, openai.Errorf(400, "input", "input[%d]: %s", i, bad.Message)
		}
		it := &out[i]
		it.raw = p
		if it.Type == "" {
			it.Type = "message"
		}
		if it.Type == "message" && it.Role == "" {
			return nil, openai.Invalidf("input", "input[%d].role: field required.", i)
		}
	}
	return out, nil
}

// message is the item as a turn of a chat.
func (it *item) message() openai.Message {
	m := openai.Message{Role: it.Role, Content: it.Content}
	switch it.Type {
	case "function_call":
		m.Role, m.Content.Text = "assistant", it.Name+"("+it.Arguments+")"
	case "function_call_output":
		m.Role, m.Content.Text = "tool", strings.Trim(string(it.Output), `"`)
	}
	if m.Role == "" {
		m.Role = it.Type
	}
	return m
}

// storedResponse is a response that clients may ask for again or follow.
type storedResponse struct {
	body     []byte
	messages []openai.Message
}

// getResponse answers GET /v1/responses/{id}.
func (s *Server) getResponse(w http.ResponseWriter, r *http.Request) {
	v, ok := s.store.get(r.PathValue("id"))
	resp, isResponse := v.(*storedResponse)
	if !ok || !isResponse {
		answer(w, openai.Errorf(404, "response_id", "Response with id '%s' not found.", r.PathValue("id")))
		return
	}
	writeWhole(w, http.StatusOK, jsonType, resp.body)
}

// cancelResponse answers POST /v1/responses/{id}/cancel. Nothing runs in the
// background here, so there is never anything to cancel.
func (s *Server) cancelResponse(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.store.get(r.PathValue("id")); !ok {
		answer(w, openai.Errorf(404, "response_id", "Response with id '%s' not found.", r.PathValue("id")))
		return
	}
	answer(w, openai.Errorf(400, "response_id", "Cannot cancel a synchronous response."))
}

// deleteResponse answers DELETE /v1/responses/{id}.
func (s *Server) deleteResponse(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !strings.HasPrefix(id, "resp_") || !s.store.delete(id) {
		answer(w, openai.Errorf(404, "response_id", "Response with id '%s' not found.", id))
		return
	}
	writeWhole(w, http.StatusOK, jsonType, fmt.Appendf(nil, `{"id":%q,"object":"response","deleted":true}`, id))
}
