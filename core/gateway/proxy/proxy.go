package proxy

import (
	"cmp"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
)

const (
	// ConnectTimeout bounds how long a connection to a model server or a picker may take.
	ConnectTimeout = 5 * time.Second
	// HeadersTimeout bounds how long the head of a request may take. Envoy has no such limit by default.
	HeadersTimeout = time.Minute
	// HealthInterval is the time between two health checks of a picker, and so how soon FailOpen takes effect.
	HealthInterval = 500 * time.Millisecond
	// AnswerTimeout bounds an answer of a picker that nothing else bounds. It does not apply to full-duplex bodies.
	AnswerTimeout = 1000 * time.Second
	// DelayedClose is the time from an answer that is cut short to the end of the client's HTTP/1.1 connection, by
	// which the client learns of it (Envoy's delayed_close_timeout).
	DelayedClose = time.Second

	// StreamsPerConnection is how many requests share an HTTP/2 connection, on every side. More of them fail: until a
	// new connection to a server has said how many it allows, Envoy counts on its own setting, and with the default
	// of 1,024 a burst met Go's limit of 250 and the rest were refused (503). A client's connection with 10,000 held
	// requests was closed as a flood when all of them were answered at once. Every peer must be expected to allow 100
	// (RFC 9113, 6.5.2), and gateways usually do.
	StreamsPerConnection = 100
	// BufferBytes is Envoy's own default for what it buffers of one connection.
	BufferBytes = 1 << 20
)

// Limits bound what one gateway takes on.
type Limits struct {
	// InFlight bounds connections, waiting requests and active requests of each cluster. Default 100,000: Envoy's own
	// 1,024 turns held requests into 503s, on the picker's cluster too.
	InFlight int
	// BodyBytes is the largest request body that is to be served. The picker enforces it; here it sizes the buffers
	// for bodies that are shown whole, and for retries, which send the body again. Default 4 MiB.
	BodyBytes int
	// BodyTime bounds how long a request's body may take. The picker enforces it; Envoy's own limit on a request,
	// which also counts a hold, is above both. Default 5 minutes.
	BodyTime time.Duration
	// Hold bounds how long a request may wait for its first token. The picker enforces it; Envoy's idle timeouts are
	// above it. Default 10 minutes.
	Hold time.Duration
}

// WithDefaults returns the limits with every default filled in.
func (l Limits) WithDefaults() Limits {
	return Limits{cmp.Or(l.InFlight, 100_000), cmp.Or(l.BodyBytes, 4<<20), cmp.Or(l.BodyTime, 5*time.Minute),
		cmp.Or(l.Hold, 10*time.Minute)}
}

// IdleTimeout is when Envoy gives up a request in which nothing moves: later than the picker's own deadline, which
// gives the better answer.
func (l Limits) IdleTimeout() time.Duration {
	return l.Hold + min(max(l.Hold/10, 2*time.Second), 30*time.Second)
}

// RequestTimeout is when Envoy gives up a request that is not whole: the backstop for pickers that let bodies trickle.
func (l Limits) RequestTimeout() time.Duration { return l.IdleTimeout() + l.BodyTime }

// ResendBytes is how much of a request Envoy keeps where it may send it again. Part 1 of a held request is somewhat
// longer than the client's body.
func (l Limits) ResendBytes() int { return max(BufferBytes, l.BodyBytes+64<<10) }

// WholeBytes is how much of a connection Envoy buffers where a picker is shown whole bodies. Envoy answers a larger
// one with 413.
func (l Limits) WholeBytes() int { return max(BufferBytes, l.BodyBytes) }

// Modes returns what Envoy shows a picker of requests and responses.
func Modes(a gateway.Asking) stream.Modes {
	shown := map[gateway.Body]stream.BodyMode{gateway.BodyFullDuplex: stream.FullDuplex,
		gateway.BodyStreamed: stream.Streamed, gateway.BodyBuffered: stream.Buffered, gateway.BodyUnseen: stream.NoBody}
	return stream.Modes{Request: shown[a.Request], Response: shown[a.Responses()]}
}

// AnswerLimit bounds how long Envoy waits for a picker's answer about a request; 0 does not.
func AnswerLimit(a gateway.Asking) machine.Time {
	if a.Request == gateway.BodyFullDuplex {
		return 0
	}
	return machine.FromDuration(a.Timeout)
}
