package inputlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker/parse"
	"github.com/windtunnel/windtunnel/core/workload"
)

// Requests gathers the requests of a log, so that some like them can be sent
// again: Line is called with each of its lines.
type Requests struct {
	List []workload.Recorded
	// Without counts requests that had no prompt and are not in List.
	Without int

	first machine.Time
	known int              // hashes of prompts
	ids   map[string]int   // how often each was there
	place map[numbered]int // in List
}

type numbered struct {
	picker int
	serial uint64
}

// maxHashes bounds what is kept of prompts: 1 GiB.
const maxHashes = 1 << 27

// Line takes one line.
func (q *Requests) Line(text []byte) error {
	if !strings.HasPrefix(string(text[:min(len(text), 16)]), `{"input":`) {
		return nil
	}
	var x struct {
		Input *input `json:"input"`
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return fmt.Errorf("not a line of a log of inputs: %w", err)
	}
	in := x.Input
	switch key := (numbered{in.Picker, in.Request}); {
	case in.Arrive != nil:
		return q.arrived(key, in)
	case in.Done != nil:
		if i, ok := q.place[key]; ok && in.Done.Read != nil && in.Done.Read.Usage {
			q.List[i].Output = in.Done.Read.Completion
		}
		delete(q.place, key)
	}
	return nil
}

func (q *Requests) arrived(key numbered, in *input) error {
	r, err := in.Arrive.request(nil)
	if err != nil {
		return err
	}
	if r.Body == nil || len(r.Body.Prompts) == 0 {
		q.Without++
		return nil
	}
	if q.place == nil {
		q.place, q.ids, q.first = map[numbered]int{}, map[string]int{}, in.At
	}
	out := workload.Recorded{ID: r.ID, At: max(0, in.At-q.first), Chat: r.Body.Kind == parse.Chat, Stream: r.Body.Stream}
	if q.ids[r.ID]++; q.ids[r.ID] > 1 {
		out.ID = fmt.Sprintf("%s (%d)", r.ID, q.ids[r.ID])
	}
	for _, h := range r.Headers {
		if again(h.Name) {
			out.Header = append(out.Header, h)
		}
	}
	for i := range r.Body.Prompts {
		p := &r.Body.Prompts[i]
		unit, heads := p.Heads()
		out.Prompt = append(out.Prompt, workload.RecordedPrompt{Bytes: p.Length(), Unit: unit, Heads: heads})
		q.known += len(heads)
	}
	if q.known > maxHashes {
		return errors.New("the recorded prompts are too many and too long to be sent again; give fewer files")
	}
	q.place[key] = len(q.List)
	q.List = append(q.List, out)
	return nil
}

// again says whether a header goes with a request that is sent again.
func again(name string) bool {
	switch {
	case strings.HasPrefix(name, ":"), header.Secret(name), strings.HasPrefix(name, "x-envoy-"), strings.HasPrefix(name, "x-forwarded-"):
		return false
	}
	switch name {
	case "x-request-id", "content-type", "content-length", "transfer-encoding", "accept-encoding", "accept", "user-agent", "host", "connection", "expect":
		return false
	}
	return true
}
