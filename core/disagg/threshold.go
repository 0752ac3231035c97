package disagg

import (
	"bytes"

	"github.com/windtunnel/windtunnel/core/flow"
)

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
func (x *Exchange) threshold(l *leg, body []byte) {
	o, err := parseObject(body)
	if err == nil && o.first("choices").text("finish_reason") == cacheThreshold {
		x.tooLittle()
		return
	}
	x.finish(l, body)
}

// peek is a piece of its stream.
func (x *Exchange) peek(l *leg, data []byte, end bool) {
	x.peeked = append(x.peeked, data...)
	events := bytes.Count(x.peeked, []byte("\n\n"))
	if tooLittle(x.peeked) {
		x.sink = append(x.sink, Drop{l.ID})
		x.peeked = nil
		x.tooLittle()
		return
	}
	if end || events >= maxPeekEvents || len(x.peeked) > maxPeekBytes {
		before := x.peeked
		x.peeked = nil
		x.deliver(l, before, nil)
	}
}

func tooLittle(events []byte) bool {
	for event := range bytes.SplitSeq(events, []byte("\n")) {
		data, ok := bytes.CutPrefix(event, []byte("data:"))
		if !ok || !bytes.Contains(data, []byte(cacheThreshold)) {
			continue
		}
		o, err := parseObject(data)
		if err == nil && o.first("choices").text("finish_reason") == cacheThreshold {
			return true
		}
	}
	return false
}

func (x *Exchange) tooLittle() {
	x.record(flow.PrefillDecided, x.targets[0].String(), flow.D("decision", "disaggregated"),
		flow.D("reason", "the decode server's cache holds less than cache_hit_threshold"))
	x.body = x.body.with(object{"cache_hit_threshold": absent})
	x.callPrefill()
}
