// Package tracing implements W3C Trace Context (https://www.w3.org/TR/trace-context/) for all components, and the ids
// of spans. Ids are derived from the run, the request and the span's role. So the component that sends a request and
// the one that reports it derive the same ids without communication.
package tracing

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// Header is the name of the header that carries a Context.
const Header = "traceparent"

// TraceID and SpanID are as in W3C Trace Context.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// Context names the trace to which a request belongs and the span that sent it.
type Context struct {
	Trace   TraceID
	Span    SpanID
	Sampled bool
}

// Parse parses a traceparent. It returns false for an invalid one, which counts as absent. Of unknown versions it reads
// the known part, as the standard demands.
func Parse(text string) (c Context, ok bool) {
	parts := strings.SplitN(strings.TrimSpace(text), "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 ||
		len(parts[3]) != 2 || strings.ToLower(text) != text {
		return c, false
	}
	var version, flags [1]byte
	for i, into := range [][]byte{version[:], c.Trace[:], c.Span[:], flags[:]} {
		if len(parts[i]) != 2*len(into) {
			return Context{}, false
		}
		if _, err := hex.Decode(into, []byte(parts[i])); err != nil {
			return Context{}, false
		}
	}
	c.Sampled = flags[0]&1 == 1
	return c, c.Trace != TraceID{} && c.Span != SpanID{}
}

// String returns the traceparent.
func (c Context) String() string {
	flags := "00"
	if c.Sampled {
		flags = "01"
	}
	return "00-" + hex.EncodeToString(c.Trace[:]) + "-" + hex.EncodeToString(c.Span[:]) + "-" + flags
}

// IDs derives the ids of a run's traces and spans. A component that does not trace has a nil IDs.
type IDs struct {
	// Salt separates runs: equal requests of two runs have equal ids only if it is equal.
	Salt uint64
	// Share is the sampled share of the traces that begin here, from 0 to 1.
	Share float64
}

// Trace returns the id of a trace that a request begins. which names the component that begins it, for example the
// client.
func (i *IDs) Trace(request, which string) (id TraceID) {
	copy(id[:], i.hash("trace", request, which))
	return id
}

// Span returns the id of one of a request's spans, by the span's key.
func (i *IDs) Span(request, key string) (id SpanID) {
	copy(id[:], i.hash("span", request, key))
	return id
}

// Sampled decides like OpenTelemetry's traceidratio, by the low half of the id.
func (i *IDs) Sampled(id TraceID) bool {
	return i.Share >= 1 || float64(binary.BigEndian.Uint64(id[8:])>>1) < i.Share*(1<<63)
}

// Next returns the traceparent that the component with the span of this key sends on. It continues the incoming trace,
// or begins the request's trace where none came in.
func (i *IDs) Next(in, request, key string) string {
	c, ok := Parse(in)
	if !ok {
		c.Trace = i.Trace(request, Client)
		c.Sampled = i.Sampled(c.Trace)
	}
	c.Span = i.Span(request, key)
	return c.String()
}

func (i *IDs) hash(parts ...string) []byte {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, i.Salt)) // a hash's Write never fails
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return h.Sum(nil)
}

// Client is the key of the client's span, and names the trace that a client begins.
const Client = "client"

// Gateway returns the key of the span that a picker has for one attempt of a request.
func Gateway(attempt int) string { return try(attempt) + "epp/gateway.request" }

// Leg returns the key of the HTTP request that a sidecar sends as its leg of this number, from 0, in one attempt of a
// request.
func Leg(attempt, number int) string {
	return try(attempt) + "leg/" + strconv.Itoa(number) + "/http"
}

func try(attempt int) string { return strconv.Itoa(max(attempt, 1)) + "/" }
