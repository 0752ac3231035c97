package envoy

import "time"

// Config says what the gateway should do, in the words of the llm-d flow. Its
// zero fields mean the defaults named beside them. YAML turns it into Envoy's.
type Config struct {
	// Listen is the address (ip:port) that clients come to. Default
	// 127.0.0.1:0, a free port on loopback.
	Listen string
	// Admin is the address of Envoy's own pages. Default 127.0.0.1:0. They can
	// stop the process, so they belong on loopback.
	Admin string
	// Control is the address of a control plane that gives listeners, routes and
	// clusters over delta ADS; Listen, Pools and Routes are then empty. Default none.
	Control string
	// Pools are the groups of model servers, each with its endpoint picker. At
	// least one, but with Control.
	Pools []Pool
	// Routes are tried in order. Default: every path leads to the first pool,
	// whose picker answers unknown paths with 404 itself.
	Routes []Route
	// BodyRouter is a payload processor (BBR) that sees every request before
	// the picker does and may set headers for Routes to match. Default none.
	BodyRouter *Processor
	Limits     Limits
	// AccessLog is the file that gets one JSON line per finished request, for
	// AccessLogTail. Default: access.log in the run's directory, and none in a
	// text that is only printed. NoAccessLog switches it off.
	AccessLog string
	// Workers is the number of Envoy's worker threads (a flag, not part of the
	// text). Default: as many as the machine has processors.
	Workers int
}

// NoAccessLog as Config.AccessLog saves Envoy the work of logging.
const NoAccessLog = "none"

// Pool is an InferencePool as the gateway sees it.
type Pool struct {
	// Name is a DNS label; clusters and statistics are named after it.
	Name string
	// Picker is the pool's endpoint picker (EPP); with RoundRobin there is none.
	Picker Processor
	// FailureMode is what happens when the picker is gone. Default FailClose.
	FailureMode FailureMode
	// Routing is how Envoy gets from the picker's answer to a connection.
	// Default OriginalDst, or OverrideHost when FailureMode is FailOpen.
	Routing Routing
	// Endpoints are the pool's model servers, ip:port. OverrideHost and RoundRobin
	// route to these only; OriginalDst does not read them.
	Endpoints []string
	// EndpointsFile, without OriginalDst, is where Envoy reads the endpoints
	// from (an absolute path ending in .yaml) and watches for changes; Start
	// writes Endpoints there, and WriteEndpoints changes them. Default: the
	// endpoints are fixed in the text.
	EndpointsFile string
	// HealthPath, without OriginalDst, is a path of the model servers that Envoy
	// itself checks, so that a plain request (FailOpen) goes to a ready one.
	// Default: not checked.
	HealthPath string
	// Protocol is what the model servers speak. Default HTTP1.
	Protocol Protocol
	// ConnectTimeout to a model server. Default 5 s.
	ConnectTimeout time.Duration
	// Retry is what Envoy does when an attempt fails. Default: nothing.
	Retry *Retry
}

// Processor is an ext_proc server: an endpoint picker or a payload processor.
type Processor struct {
	// Addresses are where its gRPC service listens, host:port. At least one.
	Addresses []string
	// TLS to the service. Default nil: plain text. Today's EPP serves TLS with
	// a certificate of its own making unless told otherwise.
	TLS *TLS
	// Mode is what the service is shown of a message. Default FullDuplex.
	Mode Mode
	// Responses, if not empty, is what it is shown of a response's body instead:
	// FullDuplex, Streamed, Buffered or HeadersOnly.
	Responses Mode
	// MessageTimeout bounds one answer in Buffered mode. Default 1000 s;
	// document 003 (docs/documents.md) has 100 ms. It never fires in FullDuplex mode.
	MessageTimeout time.Duration
	// HealthInterval is how often Envoy asks for the service's gRPC health,
	// and so how soon FailOpen takes effect. Checks are made where Envoy has a
	// choice to make (FailOpen, or several addresses). Default 500 ms.
	HealthInterval time.Duration
	// HealthService is the name asked for. Default
	// envoy.service.ext_proc.v3.ExternalProcessor.
	HealthService string
}

// TLS is how a Processor is reached securely.
type TLS struct {
	// CAFile verifies the certificate. Empty accepts any, as for the EPP's
	// self-signed one.
	CAFile string
	// ServerName is sent and, with CAFile, verified.
	ServerName string
}

// FailureMode is an InferencePool's endpointPickerRef.failureMode.
type FailureMode string

// The two failure modes of the InferencePool API.
const (
	FailClose FailureMode = "FailClose" // no picker, no service: 503
	FailOpen  FailureMode = "FailOpen"  // no picker, plain service by any endpoint
)

// Routing is a way from the picker's answer to a connection.
type Routing string

const (
	// OriginalDst connects to whatever address the destination header names,
	// as the llm-d charts do.
	OriginalDst Routing = "original-dst"
	// OverrideHost connects to that address if it is one of the pool's
	// endpoints, else round robin: the fallback that FailOpen and retries on
	// another endpoint need.
	OverrideHost Routing = "override-host"
	// RoundRobin is a pool without a picker, as a plain Service is one: its endpoints by
	// turns, those that are well.
	RoundRobin Routing = "round-robin"
)

// Protocol is what a model server speaks on a plain-text connection.
type Protocol string

// The protocols, named as in an InferencePool's appProtocol.
const (
	HTTP1 Protocol = "http"
	HTTP2 Protocol = "kubernetes.io/h2c"
)

// Mode is how much of a message an ext_proc server sees, and how.
type Mode string

const (
	// FullDuplex streams bodies both ways, as the held flow and today's EPP
	// need (FULL_DUPLEX_STREAMED).
	FullDuplex Mode = "full-duplex"
	// Buffered sends the whole request body at once and no response body, as
	// document 003 configures it. A request cannot be held.
	Buffered Mode = "buffered"
	// Streamed sends bodies piece by piece but waits for an answer to the
	// headers first, so the picker decides without having seen the body.
	Streamed Mode = "streamed"
	// HeadersOnly sends no bodies (NONE).
	HeadersOnly Mode = "headers-only"
)

// Route leads requests to a pool. Every condition that is set must hold.
type Route struct {
	// Path is the whole path, Prefix its beginning; at most one is set, and
	// neither means every path.
	Path, Prefix string
	// Headers must be there with exactly these values (keys in lower case).
	Headers map[string]string
	// Pool is the name of the pool, unless Status is set.
	Pool string
	// Status answers at once, without a picker or a pool, with Body.
	Status int
	Body   string
}

// Retry is a route's retry policy.
type Retry struct {
	// On lists Envoy's conditions. Default connect-failure, refused-stream,
	// reset and retriable-status-codes 503.
	On []string
	// StatusCodes are the codes for the condition retriable-status-codes.
	// Default 503.
	StatusCodes []uint32
	// Attempts in all, the first included. Default 3.
	Attempts int
	// BackOff before the first retry, doubled each time. Default 25 ms.
	BackOff time.Duration
}

// Limits bounds what one gateway takes on.
type Limits struct {
	// InFlight bounds connections, waiting requests and active requests of
	// each cluster. Default 100,000: Envoy's own 1,024 turns held requests
	// into 503s, on the picker's cluster too.
	InFlight int
	// BodyBytes is the largest request body that is to be served. The picker
	// enforces it; here it sizes the buffers (for Buffered, and for retries,
	// which send the body again). Default 4 MiB.
	BodyBytes int
	// BodyTime is the longest that a request's body may be on its way. The picker
	// enforces it; Envoy's own limit on a request, which counts a hold, too, is
	// set above both. Default 5 minutes.
	BodyTime time.Duration
	// Hold is the longest that a request may wait for its first token. The
	// picker enforces it; Envoy's idle timeouts are set above it. Default
	// 10 minutes.
	Hold time.Duration
}

// requestTimeout is when Envoy gives up on a request that is not whole: the
// backstop for pickers that let bodies trickle.
func (l Limits) requestTimeout() time.Duration { return l.idleTimeout() + l.BodyTime }

// headersTimeout is when Envoy gives up on a request whose head is not whole.
const headersTimeout = time.Minute

// idleTimeout is when Envoy gives up on a request where nothing moves: later
// than the picker's own deadline, which gives the better answer.
func (l Limits) idleTimeout() time.Duration {
	return l.Hold + min(max(l.Hold/10, 2*time.Second), 30*time.Second)
}
