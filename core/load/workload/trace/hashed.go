package trace

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
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
	s := scan(text)
	if !s.skip('{') {
		return false
	}
	for {
		key, ok := s.key()
		if !ok {
			return false
		}
		switch key {
		case "timestamp":
			var at float64
			at, ok = s.float()
			x.Timestamp = &at
		case "input_length":
			x.Input, ok = s.int()
		case "output_length":
			x.Output, ok = s.int()
		case "hash_ids":
			x.Hashes, ok = s.ids()
		default:
			return false
		}
		if !ok {
			return false
		}
		if !s.skip(',') {
			return s.skip('}') && strings.TrimLeft(string(s), space) == ""
		}
	}
}

// beside returns the fields that are left out.
func (x *blocks) beside() map[string]json.RawMessage {
	return map[string]json.RawMessage{"priority": x.Priority, "strict_priority": x.Strict, "policy_class": x.Policy,
		"delay": x.Delay, "delay_ms": x.DelayMS, "wait_for": x.WaitFor, "tool_wait_ms": x.ToolWait}
}

// scan is the rest of a line.
type scan string

// space is the white space of JSON.
const space = " \t\r\n"

// skip skips a character and the space before it, if it is next.
func (s *scan) skip(c byte) bool {
	rest := strings.TrimLeft(string(*s), space)
	if rest == "" || rest[0] != c {
		return false
	}
	*s = scan(rest[1:])
	return true
}

// key reads a name without escapes and its colon.
func (s *scan) key() (string, bool) {
	if !s.skip('"') {
		return "", false
	}
	key, rest, ok := strings.Cut(string(*s), `"`)
	*s = scan(rest)
	return key, ok && s.skip(':')
}

// number reads a number of digits, with or without a fraction.
func (s *scan) number() string {
	rest := strings.TrimLeft(string(*s), space)
	n := 0
	for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '.') {
		n++
	}
	*s = scan(rest[n:])
	if dot := strings.IndexByte(rest[:n], '.'); dot == 0 || dot == n-1 || n > 1 && rest[0] == '0' && dot != 1 {
		return "" // not valid in JSON
	}
	return rest[:n]
}

func (s *scan) float() (float64, bool) {
	x, err := strconv.ParseFloat(s.number(), 64)
	return x, err == nil
}

func (s *scan) int() (int, bool) {
	x, err := strconv.Atoi(s.number())
	return x, err == nil
}

func (s *scan) ids() ([]uint64, bool) {
	if !s.skip('[') {
		return nil, false
	}
	end := strings.IndexByte(string(*s), ']')
	if end < 0 {
		return nil, false
	}
	ids := make([]uint64, 0, 1+strings.Count(string((*s)[:end]), ","))
	for {
		x, err := strconv.ParseUint(s.number(), 10, 64)
		if ids = append(ids, x); err != nil || !s.skip(',') {
			return ids, err == nil && s.skip(']')
		}
	}
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
