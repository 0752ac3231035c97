package trace

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/wire/plainjson"
)

// hashed reads JSON lines with a hash id for each block of a prompt.
type hashed struct {
	block   int     // tokens of a block
	unit    float64 // of times, in seconds
	chained bool    // an id identifies only its block, without the blocks before it

	sessions bool
	beside   map[string]bool // given fields of requests that are left out
	other    bool            // some requests have more than text
}

func (h *hashed) assumed() []string {
	out := []string{fmt.Sprintf("a hash id identifies %d tokens and all tokens before them", h.block),
		"the content of answers is unknown: a later prompt contains one only if its own hash ids say so"}
	if h.sessions {
		out = append(out, "requests of a session come at the times of their lines, and do not wait for the previous "+
			"answer")
	}
	if names := slices.Sorted(maps.Keys(h.beside)); len(names) > 0 {
		out = append(out, "further fields of its requests are left out: "+strings.Join(names, ", "))
	}
	if h.other {
		out = append(out, "requests whose type is not text are text of as many tokens")
	}
	return out
}

// blocks is a line of the file.
type blocks struct {
	Timestamp   *float64        `json:"timestamp"`
	CreatedTime *float64        `json:"created_time"`
	Input       int             `json:"input_length"`
	InputTokens int             `json:"input_tokens"`
	Output      int             `json:"output_length"`
	OutTokens   int             `json:"output_tokens"`
	Hashes      []uint64        `json:"hash_ids"`
	Session     json.RawMessage `json:"session_id"`
	Chat        json.RawMessage `json:"chat_id"`
	Type        string          `json:"type"`

	// Fields that are left out.
	Priority json.RawMessage `json:"priority"`
	Strict   json.RawMessage `json:"strict_priority"`
	Policy   json.RawMessage `json:"policy_class"`
	Delay    json.RawMessage `json:"delay"`
	DelayMS  json.RawMessage `json:"delay_ms"`
	WaitFor  json.RawMessage `json:"wait_for"`
	ToolWait json.RawMessage `json:"tool_wait_ms"`
}

// read reads a line with only the fields of Mooncake's lines, in an eighth of the time of encoding/json. It is false
// for any other line, well-formed or not.
func (x *blocks) read(text string) bool {
	s := plainjson.Of([]byte(text))
	number := func(to *int) (ok bool) {
		*to, ok = s.Integer()
		return ok
	}
	ok := s.Object(func(name []byte) (bit uint32, ok bool) {
		switch string(name) {
		case "timestamp":
			at, ok := s.Real()
			x.Timestamp = &at
			return 1, ok
		case "input_length":
			return 2, number(&x.Input)
		case "output_length":
			return 4, number(&x.Output)
		case "hash_ids":
			x.Hashes = make([]uint64, 0, 1+strings.Count(text, ","))
			return 8, s.List(func() bool {
				id, ok := s.Integer()
				x.Hashes = append(x.Hashes, uint64(id))
				return ok
			})
		}
		return 0, false
	})
	return ok && s.Done()
}

// beside returns the fields that are left out.
func (x *blocks) beside() map[string]json.RawMessage {
	return map[string]json.RawMessage{"priority": x.Priority, "strict_priority": x.Strict, "policy_class": x.Policy,
		"delay": x.Delay, "delay_ms": x.DelayMS, "wait_for": x.WaitFor, "tool_wait_ms": x.ToolWait}
}

// line reads a request. Dynamo's variant of Mooncake's format has other names.
func (h *hashed) line(text string) (r row, header bool, err error) {
	var x blocks
	if !x.read(text) {
		x = blocks{}
		if err := json.Unmarshal([]byte(text), &x); err != nil {
			return row{}, false, fmt.Errorf(
				"%w; expected a JSON object with timestamp, input_length, output_length and hash_ids", err)
		}
		for name, v := range x.beside() {
			if v != nil {
				h.beside[name] = true
			}
		}
	}
	at := cmp.Or(x.Timestamp, x.CreatedTime)
	if at == nil {
		return row{}, false, errors.New("timestamp is missing; expected a number")
	}
	h.other = h.other || x.Type != "" && x.Type != "text"
	h.sessions = h.sessions || x.Session != nil || x.Chat != nil
	r = row{at: *at * h.unit, input: cmp.Or(x.Input, x.InputTokens), output: cmp.Or(x.Output, x.OutTokens),
		hashes: x.Hashes, block: h.block}
	if blocks := (r.input + h.block - 1) / h.block; len(x.Hashes) != blocks || blocks > maxBlocks {
		return row{}, false, fmt.Errorf("%d hash ids for %d tokens; expected one for each %d tokens begun (blockSize)",
			len(x.Hashes), r.input, h.block)
	}
	if h.chained {
		before := uint64(0)
		for i, id := range r.hashes {
			var both [16]byte
			binary.LittleEndian.PutUint64(both[:], before)
			binary.LittleEndian.PutUint64(both[8:], id)
			before = xxhash.Sum64(both[:])
			r.hashes[i] = before
		}
	}
	return r, false, nil
}
