package disagg

import (
	"bytes"
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// promptTokens estimates a prompt's tokens: 4 bytes of text are one, and so is a token's number.
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

// Decode first (shared-storage with a cache_hit_threshold from the client): the
// decode server is asked whether its cache holds enough. It says no with the
// finish reason cache_threshold, and only then is there a prefill.

const cacheThreshold = "cache_threshold"

// maxPeekEvents is how many events of a stream are held back to see that. The
// reason stands in the first two: one for the role, one for the end.
const maxPeekEvents = 2

// maxPeekBytes bounds what is held back.
const maxPeekBytes = 1 << 20

// threshold is the decode server's JSON answer.
func (x *ClientRequest) threshold(l *leg, body []byte) {
	if tooLittle(body) {
		x.tooLittle()
		return
	}
	x.finish(l, body)
}

// peek is a piece of its stream.
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

// peeked is what is held back of a stream.
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
