// Package trace makes OpenTelemetry spans of flow events: what Of says of a request is
// what the real parts would have sent to a collector, with their names of spans and
// attributes. docs/traces.md lists them.
//
// It also writes them as other tools read them: Perfetto's native format, Chrome's JSON,
// and a sequence diagram in Mermaid. Nothing here has a clock or a socket; live/otlp sends.
package trace

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// TraceID and SpanID are as in W3C Trace Context.
type (
	TraceID = tracing.TraceID
	SpanID  = tracing.SpanID
)

// Kind is the kind of a span, with the numbers of OTLP.
type Kind int

// The kinds that parts of the flow use.
const (
	Internal Kind = 1
	ServerOf Kind = 2
	ClientOf Kind = 3
)

// Part is who sent a span: the resource.
type Part struct {
	// Service is service.name: windtunnel for the client, else what llm-d's charts and
	// guides call the part.
	Service string
	// Instance is service.instance.id: the endpoint of a sidecar or model server, the
	// replica of a picker.
	Instance string
}

// Attribute is a named value: a string, bool, int, float64, []string or []float64.
type Attribute = record.Detail

// Mark is an event of a span.
type Mark struct {
	At         machine.Time
	Name       string
	Attributes []Attribute
}

// Span is what a part tells of its work on a request.
type Span struct {
	Trace      TraceID
	ID, Parent SpanID // Parent is zero where it begins the trace
	Name       string
	Kind       Kind
	Part       Part
	Scope      string // instrumentation scope
	// Start and End are since the run began.
	Start, End machine.Time
	Attributes []Attribute
	Marks      []Mark
	// Error says why it failed, empty where it did not.
	Error string
	// Request is whose it is.
	Request string
}

// Options say who traces besides the endpoint picker, the sidecar and the model
// servers: that decides who is whose parent.
type Options struct {
	// Salt keeps runs apart in one collector: the same request of two runs has the same
	// ids if it is the same.
	Salt uint64
	// UntracedClient sends no traceparent.
	UntracedClient bool
	// Gateway adds Envoy's spans. Its context reaches the picker in gRPC's metadata
	// only, which the picker does not read, and overwrites the picker's on the way to the
	// model server.
	Gateway bool
	// Egress gives Envoy a span for each try (spawn_upstream_span), the parent of what
	// is behind it. It needs Gateway.
	Egress bool
}

func (o Options) trace(request, which string) TraceID {
	return (&tracing.IDs{Salt: o.Salt}).Trace(request, which)
}

func (o Options) span(request, which string) SpanID {
	return (&tracing.IDs{Salt: o.Salt}).Span(request, which)
}
