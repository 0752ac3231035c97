package disagg

import (
	"cmp"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// Defaults of today's sidecar.
const (
	DefaultRetryBackoff = 200 * machine.Millisecond // between attempts of a prefill
	DefaultSessions     = 1000                      // document 002's LRU
)

// Config has the settings and the state that all requests at one sidecar share.
type Config struct {
	// Connector is the way KV caches are transferred; nil is NIXLv2.
	Connector *connector.Connector
	// MeetingPort is the prefill servers' bootstrap port, and P2PPort their peer port for offloading; 0 is the default.
	MeetingPort, P2PPort int
	// P2PPull lets x-kv-cache-source-host-port name a server to pull cached blocks from. The offloading connector
	// always allows it.
	P2PPull bool
	// StandIns says that answers stand in for longer ones, as in virtual time. The sidecar then records no sizes.
	StandIns bool
	// Sample makes the sidecar try the named prefillers in random order instead of the given one.
	Sample bool
	// Retries is how often the sidecar retries one prefiller after a 502, 503 or 504 or a broken connection,
	// RetryBackoff apart; with RetryOn5xx after every 5xx. After any 5xx it tries the next prefiller, where the request
	// names several.
	Retries      int
	RetryOn5xx   bool
	RetryBackoff machine.Time
	// FallBack lets the decode server prefill by itself when no prefiller could. Without it the client gets the
	// prefiller's error.
	FallBack bool
	// ChunkTokens, when above 0, makes the sidecar ask the decode server for this many tokens at a time (pd-sidecar
	// --decode-chunk-size). It applies to chat completions only, and only where the decode leg follows the prefill leg.
	ChunkTokens int
	// PromptThreshold, when above 0, leaves prompts of up to this many tokens to the decode
	// server, whatever prefiller the request names (document 003). A token is 4 bytes of text.
	PromptThreshold int
	// Encoder is the way embeddings travel from encode servers. If empty, the sidecar ignores the encode servers that a
	// request names.
	Encoder ECConnector
	// MoRIIO configures nixlv2 over MoRI-IO; the zero value is off.
	MoRIIO connector.MoRIIO
	// Ranks is the number of data-parallel ranks. BasePort is the port of the sidecar's first rank, Port the port of
	// this one, and PodIP the host at which others call it. ForwardRanks makes the sidecar obey
	// x-data-parallel-host-port, as the first rank does.
	Ranks, BasePort, Port int
	PodIP                 string
	ForwardRanks          bool
	// Allow holds the servers that a request may name as prefiller; nil allows all.
	Allow *Allowlist
	// Frontend, when not nil, replaces everything else.
	Frontend *Frontend
	// Sessions, when not nil, turns on document 002's session mode.
	Sessions *Sessions
	// Engines remembers the engines of prefill servers (Mooncake); nil asks each time.
	Engines *Engines
	// Lock runs a function while no other goroutine touches Allow, Sessions and Engines. Where it is nil, the function
	// runs without a lock.
	Lock func(func())
	// Seed keys the generated ids, together with Request.Number.
	Seed uint64
	// Recorder takes the hop's flow events; nil records nothing.
	Recorder record.Recorder
	// Trace, if not nil, has legs go with a traceparent of their own spans.
	Trace *tracing.IDs
	// Endpoint is the sidecar's own address, for flow events.
	Endpoint string
}

func (c *Config) connector() *connector.Connector {
	return cmp.Or(c.Connector, connector.NIXLv2)
}

func (c *Config) locked(f func()) {
	if c.Lock == nil {
		f()
		return
	}
	c.Lock(f)
}

// The headers that a sidecar obeys, in the canonical form of net/http.
const (
	PrefillerHeader = "X-Prefiller-Host-Port"
	EncoderHeader   = "X-Encoder-Hosts-Ports"
	SourceHeader    = "X-Kv-Cache-Source-Host-Port"
	RankHostHeader  = "X-Data-Parallel-Host-Port"
	SessionHeader   = "X-Session-Id"
	RequestIDHeader = connector.RequestIDHeader
	RankHeader      = connector.RankHeader
)

// routing lists the headers that the sidecar removes from requests that generate tokens.
var routing = []string{PrefillerHeader, SourceHeader, EncoderHeader}

// ErrorHeader says why a prefill leg brought no answer. Such an answer has an empty body, as with the real sidecar.
const ErrorHeader = "X-Prefill-Error"

// Request is one client's request, as it arrives at the sidecar.
type Request struct {
	// Number is different for every request of a sidecar. It keys the generated ids.
	Number uint64
	// ID is x-request-id, or empty.
	ID string
	// Attempt is Envoy's attempt count, 0 where unknown.
	Attempt int
	// Method and Path are the request line's, without the query.
	Method, Path string
	// Prefillers are the targets that PrefillerHeader names, in its order, with resolved addresses. In session mode
	// they may come from another source.
	Prefillers []Target
	// Encoders are the targets that EncoderHeader names.
	Encoders []Target
	// Source is the target that SourceHeader names; nil is none.
	Source *Target
	// RankHost is RankHostHeader's value.
	RankHost string
	// Routed has the headers that ReadRouted reads, for a Frontend.
	Routed Routed
	// Peers are the addresses that the legs of MoRI-IO name.
	Peers connector.MoRIIOPeers
	// Session is SessionHeader's value.
	Session string
	// TraceParent is the header of that name (W3C Trace Context).
	TraceParent string
	// Body is the whole body, unless it is Described.
	Body      []byte
	Described *described.Body
	// Bytes is the body's length, for the record.
	Bytes int
}

// Generates reports whether a request generates tokens, so that another server may prefill it. The path matches
// exactly, as at the real sidecar: a path with a trailing slash is another path.
func (c *Config) Generates(method, path string) bool {
	if method != "POST" {
		return false
	}
	switch path {
	case chatPath, "/v1/completions", "/v1/messages", connector.ResponsesPath, connector.GeneratePath:
		return true
	}
	return slices.Contains(c.connector().Paths, path)
}

// Alive reports whether a request asks for the sidecar's own health. The answer is 200 while the sidecar serves,
// whatever the decode server does: that server has its own probes.
func Alive(method, path string) bool {
	return (method == "GET" || method == "HEAD") && path == "/health"
}

const chatPath = "/v1/chat/completions"

// parses reports whether the sidecar needs the fields of a request's body.
func (c *Config) parses(r *Request) bool {
	if c.Sessions != nil {
		return r.Path == chatPath || r.Path == "/v1/completions"
	}
	return len(r.Prefillers) > 0 || c.Encoder != "" && len(r.Encoders) > 0 || c.ChunkTokens > 0 && r.Path == chatPath ||
		r.Source != nil && c.pulls()
}

// pulls reports whether servers can pull cached blocks from one another. The offloading connector can, and NIXL can
// with P2PPull.
func (c *Config) pulls() bool {
	return c.connector().Pulls || c.P2PPull && c.connector() == connector.NIXLv2
}
