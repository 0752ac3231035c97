// Package trace converts flow events to OpenTelemetry spans. Of returns the spans of a request that the real parts
// would send to a collector, with their names and attributes. docs/traces.md lists them.
//
// It also writes spans in the formats of other tools: Perfetto's native format, Chrome's JSON, and a sequence diagram
// in Mermaid. Nothing here has a clock or a socket; live/otlp sends spans.
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

// Part is the sender of a span, OpenTelemetry's resource.
type Part struct {
	// Service is service.name: windtunnel for the client, else the name in llm-d's charts and guides.
	Service string
	// Instance is service.instance.id: the endpoint of a sidecar or model server, or the replica of a picker.
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

// Span is a part's work on a request.
type Span struct {
	Trace      TraceID
	ID, Parent SpanID // Parent is zero for the first span of a trace
	Name       string
	Kind       Kind
	Part       Part
	Scope      string // instrumentation scope
	// Start and End are since the run began.
	Start, End machine.Time
	Attributes []Attribute
	Marks      []Mark
	// Error says why the work failed, empty if it did not.
	Error string
	// Request is the request's id.
	Request string
}

// Options say which parts send spans besides the endpoint picker, the sidecar and the model servers. They decide the
// parents of spans.
type Options struct {
	// Salt distinguishes runs in one collector. The same request of two runs with the same Salt has the same ids.
	Salt uint64
	// UntracedClient is a client that sends no traceparent.
	UntracedClient bool
	// Gateway adds Envoy's spans. Their context reaches the picker only in gRPC's metadata, which the picker does not
	// read, and overwrites the picker's context on the way to the model server.
	Gateway bool
	// Egress adds a span of Envoy for each try (spawn_upstream_span), the parent of all spans behind Envoy. It needs
	// Gateway.
	Egress bool
}

func (o Options) trace(request, which string) TraceID {
	return (&tracing.IDs{Salt: o.Salt}).Trace(request, which)
}

func (o Options) span(request, which string) SpanID {
	return (&tracing.IDs{Salt: o.Salt}).Span(request, which)
}
