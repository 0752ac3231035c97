package connector

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Connector is a way to transfer a KV cache from a prefill server to a decode server.
type Connector struct {
	// Profile describes how the connector's transfers behave. Its name is the connector's name.
	link.Profile
	Sidecar
	Server
	// Deprecated is true for the connectors that document 003 deprecates in favour of NIXLv2.
	Deprecated bool
}

// Sidecar describes what the routing sidecar does for a connector.
type Sidecar struct {
	// Paths lists further paths whose requests generate tokens, beside the usual ones.
	Paths []string
	// RequestID makes the sidecar give both legs the same id in X-Request-Id.
	RequestID bool
	// Pulls says that servers can take blocks from one another's caches.
	Pulls bool
	// ByContent says that the decode server finds the cache by the prompt, so that the sidecar need not understand the
	// prefill server's answer.
	ByContent bool
	// DecodeFirst makes the sidecar ask the decode server first, where the client gives a cache_hit_threshold. The
	// sidecar prefills only if the decode server's cache holds too little.
	DecodeFirst bool
	// AtOnce says that the sidecar always sends both legs at once: Together is never nil. If the sidecar cannot read
	// the body, its error message begins with BadBody.
	AtOnce  bool
	BadBody string
	// Ask, if not nil, is the request that the sidecar sends to the prefill server's meeting port before either leg.
	Ask *Ask
	// Together returns two legs to send at once; the two servers find each other. Where Together or its result is nil,
	// the prefill leg goes first.
	Together func(r *Request) *Legs
	// Prefill returns the prefill leg's body and the headers to set on it.
	Prefill func(r *Request) (jsonobject.Object, header.List)
	// Decode returns the decode leg's body and the headers to set on it, given the prefill server's answer.
	Decode func(r *Request, answer jsonobject.Object) (jsonobject.Object, header.List)
	// Fetch returns what Server.Read would read in the decode leg that follows the Answer for a kept cache, without any
	// bytes in between. For nil it returns nil. Where Fetch itself is nil, only the bytes have that information.
	Fetch func(*Kept) *Remote
}

// Server describes what a model server does for a connector.
type Server struct {
	// Read reads a request's transfer parameters. It returns nil where the request has another connector's parameters.
	Read func(p *openai.Sampling, at *At) (*Params, *openai.Error)
}

// All are the connectors of a routing sidecar, the default first. A new connector needs a file and an entry here.
var All = []*Connector{NIXLv2, SharedStorage, SGLang, Mooncake, Offloading, NIXLv1, LMCache}

// Named returns the connector for a value of the sidecar's --kv-connector (and of document 003's -connector), in any
// case.
func Named(name string) (*Connector, error) {
	names := make([]string, len(All))
	for i, c := range All {
		if strings.EqualFold(name, c.Name) {
			return c, nil
		}
		names[i] = c.Name
	}
	return nil, fmt.Errorf("connector %q is not known; expected one of %s", name, strings.Join(names, ", "))
}

// ProfileOf returns the profile for a name in vLLM's --kv-transfer-config, for a name that Named knows, or for tcp. For
// all other names it returns NIXL's.
func ProfileOf(name string) link.Profile {
	if c, err := Named(name); err == nil {
		return c.Profile
	}
	name = strings.ToLower(name)
	if name == link.TCP.Name {
		return link.TCP
	}
	for _, c := range All {
		for begin := range strings.FieldsSeq(c.VLLM) {
			if strings.HasPrefix(name, begin) {
				return c.Profile
			}
		}
	}
	return NIXLv2.Profile
}

// Request is a request that another server prefills, as its connector sees it at the sidecar.
type Request struct {
	Path string
	Body jsonobject.Object
	// Host and Port are the prefill server's. The two servers find each other at
	// MeetingPort. At PeerPort the prefill server serves the blocks of its cache.
	Host                  string
	Port                  int
	MeetingPort, PeerPort int
	// Source names the server from which the prefill server takes cached blocks; nil is none.
	Source jsonobject.Object
	// Engine is the prefill server's answer to Ask.
	Engine Engine
	// MoRIIO configures NIXL's write mode, and Peers are the addresses that its legs name.
	MoRIIO *MoRIIO
	Peers  *MoRIIOPeers
	// Draw returns random values for a purpose. They are the same each time within a request.
	Draw func(purpose string) machine.Draw
}

// UUID returns an id for a purpose.
func (r *Request) UUID(purpose string) string { d := r.Draw(purpose); return d.UUID() }

// Number returns a number for a purpose.
func (r *Request) Number(purpose string) uint64 { d := r.Draw(purpose); return d.Uint64() }

// Legs are two requests that are sent at once.
type Legs struct {
	Prefill, Decode jsonobject.Object
	// Head are the headers to set on the prefill leg or, where the client waits for both legs, on both.
	Head header.List
	// Wait, if above 0, is the longest time for which the sidecar holds the decode server's answer back from the client
	// until the prefill has succeeded.
	Wait machine.Time
}

// Engine is one data-parallel rank of a prefill server, as the server reports it.
type Engine struct{ Rank, ID string }

// Ask is a GET request that the sidecar sends to a prefill server.
type Ask struct {
	Path string
	// Answer returns the answer of a server whose engine has this id.
	Answer func(engineID string) []byte
	// Read returns the server's engines from its answer, in order: at least one.
	Read func(answer []byte) ([]Engine, error)
}

// Answer returns a model server's answer to a connector's GET request at a path.
func Answer(path, engineID string) (status string, body []byte) {
	for _, c := range All {
		if c.Ask != nil && c.Ask.Path == path {
			return "200 OK", c.Ask.Answer(engineID)
		}
	}
	return "404 Not Found", []byte("{}")
}

// Paths on which requests differ from OpenAI's chats and completions.
const (
	ResponsesPath = "/v1/responses"
	GeneratePath  = "/inference/v1/generate"
	NativePath    = "/v1/rpc/generate" // a Dynamo worker's
)

// OneToken returns the fields that ask for one token on this path, as NIXL's prefill leg does. The fields include
// min_tokens, because an engine would refuse a larger minimum.
func OneToken(path string, body jsonobject.Object) jsonobject.Object {
	switch path {
	case ResponsesPath:
		return jsonobject.Object{"max_output_tokens": 1, "stream": false, "stream_options": jsonobject.Absent}
	case NativePath:
		stop := body.Object("stop_conditions").With(jsonobject.Object{"max_tokens": 1, "min_tokens": 1})
		return jsonobject.Object{"stop_conditions": stop, "stream": false}
	case GeneratePath:
		sampling := body.Object("sampling_params").With(jsonobject.Object{"max_tokens": 1, "min_tokens": 1})
		return jsonobject.Object{"sampling_params": sampling, "stream": false, "stream_options": jsonobject.Absent}
	}
	return jsonobject.Object{"max_tokens": 1, "max_completion_tokens": 1, "min_tokens": 1, "stream": false,
		"stream_options": jsonobject.Absent}
}

// OneTokenLoose returns the fields that Mooncake, offloading and encode servers receive instead. They include
// max_completion_tokens only where the client's request sets it.
func OneTokenLoose(path string, body jsonobject.Object) jsonobject.Object {
	if path == ResponsesPath || path == GeneratePath || path == NativePath {
		return OneToken(path, body)
	}
	f := jsonobject.Object{"max_tokens": 1, "stream": false, "stream_options": jsonobject.Absent}
	if _, has := body["max_completion_tokens"]; has {
		f["max_completion_tokens"] = 1
	}
	return lowerMinimum(f, body)
}

// lowerMinimum lowers a min_tokens that an engine would refuse beside max_tokens 1. The real sidecar does not.
func lowerMinimum(f, body jsonobject.Object) jsonobject.Object {
	if n, ok := body.Integer("min_tokens"); ok && n > 1 {
		f["min_tokens"] = 1
	}
	return f
}
