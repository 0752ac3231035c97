package parity

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
)

func (pl *player) playOf(s *Step) Reply {
	play := Reply{Kind: "json", Usage: []int{3, 4}}
	if len(s.Response) > 0 {
		_ = json.Unmarshal(s.Response, &play)
	}
	return play
}

func (pl *player) release(x *exchange) {
	if x.closed {
		return
	}
	x.closed = true
	if pl.door != nil {
		pl.asked = slices.DeleteFunc(pl.asked, func(a *exchange) bool { return a == x })
		pl.door.leave(pl.now, x.opened)
		if pl.queues {
			pl.settle()
		}
		return
	}
	if x.d != nil {
		pl.p.Release(pl.now, x.d)
	}
	if pl.fc != nil && x.fcID != 0 {
		pl.tellLoads()
		if x.done {
			done := flowcontrol.Done{ID: x.fcID}
			if x.resp != nil {
				done.PromptTokens, done.CompletionTokens = int64(x.resp.Usage.PromptTokens), int64(x.resp.Usage.CompletionTokens)
			}
			pl.fc.Input(pl.now, done, &pl.fx)
		} else {
			pl.fc.Input(pl.now, flowcontrol.Gone{ID: x.fcID}, &pl.fx)
		}
		pl.flow()
	}
}

// finish plays a response and compares what the picker made of it.
func (pl *player) finish(id string, play Reply, want []Message) {
	x := pl.open[id]
	if x == nil {
		return
	}
	delete(pl.open, id)
	defer pl.release(x)
	if play.Kind == "abort" || play.Kind == "close" || pl.door == nil && (x.d == nil || x.err != nil) || pl.door != nil && refused(x.got) {
		return
	}
	headers, chunks := play.Headers, play.Chunks
	if headers == nil {
		headers = map[string]string{":status": "200", "content-type": "application/json"}
		usage := fmt.Sprintf(`{"prompt_tokens": %d, "completion_tokens": %d, "total_tokens": %d}`, play.Usage[0], play.Usage[1], play.Usage[0]+play.Usage[1])
		chunks = []string{`{"id": "c", "object": "chat.completion", "model": "m1", "choices": [], "usage": ` + usage + `}`}
		if play.Kind == "sse" {
			headers["content-type"] = "text/event-stream"
			chunks = []string{"data: {\"id\":\"c\",\"model\":\"m1\"}\n\n", "data: {\"id\":\"c\",\"usage\": " + usage + "}\n\n", "data: [DONE]\n\n", ""}
		}
	}
	if pl.door != nil {
		if x.started {
			headers = nil
		}
		if got := pl.door.respond(pl.now, x.opened, headers, chunks, true, true); want != nil {
			pl.response(x, want, got)
		}
		return
	}
	var got []Message
	if x.resp == nil {
		var set header.List
		x.resp, set = pl.p.ResponseHeaders(pl.now, x.d, header.FromMap(headers))
		got = append(got, Message{Type: "response_headers", SetHeaders: pairs(set)})
	}
	for i, c := range chunks {
		end := i == len(chunks)-1
		out := x.resp.Body(pl.now, []byte(c), end)
		if out == nil && !end {
			continue
		}
		text := string(out)
		m := Message{Type: "response_body", Size: len(out), EOS: end, Body: &text}
		if end && x.resp.Metadata() != nil {
			m.Metadata = map[string]any{}
			for ns, kv := range x.resp.Metadata() {
				inner := map[string]any{}
				for k, v := range kv {
					inner[k] = v
				}
				m.Metadata[ns] = inner
			}
		}
		got = append(got, m)
	}
	if want != nil {
		pl.response(x, want, got)
	}
}

// coalesce joins body messages: how a body is cut into them has no meaning.
func coalesce(list []Message) []Message {
	var out []Message
	for _, m := range list {
		if n := len(out); n > 0 && m.Type == "response_body" && out[n-1].Type == m.Type && !out[n-1].EOS {
			last := &out[n-1]
			if last.Body != nil && m.Body != nil {
				text := *last.Body + *m.Body
				last.Body = &text
			} else {
				last.Body = nil
			}
			last.Size, last.EOS, last.Metadata = last.Size+m.Size, m.EOS, m.Metadata
			continue
		}
		out = append(out, m)
	}
	return out
}

func (pl *player) response(x *exchange, want, got []Message) {
	want, got = coalesce(want), coalesce(got)
	if len(want) != len(got) {
		pl.fault(x.id, "response messages", fmt.Sprint(len(want)), fmt.Sprint(len(got)))
		return
	}
	for i := range want {
		w, g := want[i], got[i]
		if w.Type == "request_body" { // the client's bytes, not marshalled anew
			w.Size, g.Size = 0, 0
			if w.Body != nil && g.Body != nil && sameJSON(*w.Body, *g.Body) {
				w.Body = nil
			}
		}
		if w.Type != g.Type || w.EOS != g.EOS || w.Size != g.Size {
			pl.fault(x.id, "response message", fmt.Sprintf("%s %v %d", w.Type, w.EOS, w.Size), fmt.Sprintf("%s %v %d", g.Type, g.EOS, g.Size))
		}
		if d := cmp.Diff(w.SetHeaders, g.SetHeaders); w.Type == "response_headers" && d != "" {
			pl.fault(x.id, "response set_headers", "", d)
		}
		if w.Body != nil && g.Body != nil && *w.Body != *g.Body {
			pl.fault(x.id, "response body", *w.Body, *g.Body)
		}
		if d := cmp.Diff(w.Metadata, g.Metadata); d != "" {
			pl.fault(x.id, "response metadata", "", d)
		}
	}
}

func (pl *player) respondHead(x *exchange, contentType string) {
	if pl.door != nil {
		x.started = true
		pl.door.respond(pl.now, x.opened, map[string]string{":status": "200", "content-type": contentType}, nil, false, false)
		return
	}
	x.resp, _ = pl.p.ResponseHeaders(pl.now, x.d, header.Of(":status", "200", "content-type", contentType))
}
