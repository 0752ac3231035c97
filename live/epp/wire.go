package epp

import (
	"strings"
	"sync"
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
func (c *served) input(in *extprocv3.ProcessingRequest) {
	if in.ProtocolConfig != nil {
		c.modes = stream.Modes{Request: modeOf(in.ProtocolConfig.RequestBodyMode), Response: modeOf(in.ProtocolConfig.ResponseBodyMode)}
	}
	switch m := in.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		c.tell(stream.Message{Kind: stream.Headers, Modes: c.modes, Head: headersOf(m.RequestHeaders.GetHeaders()), End: m.RequestHeaders.EndOfStream})
	case *extprocv3.ProcessingRequest_RequestBody:
		if in.MetadataContext != nil { // the real EPP reads the subset hint from there, and only there
			c.machine.Subset(subsetOf(in.MetadataContext.FilterMetadata))
		}
		c.tell(stream.Message{Kind: stream.Body, Body: m.RequestBody.Body, End: m.RequestBody.EndOfStream})
	case *extprocv3.ProcessingRequest_RequestTrailers:
		c.tell(stream.Message{Kind: stream.Trailers})
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		c.machine.Served(servedBy(in.MetadataContext.GetFilterMetadata()))
		c.tell(stream.Message{Kind: stream.ResponseHeaders, Head: headersOf(m.ResponseHeaders.GetHeaders()), End: m.ResponseHeaders.EndOfStream})
	case *extprocv3.ProcessingRequest_ResponseBody:
		c.responsePiece(m.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		c.tell(stream.Message{Kind: stream.ResponseTrailers})
	}
}

// responsePiece plays a piece of the response and takes its figures.
func (c *served) responsePiece(m *extprocv3.HttpBody) {
	c.in = stream.Message{Kind: stream.ResponseBody, Body: m.Body, End: m.EndOfStream}
	c.drive.With(func(now machine.Time, fx *machine.Effects[stream.Effect]) {
		started := time.Now()
		c.machine.Input(now, &c.in, fx)
		if r := c.machine.Request(); r != nil && r.Response != nil && r.Decision != nil && len(m.Body) > 0 {
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

// output is an effect as a message to Envoy.
func (c *served) output(e *stream.Effect) *extprocv3.ProcessingResponse {
	switch {
	case e.Kind == stream.SendRequestBody && c.modes.Request == stream.FullDuplex:
		return c.piece(true, e)
	case e.Kind == stream.SendResponseBody && c.modes.Response == stream.FullDuplex:
		return c.piece(false, e)
	}
	out := &extprocv3.ProcessingResponse{DynamicMetadata: metadataOf(e.Metadata)}
	switch e.Kind {
	case stream.ContinueHeaders:
		out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
	case stream.SendRequestHeaders:
		out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: mutation(e.Set, e.Remove)}}}
	case stream.SendRequestBody:
		r := &extprocv3.CommonResponse{}
		if c.modes.Request == stream.Buffered {
			r = &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: mutation(e.Set, e.Remove), BodyMutation: replaced(e)}
		}
		out.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: r}}
	case stream.PassRequestTrailers:
		out.Response = &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}
	case stream.SendResponseHeaders:
		out.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{HeaderMutation: mutation(e.Set, e.Remove)}}}
	case stream.SendResponseBody:
		out.Response = &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: replaced(e)}}}
	case stream.PassResponseTrailers:
		out.Response = &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}
	case stream.SendAnswer:
		out.Response = &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(e.Answer.Status)}, Headers: mutation(e.Answer.Set, nil), Body: e.Answer.Body}}
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

// piece is a message with one piece of a body, in memory that is used again
// once it is sent: there is one for every piece of every response.
func (c *served) piece(request bool, e *stream.Effect) *extprocv3.ProcessingResponse {
	m := pieces.Get().(*pieceMessage)
	m.content.Body, m.content.EndOfStream = e.Body, e.End
	if m.message.Response = &m.response; request {
		m.message.Response = &m.request
	}
	m.message.DynamicMetadata = metadataOf(e.Metadata)
	c.lent = m
	return &m.message
}

// giveBack gives back what piece has lent.
func (c *served) giveBack() {
	if m := c.lent; m != nil {
		c.lent = nil
		m.content.Body, m.message.DynamicMetadata = nil, nil
		pieces.Put(m)
	}
}

// pieceMessage is all that a message with a piece of a body is made of.
type pieceMessage struct {
	message  extprocv3.ProcessingResponse
	request  extprocv3.ProcessingResponse_RequestBody
	response extprocv3.ProcessingResponse_ResponseBody
	body     extprocv3.BodyResponse
	common   extprocv3.CommonResponse
	mutation extprocv3.BodyMutation
	streamed extprocv3.BodyMutation_StreamedResponse
	content  extprocv3.StreamedBodyResponse
}

var pieces = sync.Pool{New: func() any {
	m := &pieceMessage{}
	m.request.RequestBody, m.response.ResponseBody = &m.body, &m.body
	m.body.Response, m.common.BodyMutation = &m.common, &m.mutation
	m.mutation.Mutation, m.streamed.StreamedResponse = &m.streamed, &m.content
	return m
}}

func mutation(set header.List, remove []string) *extprocv3.HeaderMutation {
	if len(set) == 0 && len(remove) == 0 {
		return nil
	}
	// A request's headers are all sent again, so there are a dozen or two: their
	// messages lie in one piece of memory, and their values in another.
	type header struct {
		option corev3.HeaderValueOption
		value  corev3.HeaderValue
	}
	headers, bytes := make([]header, len(set)), 0
	for i := range set {
		bytes += len(set[i].Value)
	}
	values := make([]byte, 0, bytes)
	m := &extprocv3.HeaderMutation{RemoveHeaders: remove, SetHeaders: make([]*corev3.HeaderValueOption, len(set))}
	for i := range set {
		h, from := &headers[i], len(values)
		values = append(values, set[i].Value...)
		h.value.Key, h.value.RawValue = set[i].Name, values[from:len(values):len(values)]
		h.option.Header, h.option.AppendAction = &h.value, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		m.SetHeaders[i] = &h.option
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
