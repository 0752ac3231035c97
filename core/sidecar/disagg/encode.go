package disagg

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// Encode servers (pd-sidecar --ec-connector, x-encoder-hosts-ports) turn images, sounds and films into embeddings
// before the prefill. The sidecar sends each item of the messages to one encode server by itself, all at once. When all
// have answered, the request continues as it would have without them.

// ECConnector is the way in which embeddings travel from the encode server to the prefill server.
type ECConnector string

// With ECExample the servers share a storage. With ECNIXL the encode server's answer says where the embeddings are.
const (
	ECExample ECConnector = "ec-example"
	ECNIXL    ECConnector = "ec-nixl"
)

// ParseECConnector parses a connector's name. The empty name turns encoding off.
func ParseECConnector(name string) (ECConnector, error) {
	switch c := ECConnector(name); c {
	case "", ECExample, ECNIXL:
		return c, nil
	}
	return "", fmt.Errorf("encoder cache connector %q is not known; expected %s or %s", name, ECExample, ECNIXL)
}

// encoding is the encode stage of a request.
type encoding struct {
	first, items, left int // the first leg's id, and the number of missing answers
	params             []object
}

// maxItems limits the items of one request.
const maxItems = 1024

// encode begins the encode stage. It returns false where the request has nothing to encode.
func (x *ClientRequest) encode() bool {
	x.add = append(x.add, header.Header{Name: RequestIDHeader, Value: x.uuid("encoder request")})
	items := mediaItems(x.body)
	if len(items) == 0 {
		x.encoded()
		return false
	}
	if len(items) > maxItems {
		x.refuse(400, fmt.Sprintf("the messages hold %d images, sounds and films; at most %d are encoded", len(items),
			maxItems))
		return true
	}
	x.encoding = &encoding{first: len(x.legs) + 1, items: len(items), left: len(items),
		params: make([]object, len(items))}
	for i, item := range items {
		f := connector.OneTokenLoose(chatPath, x.body)
		f["messages"] = []any{object{"role": "user", "content": []any{item}}}
		t := x.r.Encoders[i%len(x.r.Encoders)]
		x.record(record.EncodeLegSent, t.String(), record.D("item", i))
		x.call(Leg{Kind: Encode, Target: t, Method: "POST", Path: chatPath, Body: x.body.With(f).Write(),
			Concurrent: true,
			Set: header.Of("Content-Type", "application/json", RequestIDHeader,
				x.uuid("encoder request")+"-enc-"+strconv.Itoa(i))})
	}
	return true
}

// mediaItems returns the parts of the messages that need encoding. It counts parts with the same URL once.
func mediaItems(body object) []any {
	messages, _ := body["messages"].([]any)
	var items []any
	seen := map[string]bool{}
	for _, m := range messages {
		message, _ := m.(map[string]any)
		parts, _ := message["content"].([]any)
		for _, p := range parts {
			part, _ := p.(map[string]any)
			kind, _ := part["type"].(string)
			if !slices.Contains([]string{"image_url", "audio_url", "video_url", "input_audio"}, kind) {
				continue
			}
			if kind != "input_audio" {
				if u := object(part).Object(kind).Text("url"); u != "" {
					if seen[u] {
						continue
					}
					seen[u] = true
				}
			}
			items = append(items, part)
		}
	}
	return items
}

// encodedOne takes an encode server's answer.
func (x *ClientRequest) encodedOne(l *leg, body []byte) {
	e := x.encoding
	i := l.ID - e.first
	x.record(record.EncodeLegEnded, l.Target.String(), record.D("item", i), record.D("status", l.status))
	if l.status < 200 || l.status >= 300 {
		x.encodeFailed(fmt.Sprintf("encoder request failed for item %d with status %d: %s", i, l.status, body))
		return
	}
	if x.c.Encoder == ECNIXL {
		reply, err := jsonobject.Parse(body)
		if err != nil {
			x.encodeFailed(fmt.Sprintf("failed to parse encoder response for item %d: %s", i,
				jsonobject.Explain(body, err)))
			return
		}
		e.params[i] = reply.Object("ec_transfer_params")
	}
	if e.left--; e.left > 0 {
		return
	}
	all := object{}
	for _, p := range e.params {
		all = all.With(p)
	}
	if len(all) > 0 {
		x.body = x.body.With(object{"ec_transfer_params": map[string]any(all)})
	}
	x.encoded()
	x.serve()
}

// encodeFailed ends the encode stage and drops the other servers' answers.
func (x *ClientRequest) encodeFailed(reason string, head ...header.Header) {
	for i := range x.encoding.items {
		x.do(Drop{x.encoding.first + i})
	}
	x.refuse(502, reason, head...)
}

// encoded marks the request as encoded: it needs a prefill, whatever the decode server's cache holds.
func (x *ClientRequest) encoded() {
	x.wasEncoded = true
	x.body = x.body.With(object{"cache_hit_threshold": 0})
}
