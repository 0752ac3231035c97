package epp

import (
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/stream"
)

// Metadata is Envoy's filter metadata by namespace; nil where it sent none.
type Metadata map[string]*structpb.Struct

// input plays one message of Envoy into the machine.
func (c *conversation) input(in *extprocv3.ProcessingRequest) []stream.Effect {
	now := c.s.o.Now()
	if in.ProtocolConfig != nil {
		c.modes = stream.Modes{Request: modeOf(in.ProtocolConfig.RequestBodyMode), Response: modeOf(in.ProtocolConfig.ResponseBodyMode)}
	}
	switch m := in.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return c.machine.Headers(now, c.modes, headersOf(m.RequestHeaders.GetHeaders()), m.RequestHeaders.EndOfStream)
	case *extprocv3.ProcessingRequest_RequestBody:
		c.subset(in)
		return c.machine.Body(now, m.RequestBody.Body, m.RequestBody.EndOfStream)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return c.machine.Trailers(now)
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		c.respHead, c.respMeta = headersOf(m.ResponseHeaders.GetHeaders()), in.MetadataContext.GetFilterMetadata()
		return c.machine.ResponseHeaders(now, c.respHead, m.ResponseHeaders.EndOfStream)
	case *extprocv3.ProcessingRequest_ResponseBody:
		return c.machine.ResponseBody(now, m.ResponseBody.Body, m.ResponseBody.EndOfStream)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return c.machine.ResponseTrailers(now)
	}
	return nil
}

// subset keeps the metadata of the last body message that had any: the real
// EPP reads the subset hint from there, and only there.
func (c *conversation) subset(in *extprocv3.ProcessingRequest) {
	if in.MetadataContext != nil {
		c.request.Metadata = in.MetadataContext.FilterMetadata
	}
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

// output is an effect as messages to Envoy: one, unless a piece of a response
// is held back or too long for one.
func (c *conversation) output(e *stream.Effect) []*extprocv3.ProcessingResponse {
	if e.Kind == stream.SendResponseBody {
		return c.responseBody(e)
	}
	if e.Kind == stream.SendRequestBody && c.modes.Request == stream.FullDuplex {
		return c.alone(c.piece(true, e.Body, e.End))
	}
	out := &extprocv3.ProcessingResponse{}
	switch e.Kind {
	case stream.ContinueHeaders:
		out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
	case stream.SendRequestHeaders:
		out.DynamicMetadata = metadataOf(e.Metadata)
		out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: mutation(e.Set, e.Remove)}}}
	case stream.SendRequestBody:
		out.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: c.requestBody(e, out)}}
	case stream.PassRequestTrailers:
		out.Response = &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}
	case stream.SendResponseHeaders:
		set, remove := e.Set, e.Remove
		if u, ok := c.s.o.Director.(undecider); ok && c.exchange == nil {
			c.exchange = u.Undecided()
		}
		if r, ok := c.exchange.(servedReader); ok {
			r.ResponseMetadata(c.respMeta)
		}
		if c.exchange != nil {
			set = append(set[:len(set):len(set)], c.exchange.ResponseHeaders(c.respHead)...)
		}
		if r, ok := c.exchange.(remover); ok {
			remove = append(remove[:len(remove):len(remove)], r.ResponseRemove()...)
		}
		out.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{HeaderMutation: mutation(set, remove)}}}
	case stream.PassResponseTrailers:
		out.Response = &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}
	case stream.SendAnswer:
		out.Response = &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(e.Answer.Status)}, Headers: mutation(e.Answer.Set, nil), Body: e.Answer.Body}}
	}
	return c.alone(out)
}

// alone is the list of one message; the next call overwrites it.
func (c *conversation) alone(out *extprocv3.ProcessingResponse) []*extprocv3.ProcessingResponse {
	c.list[0] = out
	return c.list[:]
}

// piece is a message with one piece of a body, in memory that is used again
// once it is sent: there is one for every piece of every response.
func (c *conversation) piece(request bool, body []byte, end bool) *extprocv3.ProcessingResponse {
	m := pieces.Get().(*pieceMessage)
	m.content.Body, m.content.EndOfStream = body, end
	if m.message.Response = &m.response; request {
		m.message.Response = &m.request
	}
	c.lent = m
	return &m.message
}

// sent gives back what piece has lent.
func (c *conversation) sent() {
	c.list[0] = nil
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

func (c *conversation) requestBody(e *stream.Effect, out *extprocv3.ProcessingResponse) *extprocv3.CommonResponse {
	switch c.modes.Request {
	case stream.Buffered:
		out.DynamicMetadata = metadataOf(e.Metadata)
		r := &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: mutation(e.Set, e.Remove)}
		if e.Replace {
			r.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: e.Body}}
		}
		return r
	}
	return &extprocv3.CommonResponse{}
}

func (c *conversation) responseBody(e *stream.Effect) []*extprocv3.ProcessingResponse {
	body, meta := e.Body, any(nil)
	held := false
	if c.exchange != nil {
		body, meta = c.exchange.ResponseBody(e.Body, e.End)
		held = body == nil && !e.End && len(e.Body) > 0
	}
	message := func(r *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{Response: r}}}
	}
	var out []*extprocv3.ProcessingResponse
	switch c.modes.Response {
	case stream.Buffered, stream.Streamed: // one answer for each message
		r := &extprocv3.CommonResponse{}
		if c.exchange != nil && string(body) != string(e.Body) {
			r.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}}
		}
		out = append(out, message(r))
	default:
		if held {
			return nil
		}
		for len(body) > stream.MaxChunkBytes {
			out = append(out, message(&extprocv3.CommonResponse{BodyMutation: streamed(body[:stream.MaxChunkBytes], false)}))
			body = body[stream.MaxChunkBytes:]
		}
		if last := c.piece(false, body, e.End); len(out) == 0 {
			out = c.alone(last)
		} else {
			out = append(out, last)
		}
	}
	out[len(out)-1].DynamicMetadata = metadataOf(meta)
	return out
}

func streamed(body []byte, end bool) *extprocv3.BodyMutation {
	return &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: body, EndOfStream: end}}}
}

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

func metadataOf(v any) *structpb.Struct {
	s, _ := v.(*structpb.Struct)
	return s
}
