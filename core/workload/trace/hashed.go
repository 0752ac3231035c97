package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"encoding/binary"
	"github.com/cespare/xxhash/v2"
)

// hashed reads JSON lines with a hash id for each block of a prompt.
type hashed struct {
	block   int     // tokens of a block
	unit    float64 // seconds that a time counts
	chained bool    // an id stands for its block alone, and what is before it counts besides

	sessions bool
}

func (h *hashed) assumed() []string {
	out := []string{fmt.Sprintf("a hash id stands for %d tokens, and for all that is before them", h.block),
		"answers are not known by content: no later prompt has one of them in it but as its own hash ids say"}
	if h.sessions {
		out = append(out, "requests of a session come at the times of their lines, and do not wait for the answer before")
	}
	return out
}

// line reads a request. Dynamo's variant of Mooncake's format has other names for
// the same.
func (h *hashed) line(text string) (r row, header bool, err error) {
	var x struct {
		Timestamp   *float64        `json:"timestamp"`
		CreatedTime *float64        `json:"created_time"`
		Input       int             `json:"input_length"`
		InputTokens int             `json:"input_tokens"`
		Output      int             `json:"output_length"`
		OutTokens   int             `json:"output_tokens"`
		Hashes      []uint64        `json:"hash_ids"`
		Session     json.RawMessage `json:"session_id"`
		Chat        json.RawMessage `json:"chat_id"`
	}
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		return row{}, false, fmt.Errorf("%w; expected a JSON object with timestamp, input_length, output_length and hash_ids", err)
	}
	at := cmp.Or(x.Timestamp, x.CreatedTime)
	if at == nil {
		return row{}, false, errors.New("timestamp is missing; expected a number")
	}
	h.sessions = h.sessions || x.Session != nil || x.Chat != nil
	r = row{at: *at * h.unit, input: cmp.Or(x.Input, x.InputTokens), output: cmp.Or(x.Output, x.OutTokens), hashes: x.Hashes, block: h.block}
	if blocks := (r.input + h.block - 1) / h.block; len(x.Hashes) != blocks || blocks > maxBlocks {
		return row{}, false, fmt.Errorf("%d hash ids for %d tokens; expected one for each %d tokens begun (blockSize)", len(x.Hashes), r.input, h.block)
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
