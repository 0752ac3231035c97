package epp

import (
	"reflect"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/stream"
)

// messages are what Envoy sends, and a few that it does not.
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
	// One message in the other's place, the same again, a broken one, and a header
	// whose name is no text.
	return append(out, append(out[1][:len(out[1]):len(out[1])], out[3]...),
		append(out[1][:len(out[1]):len(out[1])], out[1]...), out[1][:20],
		[]byte("\x12\x09\x0a\x07\x0a\x05\x0a\x01\xff\x12\x00"))
}

// What the codec reads is what the library reads.
func FuzzIncoming(f *testing.F) {
	fast := 0
	for _, b := range messages(f) {
		f.Add(b)
		if new(incoming).read(b) {
			fast++
		}
	}
	if fast < 9 {
		f.Fatalf("only %d of Envoy's messages are read without the library", fast)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in, want incoming
		if !in.read(b) {
			return
		}
		var m extprocv3.ProcessingRequest
		if err := proto.Unmarshal(b, &m); err != nil {
			if in.described {
				return // metadata that nobody looks at is not read
			}
			t.Fatalf("the library says: %v", err)
		}
		want.take(&m)
		for _, x := range []*incoming{&in, &want} { // nothing is as good as empty
			x.body = append([]byte{}, x.body...)
			x.head = append(header.List{}, x.head...)
			x.subset = append([]string{}, x.subset...)
		}
		if !reflect.DeepEqual(in, want) {
			t.Errorf("%+v, want %+v", in, want)
		}
	})
}

// A message that the codec does not read is the library's, or broken.
func TestIncomingThatIsUnusual(t *testing.T) {
	c := newCodec()
	read := func(b []byte) (in incoming, err error) {
		err = c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &in)
		return in, err
	}
	all := messages(t)
	for i, b := range all[:len(all)-4] {
		var m extprocv3.ProcessingRequest
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if in, err := read(b); err != nil || in.known != (m.Request != nil) {
			t.Errorf("message %d: %+v, %v", i, in, err)
		}
	}
	// the last counts
	if in, err := read(all[len(all)-4]); err != nil || in.kind != stream.Body || string(in.body) != hello {
		t.Errorf("%+v %v", in, err)
	}
	for _, b := range all[len(all)-2:] {
		if _, err := read(b); err == nil {
			t.Errorf("%q is taken", b)
		}
	}
}

// What the codec writes is what the library would have written.
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
		o := &outgoing{Effect: &e,
			modes: stream.Modes{Request: mode.Draw(t, "request"), Response: mode.Draw(t, "response")}}
		want := o.message()
		if n, fits := o.size(); fits {
			if got := len(o.append(nil)); got != n {
				t.Fatalf("%d bytes are %d", n, got)
			}
		}
		data, err := newCodec().Marshal(o)
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

// The messages of a request and its response, of 20 pieces.
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
	c := newCodec()
	marshal := func(v any) {
		data, err := c.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		data.Free()
	}
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		var in incoming
		for b.Loop() {
			for _, t := range texts {
				if err := c.Unmarshal(t, &in); err != nil {
					b.Fatal(err)
				}
			}
			for i := range effects {
				marshal(&outgoing{Effect: &effects[i]})
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		var in incoming
		for b.Loop() {
			for _, t := range texts {
				var m extprocv3.ProcessingRequest
				if err := c.Unmarshal(t, &m); err != nil {
					b.Fatal(err)
				}
				in.take(&m)
			}
			for i := range effects {
				marshal((&outgoing{Effect: &effects[i]}).message())
			}
		}
	})
}
