package disagg

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// Defaults of today's sidecar.
const (
	DefaultRetryBackoff = 200 * machine.Millisecond // between tries of a prefill
	DefaultSessions     = 1000                      // document 002's LRU
)

// Config is what the requests at one sidecar share.
type Config struct {
	// Connector is how KV caches travel; nil is NIXLv2.
	Connector *connector.Connector
	// MeetingPort is the prefill servers' bootstrap port, and P2PPort their peer
	// port for offloading; 0 is the default.
	MeetingPort, P2PPort int
	// P2PPull lets x-kv-cache-source-host-port name a server to pull cached
	// blocks from. The offloading connector always does.
	P2PPull bool
	// StandIns says that answers stand for longer ones, as in virtual time: their
	// sizes are not recorded.
	StandIns bool
	// Sample tries the named prefillers in random order instead of the given one.
	Sample bool
	// Retries is how often one prefiller is tried again after a 502, 503 or 504 or
	// a broken connection, RetryBackoff apart; with RetryOn5xx after every 5xx.
	// After any 5xx the next prefiller is tried, where several are named.
	Retries      int
	RetryOn5xx   bool
	RetryBackoff machine.Time
	// FallBack lets the decode server prefill by itself when no prefiller
	// could; without it the client gets the prefiller's error.
	FallBack bool
	// ChunkTokens, when above 0, asks the decode server for this many tokens at
	// a time (pd-sidecar --decode-chunk-size). Chat completions only, and only
	// where the decode leg is not sent beside the prefill leg.
	ChunkTokens int
	// PromptThreshold, when above 0, leaves prompts of up to this many tokens to the decode
	// server, whatever prefiller the request names (document 003). A token is 4 bytes of text.
	PromptThreshold int
	// Encoder is how embeddings travel from encode servers; empty leaves those
	// that a request names alone.
	Encoder ECConnector
	// MoRIIO is nixlv2 over MoRI-IO; the zero value is off.
	MoRIIO connector.MoRIIO
	// Ranks is the number of data-parallel ranks, BasePort the port of the
	// sidecar's first one, Port that of this one, and PodIP the host that others
	// call it by. ForwardRanks obeys x-data-parallel-host-port, as the first rank
	// does.
	Ranks, BasePort, Port int
	PodIP                 string
	ForwardRanks          bool
	// Allow is whom a request may name as prefiller; nil allows all.
	Allow *Allowlist
	// Frontend, when not nil, takes the place of everything else.
	Frontend *Frontend
	// Sessions, when not nil, is document 002's session mode.
	Sessions *Sessions
	// Engines remembers the engines of prefill servers (Mooncake); nil asks each time.
	Engines *Engines
	// Lock runs a function while nobody else touches Allow, Sessions and
	// Engines; nil calls it as it is.
	Lock func(func())
	// Seed keys the ids that are made up, together with Request.Number.
	Seed uint64
	// Recorder takes the hop's flow events; nil records nothing.
	Recorder record.Recorder
	// Trace, if not nil, has legs go with a traceparent of their own spans.
	Trace *tracing.IDs
	// Endpoint is the sidecar's own address, for events.
	Endpoint string
}

func (c *Config) connector() *connector.Connector {
	if c.Connector == nil {
		return connector.NIXLv2
	}
	return c.Connector
}

func (c *Config) locked(f func()) {
	if c.Lock == nil {
		f()
		return
	}
	c.Lock(f)
}

func or(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}

// The headers that a sidecar acts on, in the canonical form of net/http.
const (
	PrefillerHeader = "X-Prefiller-Host-Port"
	EncoderHeader   = "X-Encoder-Hosts-Ports"
	SourceHeader    = "X-Kv-Cache-Source-Host-Port"
	RankHostHeader  = "X-Data-Parallel-Host-Port"
	SessionHeader   = "X-Session-Id"
	RequestIDHeader = connector.RequestIDHeader
	RankHeader      = connector.RankHeader
)

// routing are the headers that end at the sidecar, of requests that generate
// tokens.
var routing = []string{PrefillerHeader, SourceHeader, EncoderHeader}

// ErrorHeader says why a prefill leg brought no answer. The body of such an
// answer is empty, as the real sidecar's is.
const ErrorHeader = "X-Prefill-Error"

// Request is a request at the sidecar.
type Request struct {
	// Number is different for every request of a sidecar; it keys made-up ids.
	Number uint64
	// ID is x-request-id, or empty.
	ID string
	// Attempt is Envoy's count of tries, 0 where unknown.
	Attempt int
	// Method and Path are the request line's; the query is left out.
	Method, Path string
	// Prefillers are the targets that PrefillerHeader names, in its order, with
	// their addresses resolved. In session mode they may come from anywhere.
	Prefillers []Target
	// Encoders are the targets that EncoderHeader names.
	Encoders []Target
	// Source is the target that SourceHeader names; nil is none.
	Source *Target
	// RankHost is RankHostHeader's value.
	RankHost string
	// Routed is what ReadRouted says, for a Frontend.
	Routed Routed
	// Peers are what the legs of MoRI-IO name.
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

// Generates reports whether a request makes tokens, so that it may be prefilled
// elsewhere. The match is exact, as the real sidecar's is: a trailing slash
// makes it another path.
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

// Alive reports whether a request asks for the sidecar's own health: 200 while it
// serves, whatever the decode server does, whose probes are its own.
func Alive(method, path string) bool {
	return (method == "GET" || method == "HEAD") && path == "/health"
}

const chatPath = "/v1/chat/completions"

// parses reports whether what is in a request's body has to be known.
func (c *Config) parses(r *Request) bool {
	if c.Sessions != nil {
		return r.Path == chatPath || r.Path == "/v1/completions"
	}
	return len(r.Prefillers) > 0 || c.Encoder != "" && len(r.Encoders) > 0 || c.ChunkTokens > 0 && r.Path == chatPath ||
		r.Source != nil && c.pulls()
}

// pulls reports whether servers can pull cached blocks from one another: the
// offloading connector can, and NIXL can be joined with it.
func (c *Config) pulls() bool {
	return c.connector().Pulls || c.P2PPull && c.connector() == connector.NIXLv2
}
