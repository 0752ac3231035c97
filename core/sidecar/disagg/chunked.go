package disagg

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// chunked asks the decode server for a chat answer a few tokens at a time (pd-sidecar --decode-chunk-size). Each
// request after the first has the answer so far as its last message. The client gets one answer with all chunks. If it
// streams, it gets each chunk as an event as soon as the chunk arrives, and the sums at the end.
type chunked struct {
	body   object
	size   int
	budget int // the client's limit of tokens; 0: none given
	stream bool

	messages []any
	text     strings.Builder
	reply    object
	tokens   int
	prompt   int // the first chunk's prompt tokens
	turns    int
}

// maxTurns limits the number of chunks where the client's request has no limit.
const maxTurns = 4096

// inChunks serves the decode side in chunks. It returns false where the body asks for so few tokens that one request is
// enough.
func (x *ClientRequest) inChunks(body object) bool {
	if x.c.ChunkTokens <= 0 || x.r.Path != chatPath || x.session != nil {
		return false
	}
	k := &chunked{body: body, size: x.c.ChunkTokens, stream: body.Flag("stream")}
	for _, key := range []string{"max_tokens", "max_completion_tokens"} { // the second wins
		if n, ok := body.Integer(key); ok && n > 0 {
			k.budget = n
		}
	}
	if k.budget > 0 && k.budget <= k.size {
		return false
	}
	k.messages, _ = body["messages"].([]any)
	x.chunks = k
	x.nextChunk()
	return true
}

// nextChunk sends the next decode leg.
func (x *ClientRequest) nextChunk() {
	k := x.chunks
	n := k.size
	if k.budget > 0 {
		n = min(n, k.budget-k.tokens)
	}
	fields := object{"max_tokens": n, "max_completion_tokens": n, "stream": false, "stream_options": jsonobject.Absent}
	if k.turns > 0 {
		if len(k.messages) > 0 {
			fields["messages"] = k.messages
		}
		fields["kv_transfer_params"] = jsonobject.Absent // the decode server has the cache by now
		fields["continue_final_message"], fields["add_generation_prompt"] = true, false
	}
	id := x.callDecode(Leg{Body: k.body.With(fields).Write(), Add: x.add})
	x.legs[id-1].then = func(body []byte) { x.chunkDone(id, body) }
}

// chunkDone takes one chunk's answer.
func (x *ClientRequest) chunkDone(id int, body []byte) {
	k, l := x.chunks, x.leg(id)
	if l.status < 200 || l.status >= 300 {
		x.chunkFailed(l, body)
		return
	}
	reply, err := jsonobject.Parse(body)
	if err != nil {
		x.chunkFailed(nil, ErrorBody(500, jsonobject.Explain(body, err)))
		return
	}
	choice := reply.First("choices")
	said, reason := choice.Object("message").Text("content"), choice.Text("finish_reason")
	made, _ := reply.Object("usage").Integer("completion_tokens")
	made = max(0, made)
	if k.turns == 0 {
		k.prompt, _ = reply.Object("usage").Integer("prompt_tokens")
	}
	k.turns++
	k.tokens += made
	k.reply = reply
	if k.stream {
		x.say(k.event(), false)
	} else {
		k.text.WriteString(said)
	}
	if said != "" {
		k.messages = append(slices.Clip(k.messages), map[string]any{"role": "assistant", "content": said})
	}
	switch {
	case reason != "" && reason != "length", made == 0 && said == "", k.budget > 0 && k.tokens >= k.budget,
		k.turns >= maxTurns:
		x.chunksDone(l)
	default:
		x.nextChunk()
	}
}

// chunkFailed ends the answer with an error: the decode server's own, which leg l brought, or the sidecar's. A
// streaming client already has its status.
func (x *ClientRequest) chunkFailed(l *leg, body []byte) {
	switch k := x.chunks; {
	case k.stream && k.turns > 0:
		if o, err := jsonobject.Parse(body); err == nil {
			body = o.Write() // on one line
		} else {
			body = ErrorBody(502, "the decode server failed after "+strconv.Itoa(k.turns)+" chunks")
		}
		x.say(sse.Append(sse.Append(nil, body), []byte("[DONE]")), true)
	case l != nil:
		x.finish(l, body)
	default:
		x.answer(Answer{Status: 500, Head: header.Of("Content-Type", "application/json"), Body: body},
			"the decode server's answer is not understood")
	}
}

// chunksDone sends the sums to the client.
func (x *ClientRequest) chunksDone(l *leg) {
	k := x.chunks
	number := func(n int) json.Number { return json.Number(strconv.Itoa(n)) }
	sums := object{"usage": map[string]any{"prompt_tokens": number(k.prompt), "completion_tokens": number(k.tokens),
		"total_tokens": number(k.prompt + k.tokens)}}
	if x.prefill.strict {
		setCached(sums, x.prefill.cached)
	}
	if k.stream {
		sums["choices"] = []any{}
		x.say(sse.Append(sse.Append(nil, sums.Write()), []byte("[DONE]")), true)
		return
	}
	k.reply["usage"] = sums["usage"]
	if choice := k.reply.First("choices"); choice != nil {
		if message := choice.Object("message"); message != nil {
			message["content"] = k.text.String()
		}
		k.reply["choices"] = []any{map[string]any(choice)}
	}
	x.finish(l, k.reply.Write())
}

// event returns a chunk as an event of a stream.
func (k *chunked) event() []byte {
	out := k.reply.With(object{"usage": jsonobject.Absent})
	if choices, _ := k.reply["choices"].([]any); len(choices) > 0 {
		list := make([]any, 0, len(choices))
		for _, c := range choices {
			m, ok := c.(map[string]any)
			if !ok {
				continue
			}
			choice := object(m)
			list = append(list, object{"index": choice["index"], "finish_reason": choice["finish_reason"],
				"delta": object{"content": choice.Object("message").Text("content"), "role": "assistant"}})
		}
		out["choices"] = list
	}
	return sse.Append(nil, out.Write())
}

// say sends a piece of an answer of the sidecar's own.
func (x *ClientRequest) say(data []byte, end bool) {
	s := Say{Data: data, End: end}
	if !x.saying {
		x.saying = true
		s.Head = header.Of("Content-Type", "text/event-stream", "Cache-Control", "no-cache", "Connection", "keep-alive")
	}
	x.do(s)
}
