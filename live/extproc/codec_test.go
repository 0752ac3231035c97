package extproc

import (
	"reflect"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/wire/header"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // a tenth of the checks outside nightly runs
)

const hello = `{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}]}`

// messages returns messages that Envoy sends, and some that it does not send.
func messages(tb testing.TB) (out [][]byte) {
	metadata := &corev3.Metadata{
		FilterMetadata: map[string]*structpb.Struct{picker.NamespaceSubset: {Fields: map[string]*structpb.Value{
			picker.KeySubset: structpb.NewListValue(
				&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue("10.0.0.1:8000")}})}}}}
	lb := func(v *structpb.Value) *corev3.Metadata {
		return &corev3.Metadata{
			FilterMetadata: map[string]*structpb.Struct{"other": {},
				picker.NamespaceLB: {Fields: map[string]*structpb.Value{picker.KeyServed: v,
					"more": structpb.NewNumberValue(1)}}}}
	}
	config := &extprocv3.ProtocolConfiguration{RequestBodyMode: filterv3.ProcessingMode_BUFFERED,
		ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED}
	text := headMessage(":status", "200", "X-Upper", "raw", "x-latin", "\xff", "", "")
	text.Headers.Headers = append(text.Headers.Headers, &corev3.HeaderValue{Key: "x-text", Value: "ü"},
		&corev3.HeaderValue{Key: "x-both", Value: "a", RawValue: []byte("b")})
	text.EndOfStream = true
	for _, m := range []*extprocv3.ProcessingRequest{
		{},
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: headMessage(":method", "POST", ":path", "/v1/chat/completions", "x-request-id", "1")},
			ProtocolConfig: config},
		// NONE, NONE
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{}, ProtocolConfig: &extprocv3.ProtocolConfiguration{}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: bodyMessage(hello, true)},
			MetadataContext: metadata},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: bodyMessage("", false)},
			MetadataContext: &corev3.Metadata{}},
		{Request: &extprocv3.ProcessingRequest_RequestTrailers{
			RequestTrailers: &extprocv3.HttpTrailers{Trailers: text.Headers}}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: text}, MetadataContext: metadata,
			ObservabilityMode: true},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{
			ResponseBody: bodyMessage(strings.Repeat("x", 5000), false)}},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{
			ResponseBody: &extprocv3.HttpBody{EndOfStream: true, GrpcMessageCompressed: true}}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headMessage(":status", "200")},
			MetadataContext: lb(structpb.NewStringValue("10.0.0.1:8000"))},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headMessage(":status", "200")},
			MetadataContext: lb(structpb.NewBoolValue(true))},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, b)
	}
	// A message in place of another, a repeated message, a malformed one, and a header whose name is not text.
	return append(out, append(out[1][:len(out[1]):len(out[1])], out[3]...),
		append(out[1][:len(out[1]):len(out[1])], out[1]...), out[1][:20],
		[]byte("\x12\x09\x0a\x07\x0a\x05\x0a\x01\xff\x12\x00"))
}

// The codec and the library decode the same.
func FuzzIncoming(f *testing.F) {
	fast := 0
	for _, b := range messages(f) {
		f.Add(b)
		if new(In).read(b) {
			fast++
		}
	}
	if fast < 9 {
		f.Fatalf("only %d of Envoy's messages are read without the library", fast)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in, want In
		if !in.read(b) {
			return
		}
		var m extprocv3.ProcessingRequest
		if err := proto.Unmarshal(b, &m); err != nil {
			return // what windtunnel does not read is not decoded
		}
		usual, err := proto.Marshal(&m)
		if err != nil || !want.read(usual) {
			t.Fatalf("the library's form of it is not read: %v", err)
		}
		for _, x := range []*In{&in, &want} { // nil equals empty
			x.Body = append([]byte{}, x.Body...)
			x.Head = append(header.List{}, x.Head...)
			x.Subset = append([]string{}, x.Subset...)
		}
		if !reflect.DeepEqual(in, want) {
			t.Errorf("%+v, want %+v", in, want)
		}
	})
}

// What windtunnel reads of a message, whether Envoy sends it like that or the library must put it in the usual form.
func TestIncoming(t *testing.T) {
	body := func(namespace, key string, v *structpb.Value) *extprocv3.ProcessingRequest {
		return &extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: bodyMessage(hello, true)},
			MetadataContext: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
				namespace: {Fields: map[string]*structpb.Value{key: v}}}}}
	}
	list := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(1),
		structpb.NewStringValue("10.0.0.1:8000"), structpb.NewNullValue(), structpb.NewStructValue(nil)}})
	head := headMessage(":status", "200", "X-Upper", "raw")
	head.Headers.Headers[1].Value = "other"
	head.EndOfStream = true
	hinted := In{Kind: stream.Body, Known: true, End: true, Body: []byte(hello), Described: true}
	hinted.Subset, hinted.Hinted = []string{"10.0.0.1:8000"}, true
	served := In{Kind: stream.Body, Known: true, End: true, Body: []byte(hello), Described: true}
	served.Served = picker.Served{Given: true, Known: true, Endpoint: "10.0.0.1:8000"}
	unknown, plain := served, hinted
	unknown.Served = picker.Served{Given: true}
	plain.Subset, plain.Hinted = nil, false
	for _, c := range []struct {
		m    *extprocv3.ProcessingRequest
		want In
	}{
		{body(picker.NamespaceSubset, picker.KeySubset, list), hinted},
		{body(picker.NamespaceSubset, picker.KeySubset, structpb.NewStringValue("10.0.0.1:8000")), plain},
		{body(picker.NamespaceLB, picker.KeyServed, structpb.NewStringValue("10.0.0.1:8000")), served},
		{body(picker.NamespaceLB, picker.KeyServed, structpb.NewNumberValue(1)), unknown},
		{&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: head},
			ObservabilityMode: true}, In{Kind: stream.ResponseHeaders, Known: true, End: true,
			Head: header.Of(":status", "200", "x-upper", "raw")}},
		{&extprocv3.ProcessingRequest{ProtocolConfig: &extprocv3.ProtocolConfiguration{
			RequestBodyMode: filterv3.ProcessingMode_BUFFERED, ResponseBodyMode: filterv3.ProcessingMode_STREAMED}},
			In{Configured: true, Modes: stream.Modes{Request: stream.Buffered, Response: stream.Streamed}}},
	} {
		b, err := proto.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		var in In
		if err := in.unmarshal(b); err != nil || !reflect.DeepEqual(in, c.want) {
			t.Errorf("%v: %+v, want %+v (%v)", c.m, in, c.want, err)
		}
	}
}

// A message that the codec does not read goes to the library, or is malformed.
func TestIncomingThatIsUnusual(t *testing.T) {
	c := NewCodec()
	read := func(b []byte) (in In, err error) {
		err = c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &in)
		return in, err
	}
	all := messages(t)
	for i, b := range all[:len(all)-4] {
		var m extprocv3.ProcessingRequest
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if in, err := read(b); err != nil || in.Known != (m.Request != nil) {
			t.Errorf("message %d: %+v, %v", i, in, err)
		}
	}
	// the last value counts
	if in, err := read(all[len(all)-4]); err != nil || in.Kind != stream.Body || string(in.Body) != hello {
		t.Errorf("%+v %v", in, err)
	}
	for _, b := range all[len(all)-2:] {
		if _, err := read(b); err == nil {
			t.Errorf("%q is accepted", b)
		}
	}
}

// The codec and the library encode the same.
func TestOutgoing(t *testing.T) {
	text := rapid.SampledFrom(
		[]string{"", "a", "x-header", "ü", strings.Repeat("long ", 30), strings.Repeat("b", 20_000)})
	mode := rapid.SampledFrom([]stream.BodyMode{stream.FullDuplex, stream.Streamed, stream.Buffered, stream.NoBody})
	rapid.Check(t, func(t *rapid.T) {
		e := stream.Effect{Kind: rapid.SampledFrom(
			[]stream.Kind{stream.ContinueHeaders, stream.SendRequestHeaders, stream.SendRequestBody,
				stream.PassRequestTrailers,
				stream.SendResponseHeaders, stream.SendResponseBody, stream.PassResponseTrailers,
				stream.SendAnswer}).Draw(
			t, "kind"),
			Remove: rapid.SliceOfN(text, 0, 2).Draw(t, "remove"), Body: []byte(text.Draw(t, "body")),
			End: rapid.Bool().Draw(t, "end"), Replace: rapid.Bool().Draw(t, "replace")}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			e.Set = append(e.Set, header.Header{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
		}
		switch rapid.IntRange(0, 2).Draw(t, "metadata") {
		case 1:
			e.Metadata = stream.Metadata{picker.NamespaceLB: {picker.HeaderDestination: text.Draw(t, "endpoint")}}
		case 2:
			e.Metadata = stream.Metadata{"n": {"text": "a", "number": 1.5, "map": map[string]any{"a:1": 2.0}}, "m": {}}
		}
		o := &Out{Effect: &e,
			Modes: stream.Modes{Request: mode.Draw(t, "request"), Response: mode.Draw(t, "response")}}
		want := message(o)
		data, err := NewCodec().Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var got extprocv3.ProcessingResponse
		if err := proto.Unmarshal(data.Materialize(), &got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&got, want) {
			t.Fatalf("%v, want %v", &got, want)
		}
	})
}

// BenchmarkCodec measures the messages of one request and its response of 20 pieces.
func BenchmarkCodec(b *testing.B) {
	head := []string{":method", "POST", ":path", "/v1/chat/completions", ":authority", "gateway", ":scheme", "http",
		"content-type", "application/json", "content-length", "83",
		"user-agent", "Go-http-client/1.1", "accept-encoding", "gzip", "x-request-id",
		"5d2b6a52-0a5f-4c25-8ed5-0a5e5a1c0a5e", "x-forwarded-proto", "http"}
	piece := bodyMessage(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",`+
		`"choices":[{"index":0,"delta":{"content":"tok"}}]}`+"\n\n", false)
	all := []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headMessage(head...)}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: bodyMessage(hello, true)}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: headMessage(":status", "200", "content-type", "text/event-stream", "date", "now")}},
	}
	effects := []stream.Effect{
		{Kind: stream.SendRequestHeaders, Set: header.Of(head...),
			Metadata: stream.Metadata{picker.NamespaceLB: {picker.HeaderDestination: "10.0.0.1:8000"}}},
		{Kind: stream.SendRequestBody, Body: []byte(hello), End: true}, {Kind: stream.SendResponseHeaders}}
	for range 20 {
		all = append(all, &extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: piece}})
		effects = append(effects, stream.Effect{Kind: stream.SendResponseBody, Body: piece.Body})
	}
	var texts []mem.BufferSlice
	for _, m := range all {
		text, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, mem.BufferSlice{mem.SliceBuffer(text)})
	}
	c := NewCodec()
	marshal := func(v any) {
		data, err := c.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		data.Free()
	}
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		var in In
		for b.Loop() {
			for _, t := range texts {
				if err := c.Unmarshal(t, &in); err != nil {
					b.Fatal(err)
				}
			}
			for i := range effects {
				marshal(&Out{Effect: &effects[i]})
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, t := range texts {
				var m extprocv3.ProcessingRequest
				if err := c.Unmarshal(t, &m); err != nil {
					b.Fatal(err)
				}
			}
			for i := range effects {
				marshal(message(&Out{Effect: &effects[i]}))
			}
		}
	})
}

// message returns the library's message for an effect.
func message(o *Out) *extprocv3.ProcessingResponse {
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
		switch o.Modes.Request {
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
		if o.Modes.Response == stream.FullDuplex {
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

// replaced returns a new body, or nil where the original stays.
func replaced(e *stream.Effect) *extprocv3.BodyMutation {
	if !e.Replace {
		return nil
	}
	return &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: e.Body}}
}

// streamed returns one piece of a body in full-duplex mode.
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

// metadataOf returns dynamic metadata in Envoy's form, or nil if there is none.
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

func bodyMessage(text string, end bool) *extprocv3.HttpBody {
	return &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}
}

func headMessage(pairs ...string) *extprocv3.HttpHeaders {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return &extprocv3.HttpHeaders{Headers: m}
}
