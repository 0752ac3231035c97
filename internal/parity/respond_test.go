package parity

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

func playOf(s *Step) Response {
	play := Response{Kind: "json", Usage: []int{3, 4}}
	if len(s.Response) > 0 {
		_ = json.Unmarshal(s.Response, &play)
	}
	return play
}

// release ends a request's stream as Envoy does.
func (pl *player) release(x *exchange) {
	if x.closed {
		return
	}
	x.closed = true
	pl.asked = slices.DeleteFunc(pl.asked, func(a *exchange) bool { return a == x })
	x.conn.leave()
	pl.settle()
}

// finish plays a response and compares the picker's changes to it.
func (pl *player) finish(id string, play Response, want []Message) {
	x := pl.open[id]
	if x == nil {
		return
	}
	delete(pl.open, id)
	defer pl.release(x)
	if play.Kind == "abort" || play.Kind == "close" || refused(x.got) {
		return
	}
	headers, chunks := play.Headers, play.Chunks
	if headers == nil {
		headers = map[string]string{":status": "200", "content-type": "application/json"}
		usage := fmt.Sprintf(`{"prompt_tokens": %d, "completion_tokens": %d, "total_tokens": %d}`, play.Usage[0],
			play.Usage[1], play.Usage[0]+play.Usage[1])
		chunks = []string{`{"id": "c", "object": "chat.completion", "model": "m1", "choices": [], "usage": ` + usage +
			`}`}
		if play.Kind == "sse" {
			headers["content-type"] = "text/event-stream"
			chunks = []string{"data: {\"id\":\"c\",\"model\":\"m1\"}\n\n",
				"data: {\"id\":\"c\",\"usage\": " + usage + "}\n\n", "data: [DONE]\n\n", ""}
		}
	}
	if x.started {
		headers = nil
	}
	pl.pass(machine.Millisecond) // until the first token
	got := pl.respond(x, headers, chunks, !play.Trailers)
	if play.Trailers {
		x.conn.send(&stream.Message{Kind: stream.ResponseTrailers}, nil)
		pl.await(func() bool {
			over, n := x.hear(), len(x.inbox)
			return over || n > 0 && x.inbox[n-1].Type == "response_trailers"
		})
		got = append(got, x.inbox...)
	}
	if want != nil {
		pl.response(x, want, got)
	}
}

// begin sends the headers of a response.
func (pl *player) begin(x *exchange, contentType string) {
	x.started = true
	x.begun = pl.respond(x, map[string]string{":status": "200", "content-type": contentType}, nil, false)
}

// respond sends the given parts of a response, and returns the picker's answers. End means that the last piece ends
// the response.
func (pl *player) respond(x *exchange, headers map[string]string, chunks []string, end bool) []Message {
	expect := len(chunks)
	if headers != nil {
		x.conn.send(&stream.Message{Kind: stream.ResponseHeaders, Head: header.FromMap(headers),
			End: end && len(chunks) == 0}, nil)
		expect++
	}
	for i, c := range chunks {
		x.conn.send(&stream.Message{Kind: stream.ResponseBody, Body: []byte(c), End: end && i == len(chunks)-1}, nil)
	}
	pl.await(func() bool {
		over, n := x.hear(), len(x.inbox)
		return over || n > 0 && x.inbox[n-1].Type == "response_body" && x.inbox[n-1].EOS || !end && n == expect
	})
	got := x.inbox
	x.inbox = nil
	return got
}

// coalesce joins body messages, because the sizes of pieces have no meaning.
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
		if w.Type == "request_body" { // the client's bytes, not marshalled again
			w.Size, g.Size = 0, 0
			if w.Body != nil && g.Body != nil && sameJSON(*w.Body, *g.Body) {
				w.Body = nil
			}
		}
		if w.Type != g.Type || w.EOS != g.EOS || w.Size != g.Size {
			pl.fault(x.id, "response message", fmt.Sprintf("%s %v %d", w.Type, w.EOS, w.Size),
				fmt.Sprintf("%s %v %d", g.Type, g.EOS, g.Size))
		}
		switch w.Type {
		case "request_headers":
			pl.compareHeaders(x, &w, g.SetHeaders, g.RemoveHeaders)
			if w.ClearRouteCache != g.ClearRouteCache {
				pl.fault(x.id, "clear_route_cache", fmt.Sprint(w.ClearRouteCache), fmt.Sprint(g.ClearRouteCache))
			}
		case "response_headers":
			if d := cmp.Diff(w.SetHeaders, g.SetHeaders); d != "" {
				pl.fault(x.id, "response set_headers", "", d)
			}
		case "immediate_response":
			pl.sameRefusal(x.id, &w, &g)
			continue
		}
		if w.Body != nil && g.Body != nil && *w.Body != *g.Body {
			pl.fault(x.id, "response body", *w.Body, *g.Body)
		}
		if d := cmp.Diff(w.Metadata, g.Metadata); d != "" {
			pl.fault(x.id, "response metadata", "", d)
		}
	}
}
