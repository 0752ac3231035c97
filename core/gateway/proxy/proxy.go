package proxy

import (
	"cmp"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
)

const (
	// ConnectTimeout limits the time to set up a connection to a model server or a picker.
	ConnectTimeout = 5 * time.Second
	// HeadersTimeout limits the time for the head of a request. Envoy has no such limit by default.
	HeadersTimeout = time.Minute
	// HealthInterval is the time between two health checks of a picker. FailOpen takes effect within that time.
	HealthInterval = 500 * time.Millisecond
	// AnswerTimeout limits an answer of a picker that has no other limit. It does not apply to full-duplex bodies.
	AnswerTimeout = 1000 * time.Second
	// DelayedClose is the time between an answer that is cut short and the end of the client's HTTP/1.1 connection, by
	// which the client notices it (Envoy's delayed_close_timeout).
	DelayedClose = time.Second

	// StreamsPerConnection is the number of requests that share an HTTP/2 connection, on every side. Higher values
	// fail. Envoy assumes its own setting until a server has announced its limit on a new connection. With the default
	// of 1,024, a burst exceeded Go's limit of 250, and the server refused the rest (503). Envoy closed a client's
	// connection with 10,000 held requests as a flood when all of them were answered at once. Every peer must be
	// expected to allow 100 (RFC 9113, 6.5.2), and gateways usually do.
	StreamsPerConnection = 100
	// BufferBytes is Envoy's default buffer limit for one connection.
	BufferBytes = 1 << 20
)

// Limits are the limits of one gateway.
type Limits struct {
	// InFlight limits connections, waiting requests and active requests of each cluster. The default is 100,000:
	// Envoy's own 1,024 turns held requests into 503s, on the picker's cluster too.
	InFlight int
	// BodyBytes is the size of the largest request body to serve. The picker enforces it. Here it sizes the buffers for
	// bodies that the picker gets whole, and for retries, which send the body again. The default is 4 MiB.
	BodyBytes int
	// BodyTime limits the time for a request's body. The picker enforces it. Envoy's own limit on a request, which
	// includes the hold, is above both. The default is 5 minutes.
	BodyTime time.Duration
	// Hold limits the time that a request may wait for its first token. The picker enforces it. Envoy's idle timeouts
	// are above it. The default is 10 minutes.
	Hold time.Duration
}

// WithDefaults returns the limits with every default filled in.
func (l Limits) WithDefaults() Limits {
	return Limits{cmp.Or(l.InFlight, 100_000), cmp.Or(l.BodyBytes, 4<<20), cmp.Or(l.BodyTime, 5*time.Minute),
		cmp.Or(l.Hold, 10*time.Minute)}
}

// IdleTimeout is the time after which Envoy gives up an idle request. It is later than the picker's own deadline, which
// gives the better answer.
func (l Limits) IdleTimeout() time.Duration {
	return l.Hold + min(max(l.Hold/10, 2*time.Second), 30*time.Second)
}

// RequestTimeout is the time after which Envoy gives up an incomplete request. It protects against pickers that let
// bodies arrive too slowly.
func (l Limits) RequestTimeout() time.Duration { return l.IdleTimeout() + l.BodyTime }

// ResendBytes is how much of a request Envoy keeps where it may send it again. Part 1 of a held request is slightly
// longer than the client's body.
func (l Limits) ResendBytes() int { return max(BufferBytes, l.BodyBytes+64<<10) }

// WholeBytes is the buffer limit of a connection where a picker gets whole bodies. Envoy answers a larger body with
// 413.
func (l Limits) WholeBytes() int { return max(BufferBytes, l.BodyBytes) }

// Modes returns which parts of requests and responses Envoy sends to a picker.
func Modes(a gateway.Asking) stream.Modes {
	shown := map[gateway.Body]stream.BodyMode{gateway.BodyFullDuplex: stream.FullDuplex,
		gateway.BodyStreamed: stream.Streamed, gateway.BodyBuffered: stream.Buffered, gateway.BodyUnseen: stream.NoBody}
	return stream.Modes{Request: shown[a.Request], Response: shown[a.Responses()]}
}

// AnswerLimit is how long Envoy waits for a picker's answer about a request; 0 is no limit.
func AnswerLimit(a gateway.Asking) machine.Time {
	if a.Request == gateway.BodyFullDuplex {
		return 0
	}
	return machine.FromDuration(a.Timeout)
}
