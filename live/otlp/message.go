package otlp

import (
	"fmt"
	"strings"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report/trace"
)

// resourceSpans groups spans by their part and scope.
func (x *Exporter) resourceSpans(spans []trace.Span) (out []*tracepb.ResourceSpans) {
	type scope struct {
		part trace.Part
		name string
	}
	resources := map[trace.Part]*tracepb.ResourceSpans{}
	scopes := map[scope]*tracepb.ScopeSpans{}
	for i := range spans {
		s := &spans[i]
		r := resources[s.Part]
		if r == nil {
			r = &tracepb.ResourceSpans{Resource: &resourcepb.Resource{Attributes: x.resource(s.Part)}}
			resources[s.Part] = r
			out = append(out, r)
		}
		k := scope{s.Part, s.Scope}
		if scopes[k] == nil {
			scopes[k] = &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: s.Scope}}
			r.ScopeSpans = append(r.ScopeSpans, scopes[k])
		}
		scopes[k].Spans = append(scopes[k].Spans, x.span(s))
	}
	return out
}

func (x *Exporter) resource(p trace.Part) []*commonpb.KeyValue {
	list := []trace.Attribute{{Key: "service.name", Value: p.Service}}
	if p.Instance != "" {
		list = append(list, trace.Attribute{Key: "service.instance.id", Value: p.Instance})
	}
	for _, a := range x.o.Attributes {
		if a[0] == "service.name" || a[0] == "service.instance.id" {
			continue // a value for all parts would mix them up
		}
		list = append(list, trace.Attribute{Key: a[0], Value: a[1]})
	}
	return attributes(list)
}

func (x *Exporter) at(t machine.Time) uint64 {
	return uint64(max(0, x.o.Start.UnixNano()+int64(t))) //nolint:gosec // not below 0
}

func (x *Exporter) span(s *trace.Span) *tracepb.Span {
	out := &tracepb.Span{TraceId: s.Trace[:], SpanId: s.ID[:], Name: strings.ToValidUTF8(s.Name, "�"),
		Kind: kinds[s.Kind], StartTimeUnixNano: x.at(s.Start), EndTimeUnixNano: x.at(s.End),
		Attributes: attributes(s.Attributes), Flags: 1}
	if s.Parent != (trace.SpanID{}) {
		out.ParentSpanId = s.Parent[:]
	}
	for _, m := range s.Marks {
		out.Events = append(out.Events,
			&tracepb.Span_Event{TimeUnixNano: x.at(m.At), Name: m.Name, Attributes: attributes(m.Attributes)})
	}
	if s.Error != "" {
		out.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR,
			Message: strings.ToValidUTF8(s.Error, "�")}
	}
	return out
}

var kinds = map[trace.Kind]tracepb.Span_SpanKind{
	trace.Internal: tracepb.Span_SPAN_KIND_INTERNAL, trace.ServerOf: tracepb.Span_SPAN_KIND_SERVER,
	trace.ClientOf: tracepb.Span_SPAN_KIND_CLIENT,
}

func attributes(list []trace.Attribute) []*commonpb.KeyValue {
	var out []*commonpb.KeyValue
	for _, a := range list {
		out = append(out, &commonpb.KeyValue{Key: strings.ToValidUTF8(a.Key, "�"), Value: value(a.Value)})
	}
	return out
}

func value(v any) *commonpb.AnyValue {
	switch v := v.(type) {
	case bool:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}
	case int:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(v)}}
	case float64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v}}
	case []string:
		return array(v)
	case []float64:
		return array(v)
	}
	return &commonpb.AnyValue{
		Value: &commonpb.AnyValue_StringValue{StringValue: strings.ToValidUTF8(fmt.Sprint(v), "�")}}
}

func array[T any](list []T) *commonpb.AnyValue {
	out := &commonpb.ArrayValue{}
	for _, v := range list {
		out.Values = append(out.Values, value(v))
	}
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: out}}
}
