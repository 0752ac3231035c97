// Package tracing has W3C Trace Context (https://www.w3.org/TR/trace-context/) as the parts
// read it and hand it on, and the ids of spans. Ids are made of the run, the request and
// what the span is, so that who sends a request and who tells of it come to the same ones
// without asking each other.
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

// Context says which trace a request belongs to, and which span sent it.
type Context struct {
	Trace   TraceID
	Span    SpanID
	Sampled bool
}

// Parse reads a traceparent; false for what is none, which counts as if there were none.
// Of versions that are not known yet the known part is read, as the standard asks for.
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

// IDs make the ids of a run's traces and spans. A nil IDs is of a part that does not trace.
type IDs struct {
	// Salt keeps runs apart: the same request of two runs has the same ids if it is the
	// same.
	Salt uint64
	// Share of the traces that begin here is sampled, from 0 to 1.
	Share float64
}

// Trace returns the id of a trace that a request begins: that of its client, or of another
// part which.
func (i *IDs) Trace(request, which string) (id TraceID) {
	copy(id[:], i.hash("trace", request, which))
	return id
}

// Span returns the id of one of a request's spans, by its key.
func (i *IDs) Span(request, key string) (id SpanID) {
	copy(id[:], i.hash("span", request, key))
	return id
}

// Sampled decides as OpenTelemetry's traceidratio does, by the low half of the id.
func (i *IDs) Sampled(id TraceID) bool {
	return i.Share >= 1 || float64(binary.BigEndian.Uint64(id[8:])>>1) < i.Share*(1<<63)
}

// Next returns the traceparent that a part hands on whose span has this key: it continues the
// one that came in, or begins the request's trace where none did.
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

// Client is the key of the client's span, and which trace it begins.
const Client = "client"

// Gateway returns the key of the span that a picker has for a try of a request.
func Gateway(attempt int) string { return try(attempt) + "epp/gateway.request" }

// Leg returns the key of the HTTP request that a sidecar sends as its leg of this number, from
// 0, in a try of a request.
func Leg(attempt, number int) string {
	return try(attempt) + "leg/" + strconv.Itoa(number) + "/http"
}

func try(attempt int) string { return strconv.Itoa(max(attempt, 1)) + "/" }
