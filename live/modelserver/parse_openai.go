package modelserver

import (
	"net/http"
	"sync"

	"github.com/windtunnel/windtunnel/core/openai"
)

// chats are parsed requests to /v1/chat/completions; of what they say nothing
// is kept but strings and lists of their own.
var chats = sync.Pool{New: func() any { return new(openai.Chat) }}

// prepareChat reads /v1/chat/completions.
func prepareChat(s *Server, r *http.Request, body []byte) (*request, *openai.Error) {
	c := chats.Get().(*openai.Chat)
	defer func() {
		if len(body) <= keptBuffer {
			chats.Put(c)
		}
	}()
	if bad := c.Parse(body); bad != nil {
		return nil, bad
	}
	key := requestIDOf(r, &c.Sampling)
	req := newRequest(c.Stream)
	req.key, req.id, req.n = key, "chatcmpl-"+key, c.Choices()
	text := s.chatText(c.Messages, c.Tools)
	req.prompts = append(req.prompts, prompt{text: text, tokens: s.tokenize(text)})
	for i := range c.Messages {
		if len(c.Messages[i].Content.Media) > 0 {
			req.media = s.mediaOf(c.Messages, text)
			s.seen.show(req.media)
			break
		}
	}
	if s.opts.EncoderOnly {
		for _, m := range req.media {
			req.encodes = append(req.encodes, m.hash)
		}
	}
	req.image = s.paints(r, key)
	if n := len(c.Messages); n > 0 {
		req.echoText = c.Messages[n-1].Content.Text
	}
	limit, limited := c.Limit()
	if bad := s.fill(req, &c.Sampling, limit, limited); bad != nil {
		return nil, bad
	}
	req.tools, req.toolChoice = c.Tools, c.ToolChoice
	lp := (*logprobs)(nil)
	if c.Logprobs {
		lp = &logprobs{top: max(c.TopLogprobs, 0)}
	}
	s.encode(req, &c.Sampling, true, lp)
	return req, nil
}

// prepareCompletion reads /v1/completions.
func prepareCompletion(s *Server, r *http.Request, body []byte) (*request, *openai.Error) {
	c, bad := openai.ParseCompletion(body)
	if bad != nil {
		return nil, bad
	}
	key := requestIDOf(r, &c.Sampling)
	req := newRequest(c.Stream)
	req.key, req.id, req.n = key, "cmpl-"+key, c.Choices()
	for _, t := range c.Prompt.Texts {
		req.prompts = append(req.prompts, prompt{text: t, tokens: s.tokenize(t)})
	}
	for _, ids := range c.Prompt.Tokens {
		req.prompts = append(req.prompts, prompt{tokens: ids})
	}
	if len(c.Prompt.Texts) > 0 {
		req.echoText = c.Prompt.Texts[0]
	}
	// With echo and no tokens the prompt is all that is said; the engine still
	// computes it, and one token that nobody sees.
	req.echo, req.silent = c.Echo, *c.MaxTokens == 0
	if bad := s.fill(req, &c.Sampling, max(1, *c.MaxTokens), true); bad != nil {
		return nil, bad
	}
	lp := (*logprobs)(nil)
	if c.Logprobs != nil {
		lp = &logprobs{top: *c.Logprobs}
	}
	s.encode(req, &c.Sampling, false, lp)
	return req, nil
}

// fill checks what all OpenAI requests share and fills it in.
func (s *Server) fill(req *request, p *openai.Sampling, limit int, limited bool) *openai.Error {
	if bad := s.model(req, p.Model); bad != nil {
		return bad
	}
	for i := range req.prompts {
		n := len(req.prompts[i].tokens)
		if p.TruncatePrompt != nil && *p.TruncatePrompt > 0 && n > *p.TruncatePrompt {
			req.prompts[i].tokens = req.prompts[i].tokens[n-*p.TruncatePrompt:]
			n = *p.TruncatePrompt
		}
		if n >= s.cfg.MaxModelLen {
			return openai.TooLong(s.cfg.MaxModelLen, n)
		}
		if limited && n+limit > s.cfg.MaxModelLen {
			return openai.OutputTooLong(s.cfg.MaxModelLen, limit, n)
		}
	}
	if limited {
		req.maxTokens = limit
	}
	if !req.stream {
		req.tokenBytes = tokenWork
	}
	req.minTokens, req.ignoreEOS = p.MinTokens, p.IgnoreEOS
	if bad := checkStops(p); bad != nil {
		return bad
	}
	req.stops, req.stopIDs, req.keepStop = p.Stop, p.StopTokenIDs, p.IncludeStop
	req.priority, req.salt = p.Priority, p.CacheSalt
	kv, bad := parseKV(p.KVTransferParams)
	if bad != nil {
		return bad
	}
	kv.session = p.SessionID
	if bad := s.meetAt(req, &kv, p); bad != nil {
		return bad
	}
	if bad := s.mayFetch(kv.remote, kv.source); bad != nil {
		return bad
	}
	req.kv = kv
	req.kv.threshold = s.opts.CacheHitThreshold
	if p.CacheHitThreshold != nil {
		req.kv.threshold = *p.CacheHitThreshold
	}
	if p.KVMetadata {
		req.kv.document, req.kv.remoteDecode = true, true
	}
	if p.KVHandle != "" {
		if bad := s.useHandle(req, p.KVHandle); bad != nil {
			return bad
		}
	}
	if p.Seed != nil {
		req.seed = uint64(*p.Seed)
	}
	if req.choices() > openai.MaxChoices {
		return openai.Errorf(400, "n", "n times the number of prompts must be at most %d, got %d.", openai.MaxChoices, req.choices())
	}
	return nil
}

// model checks the model's name.
func (s *Server) model(req *request, name string) *openai.Error {
	if name == "" {
		req.model = s.opts.Models[0]
		return nil
	}
	for _, m := range s.opts.Models {
		if m == name {
			req.model = m
			return nil
		}
	}
	if a, ok := s.adapters.find(name); ok {
		req.model, req.lora, req.adapter = a.Name, a.Name, a.id
		return nil
	}
	return openai.UnknownModel(name)
}

func (s *Server) encode(req *request, p *openai.Sampling, chat bool, lp *logprobs) {
	created := createdNow()
	var ids [][]uint32
	if p.ReturnTokenIDs {
		for i := range req.prompts {
			ids = append(ids, req.prompts[i].tokens)
		}
	}
	if !req.stream {
		if lp != nil {
			req.tokenBytes += logprobWork * (lp.top + 1)
		}
		*req.enc.(*openaiWhole) = openaiWhole{head: openai.Head{ID: req.id, Model: req.model, Created: created, Chat: chat},
			prompts: ids, n: req.n, tokens: p.ReturnTokenIDs, logprobs: lp, image: req.image, encoded: s.encoded(req)}
		return
	}
	include, continuous := p.Usage()
	*req.enc.(*openaiStream) = openaiStream{o: openai.StreamOptions{ID: req.id, Model: req.model, Created: created, Chat: chat,
		ContinuousUsage: continuous, ReturnTokenIDs: p.ReturnTokenIDs},
		prompts: ids, n: req.n, choices: req.choices(), includeUsage: include, logprobs: lp, image: req.image}
}

// requestIDOf is the id that the client gave, in the header or in the body.
func requestIDOf(r *http.Request, p *openai.Sampling) string {
	if p.RequestID != "" {
		return p.RequestID
	}
	return headerOf(r, "X-Request-Id")
}
