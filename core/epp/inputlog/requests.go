package inputlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Requests gathers the requests of a log, so that similar ones can be sent again. Call Line with each line of the log
// and, if the log is part of a recording, Event with the recording's events in between.
type Requests struct {
	List []workload.Recorded
	// Without counts requests that had no prompt and are not in List.
	Without int

	first machine.Time
	known int              // hashes of prompts
	ids   map[string]int   // how often each occurred
	place map[numbered]int // in List
	named map[string]int   // the first of each id, in List
	early map[string]class // of requests that have not arrived yet
}

// class holds a client event's fields about a request.
type class struct{ name, slo string }

type numbered struct {
	picker int
	serial uint64
}

// maxHashes bounds the kept hashes of prompts: 1 GiB.
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
		if i, ok := q.place[key]; ok && in.Done.Read != nil && in.Done.Read.HasUsage {
			q.List[i].Output = in.Done.Read.CompletionTokens
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
		q.place, q.ids, q.named, q.first = map[numbered]int{}, map[string]int{}, map[string]int{}, in.At
	}
	of := q.early[r.ID]
	delete(q.early, r.ID)
	out := workload.Recorded{ID: r.ID, At: max(0, in.At-q.first), Model: r.Body.Model, Class: of.name, SLO: of.slo,
		Chat: r.Body.Kind == parse.Chat, Stream: r.Body.Stream}
	if q.ids[r.ID]++; q.ids[r.ID] > 1 {
		out.ID = fmt.Sprintf("%s (%d)", r.ID, q.ids[r.ID])
	} else {
		q.named[r.ID] = len(q.List)
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

// Event takes a line of a recording's event. A client's events have facts that the picker did not get: a request's
// class of traffic, and the length of an answer that ended without its usage.
func (q *Requests) Event(text []byte) {
	sent, finished := bytes.Contains(text, []byte(`"step":"request_sent"`)),
		bytes.Contains(text, []byte(`"step":"finished"`))
	var e struct {
		Request string
		Hop     record.Hop
		Details struct {
			Class, SLO string
			Outcome    record.Outcome
			Tokens     int
		}
	}
	if !sent && !finished || json.Unmarshal(text, &e) != nil || e.Hop != record.Client {
		return
	}
	i, arrived := q.named[e.Request]
	switch x := &e.Details; {
	case sent && arrived:
		q.List[i].Class, q.List[i].SLO = x.Class, x.SLO
	case sent && (x.Class != "" || x.SLO != "") && len(q.early) < maxEarly:
		if q.early == nil {
			q.early = map[string]class{}
		}
		q.early[e.Request] = class{x.Class, x.SLO}
	case finished && arrived && q.List[i].Output == 0 && x.Outcome == record.Completed:
		q.List[i].Output = min(max(0, x.Tokens), maxTokens)
	}
}

// Limits on events: requests that never arrive, and tokens of an answer.
const (
	maxEarly  = 1 << 20
	maxTokens = 1 << 24
)

// Unknown counts requests whose answers have an unknown length.
func (q *Requests) Unknown() (n int) {
	for i := range q.List {
		if q.List[i].Output == 0 {
			n++
		}
	}
	return n
}

// again reports whether a request that is sent again has a header.
func again(name string) bool {
	switch {
	case strings.HasPrefix(name, ":"), header.Secret(name), strings.HasPrefix(name, "x-envoy-"),
		strings.HasPrefix(name, "x-forwarded-"):
		return false
	}
	switch name {
	case "x-request-id", "content-type", "content-length", "transfer-encoding", "accept-encoding", "accept",
		"user-agent", "host", "connection", "expect":
		return false
	}
	return true
}
