package modelserver

import (
	"net/http"
	"unicode/utf8"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/vllmgrpc"
)

// prepareGenerate reads a GenerateRequest.
func (c *grpcCall) prepareGenerate(s *Server, r *http.Request, body []byte) (*request, *openai.Error) {
	q := &vllmgrpc.GenerateRequest{}
	if bad := c.read(body, q); bad != nil {
		return nil, bad
	}
	var p prompt
	switch in := q.Input.(type) {
	case *vllmgrpc.GenerateRequest_Tokenized:
		p = prompt{tokens: in.Tokenized.GetInputIds(), text: in.Tokenized.GetOriginalText()}
	case *vllmgrpc.GenerateRequest_Text:
		p = prompt{tokens: s.tokenize(in.Text), text: in.Text}
	}
	if len(p.tokens) == 0 {
		return nil, openai.Errorf(400, "input", "input: expected text, or tokenized with at least one of input_ids.")
	}
	sampling := samplingOf(q)
	if bad := sampling.Check(); bad != nil {
		return nil, bad
	}
	key := c.nameOf(q.RequestId, r)
	req := &request{key: key, id: key, n: sampling.Choices(), stream: q.Stream, prompts: []prompt{p}, echoText: p.text}
	limit, limited := 0, sampling.MaxTokens != nil
	if limited {
		if limit = *sampling.MaxTokens; limit == 0 {
			return nil, openai.Errorf(400, "max_tokens", "max_tokens must be at least 1, got 0.")
		}
	}
	if bad := s.fill(req, sampling, limit, limited); bad != nil {
		return nil, bad
	}
	c.reply = &grpcGenerate{call: c, req: req, open: make([]*vllmgrpc.GenerateComplete, req.choices())}
	if sp := q.SamplingParams; sp != nil && sp.Logprobs != nil {
		top := int(*sp.Logprobs)
		if top < 0 || top > maxGRPCLogprobs {
			top = maxGRPCLogprobs
		}
		c.reply.logprobs = &logprobs{top: top}
		if !q.Stream {
			req.tokenBytes += logprobWork * (top + 1)
		}
	}
	req.enc = c.reply
	return req, nil
}

// maxGRPCLogprobs is how many alternatives per token are told where the client
// asks for all or for more.
const maxGRPCLogprobs = 20

// read reads the call's message. What is wrong with it may have a code of its
// own, so it is noted here.
func (c *grpcCall) read(body []byte, m proto.Message) *openai.Error {
	if err := vllmgrpc.ReadMessage(body, m); err != nil {
		c.fail(status.Code(err), status.Convert(err).Message())
		return openai.Errorf(400, "", "%s", c.message)
	}
	return nil
}

// nameOf is the request's id; under that of its message it can be aborted.
func (c *grpcCall) nameOf(id string, r *http.Request) string {
	if id == "" {
		return r.Header.Get("X-Request-Id")
	}
	c.calls.add(id, c)
	return id
}

// samplingOf is what the message asks for, in the terms of the HTTP API.
func samplingOf(q *vllmgrpc.GenerateRequest) *openai.Sampling {
	out := &openai.Sampling{Stream: q.Stream}
	if q.KvTransferParamsJson != nil {
		out.KVTransferParams = []byte(*q.KvTransferParamsJson)
	}
	p := q.SamplingParams
	if p == nil {
		return out
	}
	float := func(v float32) *float64 {
		if v == 0 {
			return nil // the default
		}
		x := float64(v)
		return &x
	}
	out.TopP, out.MinP = float(p.TopP), float(p.MinP)
	out.FrequencyPenalty, out.PresencePenalty = float(p.FrequencyPenalty), float(p.PresencePenalty)
	if p.Temperature != nil {
		t := float64(*p.Temperature)
		out.Temperature = &t
	}
	if p.MaxTokens != nil {
		n := int(*p.MaxTokens)
		out.MaxTokens = &n
	}
	if p.N > 0 {
		n := int(p.N)
		out.N = &n
	}
	if p.Seed != nil {
		seed := int64(*p.Seed)
		out.Seed = &seed
	}
	if p.TruncatePromptTokens != nil {
		n := int(*p.TruncatePromptTokens)
		out.TruncatePrompt = &n
	}
	out.MinTokens, out.IgnoreEOS = int(p.MinTokens), p.IgnoreEos
	out.Stop, out.StopTokenIDs, out.IncludeStop = p.Stop, p.StopTokenIds, p.IncludeStopStrInOutput
	return out
}

// grpcGenerate encodes the responses of Generate.
type grpcGenerate struct {
	call     *grpcCall
	req      *request
	logprobs *logprobs
	prompt   uint32
	cached   uint32
	chunk    vllmgrpc.GenerateStreamChunk
	ids      [1]uint32
	// open are the ends of choices that have not been sent: of those that go
	// on, and of all where the KV handoff belongs into them.
	open []*vllmgrpc.GenerateComplete
}

func (e *grpcGenerate) contentType() string { return vllmgrpc.ContentType }

func (e *grpcGenerate) begin(b []byte, u openai.Usage) []byte {
	e.prompt, e.cached = uint32(u.PromptTokens), uint32(u.CachedTokens)
	for i := range e.open {
		e.open[i] = &vllmgrpc.GenerateComplete{Index: uint32(i), PromptTokens: e.prompt, CachedTokens: e.cached}
	}
	return b
}

func (e *grpcGenerate) token(b []byte, t *token) []byte {
	end := e.open[t.choice]
	if end == nil {
		// Ended before it began: a prompt of which too little is cached.
		end = &vllmgrpc.GenerateComplete{Index: uint32(t.choice)}
	}
	if e.req.stream {
		// The last message repeats the last chunk's tokens alone.
		end.OutputIds, end.OutputLogprobs = end.OutputIds[:0], nil
	}
	if !t.none {
		end.OutputIds = append(end.OutputIds, t.id)
		e.addLogprobs(end, t)
		if e.req.stream {
			b = e.appendChunk(b, t, end.OutputLogprobs)
		}
	}
	if t.done == "" {
		return b
	}
	end.FinishReason = string(t.done)
	switch {
	case t.stop != "" && utf8.ValidString(t.stop):
		end.MatchedStop = &vllmgrpc.GenerateComplete_MatchedStopStr{MatchedStopStr: t.stop}
	case t.stopID != nil:
		end.MatchedStop = &vllmgrpc.GenerateComplete_MatchedTokenId{MatchedTokenId: *t.stopID}
	}
	if e.req.kv.remoteDecode {
		return b // it waits for the handoff
	}
	return e.appendEnd(b, t.choice)
}

func (e *grpcGenerate) appendChunk(b []byte, t *token, lp *vllmgrpc.OutputLogProbs) []byte {
	c := &e.chunk
	e.ids[0] = t.id
	c.TokenIds, c.Index, c.OutputLogprobs = e.ids[:], uint32(t.choice), lp
	c.PromptTokens, c.CompletionTokens, c.CachedTokens = e.prompt, 1, e.cached
	return vllmgrpc.AppendMessage(b, &vllmgrpc.GenerateResponse{Response: &vllmgrpc.GenerateResponse_Chunk{Chunk: c}})
}

func (e *grpcGenerate) appendEnd(b []byte, choice int) []byte {
	c := e.open[choice]
	e.open[choice] = nil
	if c == nil {
		return b
	}
	c.CompletionTokens = uint32(len(c.OutputIds))
	return vllmgrpc.AppendMessage(b, &vllmgrpc.GenerateResponse{Response: &vllmgrpc.GenerateResponse_Complete{Complete: c}})
}

func (e *grpcGenerate) addLogprobs(c *vllmgrpc.GenerateComplete, t *token) {
	if e.logprobs == nil {
		return
	}
	if c.OutputLogprobs == nil {
		c.OutputLogprobs = &vllmgrpc.OutputLogProbs{}
	}
	all := e.logprobs.of(t.of, t)
	top := &vllmgrpc.TopLogProbs{}
	for i, x := range all {
		if i < e.logprobs.top {
			top.Values, top.TokenIds = append(top.Values, float32(x.logprob)), append(top.TokenIds, x.id)
		}
	}
	l := c.OutputLogprobs
	l.TokenLogprobs, l.TokenIds = append(l.TokenLogprobs, float32(all[0].logprob)), append(l.TokenIds, t.id)
	l.TopLogprobs = append(l.TopLogprobs, top)
}

func (e *grpcGenerate) end(b []byte, _ openai.Usage, kv, _ []byte) []byte {
	for i, c := range e.open {
		if c != nil && len(kv) > 0 {
			text := string(kv)
			c.KvTransferParamsJson = &text
		}
		b = e.appendEnd(b, i)
	}
	return b
}

func (e *grpcGenerate) fail(b []byte, err *openai.Error) []byte { return e.call.failError(b, err) }

// aborted ends the choices that were still going on when the client aborted
// the request.
func (e *grpcGenerate) aborted(b []byte) []byte {
	for i, c := range e.open {
		if c == nil && !e.call.began {
			c = &vllmgrpc.GenerateComplete{Index: uint32(i)}
			e.open[i] = c
		}
		if c != nil {
			c.FinishReason = "abort"
			if e.req.stream {
				c.OutputIds, c.OutputLogprobs = nil, nil
			}
			b = e.appendEnd(b, i)
		}
	}
	return b
}

// prepareEmbed reads an EmbedRequest: like /v1/embeddings a prefill and one
// token that nobody sees.
func (c *grpcCall) prepareEmbed(s *Server, r *http.Request, body []byte) (*request, *openai.Error) {
	q := &vllmgrpc.EmbedRequest{}
	if bad := c.read(body, q); bad != nil {
		return nil, bad
	}
	ids := q.Tokenized.GetInputIds()
	if len(ids) == 0 {
		return nil, openai.Errorf(400, "tokenized", "EmbedRequest requires tokenized input: expected at least one of tokenized.input_ids.")
	}
	key := c.nameOf(q.RequestId, r)
	req := &request{key: key, id: key, n: 1, prompts: []prompt{{tokens: ids}}}
	if bad := s.fill(req, &openai.Sampling{}, 1, true); bad != nil {
		return nil, bad
	}
	req.ignoreEOS = true
	req.enc = &grpcEmbed{call: c, tokens: ids}
	return req, nil
}

// grpcEmbed encodes the response of Embed.
type grpcEmbed struct {
	call   *grpcCall
	tokens []uint32
}

func (e *grpcEmbed) contentType() string                     { return vllmgrpc.ContentType }
func (e *grpcEmbed) begin(b []byte, _ openai.Usage) []byte   { return b }
func (e *grpcEmbed) token(b []byte, _ *token) []byte         { return b }
func (e *grpcEmbed) fail(b []byte, err *openai.Error) []byte { return e.call.failError(b, err) }
func (e *grpcEmbed) end(b []byte, _ openai.Usage, _, _ []byte) []byte {
	dimensions := e.call.s.opts.Dimensions
	if dimensions == 0 {
		dimensions = DefaultDimensions
	}
	v := (&embeddings{dimensions: dimensions}).unit(e.tokens)
	return vllmgrpc.AppendMessage(b, &vllmgrpc.EmbedResponse{Embedding: v, PromptTokens: uint32(len(e.tokens)), EmbeddingDim: uint32(len(v))})
}
