package epp

import (
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/stream"
)

// input plays one message of Envoy into the machine.
func (c *served) input(in *incoming) {
	if in.configured {
		c.modes = in.modes
	}
	if !in.known {
		return
	}
	switch in.kind {
	case stream.Body:
		if in.described { // the real EPP reads the subset hint from there, and only there
			c.machine.Subset(in.subset, in.hinted)
		}
	case stream.ResponseHeaders:
		c.machine.Served(in.served)
	}
	// Field by field: a message is large, and a literal would be copied.
	c.in = stream.Message{}
	c.in.Kind, c.in.Modes, c.in.Head, c.in.Body, c.in.End = in.kind, c.modes, in.head, in.body, in.end
	if in.kind == stream.ResponseHeaders || in.kind == stream.ResponseBody {
		c.response()
		return
	}
	c.drive.Input(&c.in)
}

// take is what read makes of a message, of one that the library has read.
func (in *incoming) take(m *extprocv3.ProcessingRequest) {
	metadata := m.MetadataContext.GetFilterMetadata()
	*in = incoming{known: true, described: m.MetadataContext != nil, served: servedBy(metadata)}
	in.subset, in.hinted = subsetOf(metadata)
	if m.ProtocolConfig != nil {
		in.configured, in.modes = true,
			stream.Modes{Request: modeOf(m.ProtocolConfig.RequestBodyMode),
				Response: modeOf(m.ProtocolConfig.ResponseBodyMode)}
	}
	switch x := m.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		in.kind, in.head, in.end = stream.Headers, headersOf(x.RequestHeaders.GetHeaders()),
			x.RequestHeaders.GetEndOfStream()
	case *extprocv3.ProcessingRequest_RequestBody:
		in.kind, in.body, in.end = stream.Body, x.RequestBody.GetBody(), x.RequestBody.GetEndOfStream()
	case *extprocv3.ProcessingRequest_RequestTrailers:
		in.kind = stream.Trailers
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		in.kind, in.head, in.end = stream.ResponseHeaders, headersOf(x.ResponseHeaders.GetHeaders()),
			x.ResponseHeaders.GetEndOfStream()
	case *extprocv3.ProcessingRequest_ResponseBody:
		in.kind, in.body, in.end = stream.ResponseBody, x.ResponseBody.GetBody(), x.ResponseBody.GetEndOfStream()
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		in.kind = stream.ResponseTrailers
	default:
		in.known = false
	}
}

// response plays a part of the response and takes its metrics.
func (c *served) response() {
	c.drive.With(func(now machine.Time, fx *machine.Effects[stream.Effect]) {
		started := time.Now()
		c.machine.Input(now, &c.in, fx)
		if r := c.machine.Request(); r != nil && r.Response != nil && r.Decision != nil && len(c.in.Body) > 0 {
			if c.lastAt > 0 {
				c.k.o.Metrics.piece(r, (now - c.lastAt).Duration())
			}
			c.lastAt = now
		}
		c.spent += time.Since(started)
	})
}

// subsetOf reads the subset hint: a list of "ip:port". A string in its place
// is no hint; what is no string in the list matches nothing.
func subsetOf(m map[string]*structpb.Struct) (addresses []string, hinted bool) {
	list, ok := m[picker.NamespaceSubset].GetFields()[picker.KeySubset].GetKind().(*structpb.Value_ListValue)
	if !ok {
		return nil, false
	}
	for _, e := range list.ListValue.GetValues() {
		if s, ok := e.GetKind().(*structpb.Value_StringValue); ok {
			addresses = append(addresses, s.StringValue)
		}
	}
	return addresses, true
}

// servedBy reads which endpoint Envoy says has served the request.
func servedBy(m map[string]*structpb.Struct) (s picker.Served) {
	lb, told := m[picker.NamespaceLB]
	endpoint, known := lb.GetFields()[picker.KeyServed].GetKind().(*structpb.Value_StringValue)
	s.Told, s.Known = told, known
	if known {
		s.Endpoint = endpoint.StringValue
	}
	return s
}

func modeOf(m filterv3.ProcessingMode_BodySendMode) stream.BodyMode {
	switch m {
	case filterv3.ProcessingMode_NONE:
		return stream.NoBody
	case filterv3.ProcessingMode_STREAMED:
		return stream.Streamed
	case filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_BUFFERED_PARTIAL:
		return stream.Buffered
	}
	return stream.FullDuplex
}

func headersOf(m *corev3.HeaderMap) header.List {
	head := make(header.List, 0, len(m.GetHeaders()))
	for _, h := range m.GetHeaders() {
		v := h.Value
		if len(h.RawValue) > 0 {
			v = string(h.RawValue)
		}
		head = append(head, header.Header{Name: strings.ToLower(h.Key), Value: v})
	}
	return head
}

// message is an effect as the library's message to Envoy, whatever it is.
func (o *outgoing) message() *extprocv3.ProcessingResponse {
	e := o.Effect
	out := &extprocv3.ProcessingResponse{DynamicMetadata: metadataOf(e.Metadata)}
	switch e.Kind {
	case stream.ContinueHeaders:
		out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
	case stream.SendRequestHeaders:
		out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: mutation(e.Set, e.Remove)}}}
	case stream.SendRequestBody:
		r := &extprocv3.CommonResponse{}
		switch o.modes.Request {
		case stream.FullDuplex:
			r.BodyMutation = streamed(e)
		case stream.Buffered:
			r = &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: mutation(e.Set, e.Remove),
				BodyMutation: replaced(e)}
		}
		out.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: r}}
	case stream.PassRequestTrailers:
		out.Response = &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}
	case stream.SendResponseHeaders:
		out.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{HeaderMutation: mutation(e.Set, e.Remove)}}}
	case stream.SendResponseBody:
		m := replaced(e)
		if o.modes.Response == stream.FullDuplex {
			m = streamed(e)
		}
		out.Response = &extprocv3.ProcessingResponse_ResponseBody{
			ResponseBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: m}}}
	case stream.PassResponseTrailers:
		out.Response = &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}
	case stream.SendAnswer:
		out.Response = &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(e.Answer.Status)}, Headers: mutation(e.Answer.Set, nil),
			Body: e.Answer.Body}}
	}
	return out
}

// replaced is a body in place of the one that came, nil where that stays.
func replaced(e *stream.Effect) *extprocv3.BodyMutation {
	if !e.Replace {
		return nil
	}
	return &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: e.Body}}
}

// streamed is a piece of a body that has no other limits than its own.
func streamed(e *stream.Effect) *extprocv3.BodyMutation {
	return &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: e.Body, EndOfStream: e.End}}}
}

func mutation(set header.List, remove []string) *extprocv3.HeaderMutation {
	if len(set) == 0 && len(remove) == 0 {
		return nil
	}
	m := &extprocv3.HeaderMutation{RemoveHeaders: remove}
	for _, h := range set {
		m.SetHeaders = append(m.SetHeaders,
			&corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: h.Name, RawValue: []byte(h.Value)},
				AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD})
	}
	return m
}

// metadataOf is dynamic metadata as Envoy takes it; nil where there is none.
func metadataOf(m stream.Metadata) *structpb.Struct {
	if len(m) == 0 {
		return nil
	}
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(m))}
	for namespace, values := range m {
		inner := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(values))}
		for k, v := range values {
			if value, err := structpb.NewValue(v); err == nil {
				inner.Fields[k] = value
			}
		}
		out.Fields[namespace] = structpb.NewStructValue(inner)
	}
	return out
}
