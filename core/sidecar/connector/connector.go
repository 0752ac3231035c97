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

// Connector is a way to bring a KV cache from a prefill to a decode server.
type Connector struct {
	// Profile is how its transfers behave; its name is the connector's.
	link.Profile
	Sidecar
	Server
	// Deprecated is set for the connectors that document 003 deprecates in favour of NIXLv2.
	Deprecated bool
}

// Sidecar is what a connector has the routing sidecar do.
type Sidecar struct {
	// Paths are those whose requests generate tokens, beside the usual ones.
	Paths []string
	// RequestID gives both legs an id in X-Request-Id.
	RequestID bool
	// Pulls says that servers can take blocks of one another's caches.
	Pulls bool
	// ByContent says that the decode server finds the cache by the prompt: what the
	// prefill server answers need not be understood.
	ByContent bool
	// DecodeFirst asks the decode server first where the client gives a
	// cache_hit_threshold, and prefills only if its cache holds too little.
	DecodeFirst bool
	// AtOnce says that both legs are always sent at once: Together is never nil. Of
	// a body that cannot be read the client is told BadBody before the mistake.
	AtOnce  bool
	BadBody string
	// Ask, if not nil, is asked of the prefill server's meeting port before either leg.
	Ask *Ask
	// Together are the legs of a request that are sent at once: the two servers find
	// each other. Where it is nil, or says nil, the prefill leg goes first.
	Together func(r *Request) *Legs
	// Prefill is the prefill leg's body, with headers to set.
	Prefill func(r *Request) (jsonobject.Object, header.List)
	// Decode is the decode leg's body, with headers to set, after what the prefill
	// server answered.
	Decode func(r *Request, answer jsonobject.Object) (jsonobject.Object, header.List)
	// Fetch is what Server.Read makes of a Decode that follows the Answer of what is kept, nil
	// where nothing is: with no bytes between. Where Fetch is nil, only the bytes tell.
	Fetch func(*Kept) *Remote
}

// Server is what a connector has a model server do.
type Server struct {
	// Read reads what a request says of a cache that travels, and is nil where it says it in
	// another connector's way.
	Read func(p *openai.Sampling, at *At) (*Params, *openai.Error)
}

// All are the connectors of a routing sidecar, the default first. A new one is its file, and its place here.
var All = []*Connector{NIXLv2, SharedStorage, SGLang, Mooncake, Offloading, NIXLv1, LMCache}

// Named reads the values of the sidecar's --kv-connector (and of document 003's
// -connector), in any case.
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

// ProfileOf returns the profile of a name in vLLM's --kv-transfer-config, of one that
// Named knows, or of tcp; NIXL's where it is not one of them.
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

// Request is a request that is prefilled elsewhere, as its connector sees it at the sidecar.
type Request struct {
	Path string
	Body jsonobject.Object
	// Host and Port are the prefill server's. Its meeting port is MeetingPort, and
	// where it hands out blocks of its cache PeerPort.
	Host                  string
	Port                  int
	MeetingPort, PeerPort int
	// Source says where the prefill server is to take cached blocks from; nil is nowhere.
	Source jsonobject.Object
	// Engine is who the prefill server has answered to be, where it was asked.
	Engine Engine
	// MoRIIO is NIXL's write mode, and Peers whom its legs name.
	MoRIIO *MoRIIO
	Peers  *MoRIIOPeers
	// Draw makes up what a purpose needs: the same each time within a request.
	Draw func(purpose string) machine.Draw
}

// UUID returns an id for a purpose.
func (r *Request) UUID(purpose string) string { d := r.Draw(purpose); return d.UUID() }

// Number returns a number for a purpose.
func (r *Request) Number(purpose string) uint64 { d := r.Draw(purpose); return d.Uint64() }

// Legs are two requests that are sent at once.
type Legs struct {
	Prefill, Decode jsonobject.Object
	// Head are headers to set on the prefill leg, or where the client waits on both.
	Head header.List
	// Wait, above 0, keeps the decode server's answer from the client until the
	// prefill has succeeded, and for so long at most.
	Wait machine.Time
}

// Engine is one data-parallel rank of a prefill server, as it tells of itself.
type Engine struct{ Rank, ID string }

// Ask is a GET that the sidecar puts to a prefill server.
type Ask struct {
	Path string
	// Answer is what the server says whose engine has this id.
	Answer func(engineID string) []byte
	// Read reads its engines, at least one, in their order.
	Read func(answer []byte) ([]Engine, error)
}

// Answer is what a model server answers to the question that a connector asks at a path.
func Answer(path, engineID string) (status string, body []byte) {
	for _, c := range All {
		if c.Ask != nil && c.Ask.Path == path {
			return "200 OK", c.Ask.Answer(engineID)
		}
	}
	return "404 Not Found", []byte("{}")
}

// The paths on which requests look unlike OpenAI's chats and completions.
const (
	ResponsesPath = "/v1/responses"
	GeneratePath  = "/inference/v1/generate"
	NativePath    = "/v1/rpc/generate" // a Dynamo worker's
)

// OneToken returns the fields that ask for one token, as NIXL's prefill leg has them
// on this path. min_tokens goes with them, or an engine would refuse the pair.
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

// OneTokenLoose is what Mooncake, offloading and encode servers get instead:
// max_completion_tokens only where the client has it.
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

// lowerMinimum lowers a min_tokens that an engine would refuse beside
// max_tokens 1. The real sidecar leaves it.
func lowerMinimum(f, body jsonobject.Object) jsonobject.Object {
	if n, ok := body.Integer("min_tokens"); ok && n > 1 {
		f["min_tokens"] = 1
	}
	return f
}
