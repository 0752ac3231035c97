package disagg

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// chunked asks the decode server for a chat answer a few tokens at a time, each
// time with what it has said so far as the last message (pd-sidecar
// --decode-chunk-size). The client gets one answer of all chunks; one that
// streams gets each chunk as an event.
type chunked struct {
	body   object
	size   int
	left   int  // tokens that may still be made
	bound  bool // the client has set a limit
	stream bool
	set    []Header
	remove []string

	messages []any
	text     string
	reply    object
	tokens   int
	prompt   int // the first chunk's prompt tokens
	turns    int
}

// maxTurns bounds the chunks of an answer without a limit of its own.
const maxTurns = 4096

func newChunked(body object, size int) *chunked {
	k := &chunked{body: body, size: size, stream: body.flag("stream")}
	for _, key := range []string{"max_tokens", "max_completion_tokens"} {
		if n, ok := body.integer(key); ok && (!k.bound || n < k.left) {
			k.left, k.bound = n, true
		}
	}
	k.messages, _ = body["messages"].([]any)
	return k
}

// nextChunk sends the next decode leg.
func (x *Exchange) nextChunk() {
	k := x.chunks
	n := k.size
	if k.bound {
		n = min(n, max(1, k.left))
	}
	fields := object{"max_tokens": n, "max_completion_tokens": n, "stream": false, "stream_options": absent}
	if k.turns > 0 {
		fields["messages"] = k.messages
		fields["kv_transfer_params"] = absent // it is there by now
		fields["continue_final_message"], fields["add_generation_prompt"] = true, false
	}
	id := x.callDecode(Leg{Body: k.body.with(fields).write(), Set: k.set, Remove: append(slices.Clone(k.remove), PrefillerHeader)})
	x.legs[id-1].then = func(body []byte) { x.chunkDone(id, body) }
}

// chunkDone is one chunk's answer.
func (x *Exchange) chunkDone(id int, body []byte) {
	k, l := x.chunks, x.leg(id)
	reply, err := parseObject(body)
	if l.status < 200 || l.status >= 300 || err != nil {
		x.finish(l, body)
		return
	}
	choice := reply.first("choices")
	if choice.object("message") == nil {
		x.finish(l, body) // no chat answer; what it says is for the client to see
		return
	}
	said := choice.object("message").text("content")
	usage := reply.object("usage")
	made, _ := usage.integer("completion_tokens")
	if k.turns == 0 {
		k.prompt, _ = usage.integer("prompt_tokens")
	}
	k.turns++
	k.text += said
	k.tokens += made
	if k.bound {
		k.left -= max(made, 1)
	}
	k.reply = reply
	k.messages = append(slices.Clip(k.messages), map[string]any{"role": "assistant", "content": said})
	reason := choice.text("finish_reason")
	if reason == "length" && (!k.bound || k.left > 0) && k.turns < maxTurns {
		if k.stream {
			k.events(false, x)
		}
		x.nextChunk()
		return
	}
	if k.stream {
		k.events(true, x)
		return
	}
	choice.object("message")["content"] = k.text
	k.total(reply, x)
	x.finish(l, reply.write())
}

// total puts the sums into an answer's usage.
func (k *chunked) total(reply object, x *Exchange) {
	if reply.object("usage") == nil {
		return
	}
	number := func(n int) json.Number { return json.Number(strconv.Itoa(n)) }
	reply["usage"] = map[string]any{"prompt_tokens": number(k.prompt), "completion_tokens": number(k.tokens), "total_tokens": number(k.prompt + k.tokens)}
	if x.strict {
		setCached(reply, x.cached)
	}
}

// events keeps a chunk for the client that streams. The sidecar hands them out
// together with the last one: an answer that may still fail has no status yet.
func (k *chunked) events(last bool, x *Exchange) {
	choice := k.reply.first("choices")
	delta := choice.object("message")
	delete(choice, "message")
	choice["delta"] = map[string]any(delta)
	if !last {
		choice["finish_reason"] = nil
	}
	event := k.reply.with(object{"object": "chat.completion.chunk", "usage": absent})
	x.peeked = appendEvent(x.peeked, event.write())
	if !last {
		return
	}
	if options := k.body.object("stream_options"); options.flag("include_usage") {
		k.reply["choices"] = []any{}
		k.reply["object"] = "chat.completion.chunk"
		k.total(k.reply, x)
		x.peeked = appendEvent(x.peeked, k.reply.write())
	}
	x.peeked = appendEvent(x.peeked, []byte("[DONE]"))
	x.over = true
	x.decodeEnd = x.now
	x.sink = append(x.sink, Answer{Status: 200, Head: []Header{{"Content-Type", "text/event-stream; charset=utf-8"}}, Body: bytes.Clone(x.peeked)})
}

func appendEvent(b, data []byte) []byte {
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}
