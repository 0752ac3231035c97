package modelserver

import (
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// fieldsRead holds the parsed fields of a described body. One of the three is set.
type fieldsRead struct {
	generate   *vllmgrpc.GenerateRequest
	chat       *openai.Chat
	completion *openai.Completion
	kv         *connector.Params // of a direct prefill leg
}

// ReadDescribed parses a described body as api does. It makes the bytes only if the request needs more than their
// length and the names of blocks.
func (r *Reader) ReadDescribed(api *API, head *Head, d *described.Body) (*Request, *openai.Error) {
	_, packed := r.Tokenizer.(tokens.Packed)
	if !packed || r.ChatTemplate != nil || r.Content == ContentEcho || len(r.Dataset) > 0 || r.EncoderOnly ||
		d.Chat != (api == Chat) || d.Generate != (api == GRPCGenerate) || !d.Chat && !d.Generate && api != Completions {
		return api.Read(r, head, d.Bytes())
	}
	read, known := d.ModelServer.(*fieldsRead)
	if !known {
		read = new(fieldsRead)
		var bad *openai.Error
		switch {
		case d.Generate:
			read.generate = new(vllmgrpc.GenerateRequest)
			bad = readMessage(d.Sample(), read.generate)
		case d.Chat:
			read.chat = new(openai.Chat)
			bad = read.chat.Parse(d.Sample())
		default:
			read.completion, bad = openai.ParseCompletion(d.Sample())
		}
		if bad != nil {
			return api.Read(r, head, d.Bytes())
		}
		d.ModelServer = read
	}
	p := Prompt{of: d, count: (d.PromptLen(&r.Template, true) + 3) / 4}
	switch {
	case d.Generate:
		return r.fillGRPC(head, read.generate, p, d.ID)
	case d.Chat:
		return r.fillChat(head, read.chat, p)
	}
	return r.fillCompletion(head, read.completion, p)
}

// readChat reads /v1/chat/completions.
func (r *Reader) readChat(head *Head, body []byte) (*Request, *openai.Error) {
	c := head.Scratch
	if c == nil {
		c = new(openai.Chat)
	}
	if bad := c.Parse(body); bad != nil {
		return nil, bad
	}
	text, bad := r.ChatText(c, head.Client)
	if bad != nil {
		return nil, bad
	}
	return r.fillChat(head, c, r.Prompt(text))
}

// fillChat converts a chat, whose prompt is p, to a request.
func (r *Reader) fillChat(head *Head, c *openai.Chat, p Prompt) (*Request, *openai.Error) {
	key := head.id(&c.Sampling)
	q := head.newRequest(c.Stream)
	q.Key, q.ID, q.N = key, "chatcmpl-"+key, c.Choices()
	q.Prompts = append(q.Prompts, p)
	r.show(q, c.Messages, p.Text)
	if r.EncoderOnly {
		for _, m := range q.Media {
			q.encodes = append(q.encodes, m.Hash)
		}
	}
	q.Image = r.paints(head, key)
	if n := len(c.Messages); n > 0 {
		q.echoText = c.Messages[n-1].Content.Text
	}
	limit, limited := c.Limit()
	if bad := r.fill(q, &c.Sampling, limit, limited); bad != nil {
		return nil, bad
	}
	if bad := r.offer(q, c.Tools, c.ToolChoice); bad != nil {
		return nil, bad
	}
	if given(c.StructuredOutputs) && c.ToolChoice.Mode == "function" {
		return nil, openai.Errorf(400, "structured_outputs",
			"You can only either use constraints for structured outputs or tools, not both.")
	}
	lp := (*Logprobs)(nil)
	if c.Logprobs {
		lp = q.Logprobs(max(c.TopLogprobs, 0))
	}
	r.encode(q, head, &c.Sampling, true, lp)
	return q, nil
}

// show notes the positions of a chat's media in its prompt.
func (r *Reader) show(q *Request, messages []openai.Message, text string) {
	for i := range messages {
		if len(messages[i].Content.Media) > 0 {
			q.Media = r.mediaOf(messages, text)
			r.State.Shown(q.Media)
			return
		}
	}
}

// readCompletion reads /v1/completions.
func (r *Reader) readCompletion(head *Head, body []byte) (*Request, *openai.Error) {
	c, bad := openai.ParseCompletion(body)
	if bad != nil {
		return nil, bad
	}
	return r.fillCompletion(head, c, r.prompts(&c.Prompt)...)
}

// fillCompletion converts a completion with these prompts to a request.
func (r *Reader) fillCompletion(head *Head, c *openai.Completion, prompts ...Prompt) (*Request, *openai.Error) {
	key := head.id(&c.Sampling)
	q := head.newRequest(c.Stream)
	q.Key, q.ID, q.N = key, "cmpl-"+key, c.Choices()
	q.Prompts = append(q.Prompts, prompts...)
	if len(c.Prompt.Texts) > 0 {
		q.echoText = c.Prompt.Texts[0]
	}
	// With echo and no tokens, the answer is the prompt alone. The engine still computes it, and one token that the
	// client never sees.
	q.echo, q.silent = c.Echo, *c.MaxTokens == 0
	if bad := r.fill(q, &c.Sampling, max(1, *c.MaxTokens), true); bad != nil {
		return nil, bad
	}
	lp := (*Logprobs)(nil)
	if c.Logprobs != nil {
		if lp = q.Logprobs(*c.Logprobs); c.Echo && q.promptTop == nil {
			q.promptTop = c.Logprobs // the text includes the prompt
		}
	}
	r.encode(q, head, &c.Sampling, false, lp)
	return q, nil
}

// prompts returns prompts from a list of texts or token ids.
func (r *Reader) prompts(p *openai.Prompt) []Prompt {
	list := make([]Prompt, 0, p.Len())
	for _, t := range p.Texts {
		list = append(list, r.Prompt(t))
	}
	for _, ids := range p.Tokens {
		list = append(list, Prompt{Tokens: ids})
	}
	return list
}

// fill validates the fields that all APIs share, and copies them to the request.
func (r *Reader) fill(q *Request, p *openai.Sampling, limit int, limited bool) *openai.Error {
	if bad := r.Model(q, p.Model); bad != nil {
		return bad
	}
	most := r.Engine.MaxModelLen
	for i := range q.Prompts {
		n := q.Prompts[i].Len()
		if p.TruncatePrompt != nil && *p.TruncatePrompt > 0 && n > *p.TruncatePrompt {
			q.Prompts[i].Tokens = q.Prompts[i].Tokens[n-*p.TruncatePrompt:]
			n = *p.TruncatePrompt
		}
		if n >= most {
			return openai.TooLong(most, n)
		}
		if limited && n+limit > most {
			return openai.OutputTooLong(most, limit, n)
		}
	}
	if limited {
		q.MaxTokens = limit
	}
	if !q.Stream {
		q.tokenBytes = tokenWork
	}
	q.MinTokens, q.IgnoreEOS = p.MinTokens, p.IgnoreEOS
	if bad := checkStops(p); bad != nil {
		return bad
	}
	q.stops, q.stopIDs, q.keepStop = p.Stop, p.StopTokenIDs, p.IncludeStop
	q.Priority, q.Salt = p.Priority, p.CacheSalt
	bad := r.readKV(q, p)
	if bad != nil {
		return bad
	}
	if most := r.Engine.MaxNewTokens; most > 0 && (q.MaxTokens > most || q.MaxTokens == 0 && !q.KV.Keep) {
		if q.MaxTokens = most; q.MinTokens > most {
			return openai.TooManyMinTokens(most, q.MinTokens)
		}
	}
	q.promptTop = p.PromptLogprobs
	if q.form, bad = r.formOf(q, p); bad != nil {
		return bad
	}
	if seed, repeats := p.Repeats(); repeats {
		for i := range q.Prompts {
			q.Prompts[i].words = r.wordsFor(q, &q.Prompts[i], seed)
		}
	}
	if q.Choices() > openai.MaxChoices {
		return openai.Errorf(400, "n", "n times the number of prompts must be at most %d, got %d.", openai.MaxChoices,
			q.Choices())
	}
	return nil
}

// Model sets the model of a request by its name. An empty name is the server's first model.
func (r *Reader) Model(q *Request, name string) *openai.Error {
	if name == "" {
		q.Model = r.Models[0]
		return nil
	}
	for _, m := range r.Models {
		if m == name {
			q.Model = m
			return nil
		}
	}
	if id, ok := r.State.Adapter(name); ok {
		q.Model, q.LoRA, q.Adapter = name, name, id
		return nil
	}
	return openai.UnknownModel(name)
}

func (r *Reader) encode(q *Request, head *Head, p *openai.Sampling, chat bool, lp *Logprobs) {
	if q.Encoder == nil {
		_, continuous := p.Usage()
		q.counted = q.Stream && continuous
		return
	}
	var ids [][]uint32
	if p.ReturnTokenIDs {
		for i := range q.Prompts {
			ids = append(ids, q.Prompts[i].Tokens)
		}
	}
	if !q.Stream {
		*q.Encoder.(*openaiWhole) = openaiWhole{
			head:    openai.Head{ID: q.ID, Model: q.Model, Created: head.Created, Chat: chat},
			prompts: ids, n: q.N, tokens: p.ReturnTokenIDs, logprobs: lp, image: q.Image, encoded: r.encoded(q),
			promptTop: q.promptTop}
		return
	}
	include, continuous := p.Usage()
	*q.Encoder.(*openaiStream) = openaiStream{
		o: openai.StreamOptions{ID: q.ID, Model: q.Model, Created: head.Created, Chat: chat,
			ContinuousUsage: continuous, ReturnTokenIDs: p.ReturnTokenIDs},
		prompts: ids, n: q.N, choices: q.Choices(), includeUsage: include, logprobs: lp, image: q.Image}
}

// Logprobs makes a request's answer return log probabilities, with this many alternatives to each token.
func (q *Request) Logprobs(top int) *Logprobs {
	if !q.Stream {
		q.tokenBytes += logprobWork * (top + 1)
	}
	return &Logprobs{Top: top}
}

// Prompt returns a tokenized text.
func (r *Reader) Prompt(text string) Prompt { return Prompt{Text: text, Tokens: r.tokenize(text)} }

// FromPrompt returns the request of an API that parses its own messages and has its own encoder. The caller sets the
// encoder. limit is the most tokens of the answer, if the request limits them.
func (r *Reader) FromPrompt(key string, p Prompt, s *openai.Sampling, limit int, limited bool) (*Request,
	*openai.Error) {
	if bad := s.Check(); bad != nil {
		return nil, bad
	}
	q := &Request{Key: key, ID: key, N: s.Choices(), Stream: s.Stream, Prompts: []Prompt{p}, echoText: p.Text}
	return q, r.fill(q, s, limit, limited)
}
