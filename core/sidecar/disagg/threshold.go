package disagg

import (
	"bytes"
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// promptTokens estimates the tokens of a prompt: one for 4 bytes of text, and one for a token's number.
func promptTokens(body object) int {
	n := 0
	for _, key := range []string{"messages", "prompt", "input", "system"} {
		n += textBytes(body[key])
	}
	return (n + bytesPerToken - 1) / bytesPerToken
}

const bytesPerToken = 4

// textBytes counts the bytes of all texts of a prompt.
func textBytes(v any) (n int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case json.Number:
		return bytesPerToken
	case []any:
		for _, e := range v {
			n += textBytes(e)
		}
	case map[string]any:
		n = textBytes(v["content"]) + textBytes(v["text"])
	case object:
		n = textBytes(v["content"]) + textBytes(v["text"])
	}
	return n
}

// Decode first (shared-storage with a cache_hit_threshold from the client): the sidecar asks the decode server whether
// its cache holds enough. The decode server refuses with the finish reason cache_threshold. Only then does the sidecar
// prefill.

const cacheThreshold = "cache_threshold"

// maxPeekEvents is the number of events of a stream that the sidecar holds back to find that reason. The reason is in
// one of the first two: one for the role, one for the end.
const maxPeekEvents = 2

// maxPeekBytes limits the bytes that the sidecar holds back.
const maxPeekBytes = 1 << 20

// threshold takes the decode server's JSON answer.
func (x *ClientRequest) threshold(l *leg, body []byte) {
	if tooLittle(body) {
		x.tooLittle()
		return
	}
	x.finish(l, body)
}

// peek takes a piece of the decode server's stream.
func (x *ClientRequest) peek(l *leg, data []byte, end bool) {
	x.peeked.raw = append(x.peeked.raw, data...)
	x.peeked.Write(data)
	for e, ok := x.peeked.Next(); ok || end; e, ok = x.peeked.Next() {
		if !ok {
			e, _ = x.peeked.Last()
		}
		if tooLittle(e.Data) {
			x.do(Drop{l.ID})
			x.peeked = peeked{}
			x.tooLittle()
			return
		}
		x.peeked.events++
		if !ok {
			break
		}
	}
	if end || x.peeked.events >= maxPeekEvents || len(x.peeked.raw) > maxPeekBytes {
		before := x.peeked.raw
		x.peeked = peeked{}
		x.deliver(l, before, nil)
	}
}

// peeked is the beginning of a stream that the sidecar holds back.
type peeked struct {
	sse.Scanner
	raw    []byte
	events int
}

func tooLittle(data []byte) bool {
	if !bytes.Contains(data, []byte(cacheThreshold)) {
		return false
	}
	o, err := jsonobject.Parse(data)
	return err == nil && o.First("choices").Text("finish_reason") == cacheThreshold
}

func (x *ClientRequest) tooLittle() {
	x.record(record.PrefillDecided, x.prefill.targets[0].String(), record.D("decision", "disaggregated"),
		record.D("reason", "the decode server's cache holds less than cache_hit_threshold"))
	x.body = x.body.With(object{"cache_hit_threshold": jsonobject.Absent})
	x.callPrefill()
}
