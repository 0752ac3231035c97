package modelserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// The methods of vLLM's gRPC service that generate tokens. The sender of the answer writes errors into the call's
// status, so errors have no body.
var (
	GRPCGenerate = &API{vllmgrpc.GeneratePath, (*Reader).readGRPCGenerate, appendNothing}
	GRPCEmbed    = &API{vllmgrpc.EmbedPath, (*Reader).readGRPCEmbed, appendNothing}
)

func appendNothing(b []byte, _ *openai.Error) []byte { return b }

// readGRPCGenerate reads a GenerateRequest.
func (r *Reader) readGRPCGenerate(head *Head, body []byte) (*Request, *openai.Error) {
	q := &vllmgrpc.GenerateRequest{}
	if bad := readMessage(body, q); bad != nil {
		return nil, bad
	}
	var p Prompt
	switch in := q.Input.(type) {
	case *vllmgrpc.GenerateRequest_Tokenized:
		p = Prompt{Tokens: in.Tokenized.GetInputIds(), Text: in.Tokenized.GetOriginalText()}
	case *vllmgrpc.GenerateRequest_Text:
		p = r.Prompt(in.Text)
	}
	return r.fillGRPC(head, q, p, q.RequestId)
}

// fillGRPC converts a message, whose prompt is p, to a request.
func (r *Reader) fillGRPC(head *Head, q *vllmgrpc.GenerateRequest, p Prompt, id string) (*Request, *openai.Error) {
	if p.Len() == 0 {
		return nil, openai.Errorf(400, "input", "input: expected text, or tokenized with at least one of input_ids.")
	}
	sampling := samplingOf(q)
	limit, limited := 0, sampling.MaxTokens != nil
	if limited {
		if limit = *sampling.MaxTokens; limit == 0 {
			return nil, openai.Errorf(400, "max_tokens", "max_tokens must be at least 1, got 0.")
		}
	}
	req, bad := r.FromPrompt(cmp.Or(id, head.RequestID), p, sampling, limit, limited)
	if bad != nil {
		return nil, bad
	}
	e := &grpcEncoder{req: req, open: make([]*vllmgrpc.GenerateComplete, req.Choices())}
	if sp := q.SamplingParams; sp != nil && sp.Logprobs != nil {
		top := int(*sp.Logprobs)
		if top < 0 || top > maxGRPCLogprobs {
			top = maxGRPCLogprobs
		}
		e.logprobs = req.Logprobs(top)
	}
	req.Encoder = e
	return req, nil
}

// maxGRPCLogprobs is the number of alternatives to each token if the client asks for all of them or for more than this.
const maxGRPCLogprobs = 20

// readMessage parses a call's message. Errors have the HTTP status that corresponds to the gRPC code.
func readMessage(body []byte, m proto.Message) *openai.Error {
	err := vllmgrpc.ReadMessage(body, m)
	var bad *vllmgrpc.Error
	if errors.As(err, &bad) {
		return openai.Errorf(vllmgrpc.HTTPOf(bad.Code), "", "%s", bad.Text)
	}
	return nil
}

// samplingOf converts the sampling parameters of a message to those of the HTTP API.
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
	out.StructuredOutputs = constraintOf(p)
	return out
}

// constraintOf converts the constraint of a message to structured_outputs.
func constraintOf(p *vllmgrpc.SamplingParams) json.RawMessage {
	var field string
	var value any
	switch c := p.Constraint.(type) {
	case *vllmgrpc.SamplingParams_JsonSchema:
		field, value = "json", c.JsonSchema
	case *vllmgrpc.SamplingParams_Regex:
		field, value = "regex", c.Regex
	case *vllmgrpc.SamplingParams_Grammar:
		field, value = "grammar", c.Grammar
	case *vllmgrpc.SamplingParams_StructuralTag:
		field, value = "structural_tag", c.StructuralTag
	case *vllmgrpc.SamplingParams_JsonObject:
		field, value = "json_object", c.JsonObject
	case *vllmgrpc.SamplingParams_Choice:
		field, value = "choice", append([]string{}, c.Choice.GetChoices()...)
	default:
		return nil
	}
	raw, err := json.Marshal(map[string]any{field: value})
	if err != nil {
		return nil // strings, lists of strings and booleans always encode
	}
	return raw
}

// grpcEncoder encodes the responses of Generate.
type grpcEncoder struct {
	req      *Request
	logprobs *Logprobs
	prompt   uint32
	cached   uint32
	chunk    vllmgrpc.GenerateStreamChunk
	ids      [1]uint32
	// open holds the ends of choices that have not been sent: of unfinished choices, or of all if they must contain the
	// KV handoff.
	open []*vllmgrpc.GenerateComplete
}

func (e *grpcEncoder) ContentType() string { return vllmgrpc.ContentType }

func (e *grpcEncoder) Begin(b []byte, u openai.Usage) []byte {
	e.prompt, e.cached = uint32(u.PromptTokens), uint32(u.CachedTokens)
	for i := range e.open {
		e.open[i] = &vllmgrpc.GenerateComplete{Index: uint32(i), PromptTokens: e.prompt, CachedTokens: e.cached}
	}
	return b
}

func (e *grpcEncoder) Token(b []byte, t *Token) []byte {
	end := e.open[t.Choice]
	if end == nil {
		// The response ended before it began: the cache holds too little of the prompt.
		end = &vllmgrpc.GenerateComplete{Index: uint32(t.Choice)}
	}
	if e.req.Stream {
		// The last message repeats only the tokens of the last chunk.
		end.OutputIds, end.OutputLogprobs = end.OutputIds[:0], nil
	}
	if !t.None {
		end.OutputIds = append(end.OutputIds, t.ID)
		e.addLogprobs(end, t)
		if e.req.Stream {
			b = e.appendChunk(b, t, end.OutputLogprobs)
		}
	}
	if t.Done == "" {
		return b
	}
	end.FinishReason = string(t.Done)
	switch {
	case t.Stop != "" && utf8.ValidString(t.Stop):
		end.MatchedStop = &vllmgrpc.GenerateComplete_MatchedStopStr{MatchedStopStr: t.Stop}
	case t.StopID != nil:
		end.MatchedStop = &vllmgrpc.GenerateComplete_MatchedTokenId{MatchedTokenId: *t.StopID}
	}
	if e.req.KV.Keep {
		return b // waits for the handoff
	}
	return e.appendEnd(b, t.Choice)
}

func (e *grpcEncoder) appendChunk(b []byte, t *Token, lp *vllmgrpc.OutputLogProbs) []byte {
	c := &e.chunk
	e.ids[0] = t.ID
	c.TokenIds, c.Index, c.OutputLogprobs = e.ids[:], uint32(t.Choice), lp
	c.PromptTokens, c.CompletionTokens, c.CachedTokens = e.prompt, 1, e.cached
	return vllmgrpc.AppendMessage(b, &vllmgrpc.GenerateResponse{Response: &vllmgrpc.GenerateResponse_Chunk{Chunk: c}})
}

func (e *grpcEncoder) appendEnd(b []byte, choice int) []byte {
	c := e.open[choice]
	e.open[choice] = nil
	if c == nil {
		return b
	}
	c.CompletionTokens = uint32(len(c.OutputIds))
	return vllmgrpc.AppendMessage(b,
		&vllmgrpc.GenerateResponse{Response: &vllmgrpc.GenerateResponse_Complete{Complete: c}})
}

func (e *grpcEncoder) addLogprobs(c *vllmgrpc.GenerateComplete, t *Token) {
	if e.logprobs == nil {
		return
	}
	if c.OutputLogprobs == nil {
		c.OutputLogprobs = &vllmgrpc.OutputLogProbs{}
	}
	all := e.logprobs.Of(t)
	top := &vllmgrpc.TopLogProbs{}
	for i, x := range all {
		if i < e.logprobs.Top {
			top.Values, top.TokenIds = append(top.Values, float32(x.Logprob)), append(top.TokenIds, x.ID)
		}
	}
	l := c.OutputLogprobs
	l.TokenLogprobs, l.TokenIds = append(l.TokenLogprobs, float32(all[0].Logprob)), append(l.TokenIds, t.ID)
	l.TopLogprobs = append(l.TopLogprobs, top)
}

func (e *grpcEncoder) End(b []byte, _ openai.Usage, kv, _ []byte) []byte {
	for i, c := range e.open {
		if c != nil && len(kv) > 0 {
			text := string(kv)
			c.KvTransferParamsJson = &text
		}
		b = e.appendEnd(b, i)
	}
	return b
}

func (e *grpcEncoder) Fail(b []byte, _ *openai.Error) []byte { return b }

// Aborter is an Encoder whose client may abort the request by its id.
type Aborter interface {
	// Aborted ends the choices that had not finished. began says whether the response has begun.
	Aborted(b []byte, began bool) []byte
}

func (e *grpcEncoder) Aborted(b []byte, began bool) []byte {
	for i, c := range e.open {
		if c == nil && !began {
			c = &vllmgrpc.GenerateComplete{Index: uint32(i)}
			e.open[i] = c
		}
		if c != nil {
			c.FinishReason = "abort"
			if e.req.Stream {
				c.OutputIds, c.OutputLogprobs = nil, nil
			}
			b = e.appendEnd(b, i)
		}
	}
	return b
}

// readGRPCEmbed reads an EmbedRequest. Like /v1/embeddings, it takes a prefill and one token that the client never
// sees.
func (r *Reader) readGRPCEmbed(head *Head, body []byte) (*Request, *openai.Error) {
	q := &vllmgrpc.EmbedRequest{}
	if bad := readMessage(body, q); bad != nil {
		return nil, bad
	}
	ids := q.Tokenized.GetInputIds()
	if len(ids) == 0 {
		return nil, openai.Errorf(400, "tokenized",
			"EmbedRequest requires tokenized input: expected at least one of tokenized.input_ids.")
	}
	req, bad := r.FromPrompt(cmp.Or(q.RequestId, head.RequestID), Prompt{Tokens: ids},
		&openai.Sampling{IgnoreEOS: true}, 1, true)
	if bad != nil {
		return nil, bad
	}
	req.Encoder = &grpcEmbedding{reader: r, tokens: ids}
	return req, nil
}

// grpcEmbedding encodes the response of Embed.
type grpcEmbedding struct {
	reader *Reader
	tokens []uint32
}

func (e *grpcEmbedding) ContentType() string                   { return vllmgrpc.ContentType }
func (e *grpcEmbedding) Begin(b []byte, _ openai.Usage) []byte { return b }
func (e *grpcEmbedding) Token(b []byte, _ *Token) []byte       { return b }
func (e *grpcEmbedding) Fail(b []byte, _ *openai.Error) []byte { return b }
func (e *grpcEmbedding) End(b []byte, _ openai.Usage, _, _ []byte) []byte {
	v := e.reader.Embedding(e.tokens)
	return vllmgrpc.AppendMessage(b,
		&vllmgrpc.EmbedResponse{Embedding: v, PromptTokens: uint32(len(e.tokens)), EmbeddingDim: uint32(len(v))})
}
