package epp

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// wireRig is a server and Envoy's side of the wire to it.
type wireRig struct {
	*Server
	t      *testing.T
	client extprocv3.ExternalProcessorClient
	ctx    context.Context
}

func startWire(t *testing.T, k *Picking, more ...grpc.DialOption) *wireRig {
	t.Helper()
	s, err := Start(Options{Serving: Serving{Address: "127.0.0.1:0"}, Pickers: k, Now: k.o.Now, Log: k.o.Log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	conn, err := grpc.NewClient(s.Addr(), append(more, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wireRig{s, t, extprocv3.NewExternalProcessorClient(conn), t.Context()}
}

// wireStream is the stream of one request.
type wireStream struct {
	extprocv3.ExternalProcessor_ProcessClient
	t *testing.T
}

func (s wireStream) send(m *extprocv3.ProcessingRequest) {
	s.t.Helper()
	if err := s.Send(m); err != nil && !errors.Is(err, io.EOF) { // the end of a stream is read
		s.t.Fatal(err)
	}
}

func (s wireStream) next() *extprocv3.ProcessingResponse {
	s.t.Helper()
	m, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// open sends a whole request with these headers more.
func (r *wireRig) open(headers ...string) wireStream {
	r.t.Helper()
	return r.openFor("m", headers...)
}

// openFor is open for a model.
func (r *wireRig) openFor(model string, headers ...string) wireStream {
	r.t.Helper()
	c, err := r.client.Process(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	s := wireStream{c, r.t}
	s.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: headMessage(
			append([]string{":method", "POST", ":path", "/v1/chat/completions"}, headers...)...)}})
	s.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: bodyMessage(`{"model":"`+model+`","messages":[{"role":"user","content":"hello"}]}`, true)}})
	return s
}

// respond sends the response's headers and a piece of its body.
func (s wireStream) respond(piece string, end bool) {
	s.t.Helper()
	s.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: headMessage(":status", "200", "content-type", "text/event-stream")}})
	s.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: bodyMessage(piece, false)}})
	if end {
		s.send(&extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: bodyMessage("", true)}})
	}
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

// A request that only counts tokens is forwarded, and its stream is over: no plug-in looks at the response, and Envoy
// must not wait for one.
func TestStreamEndsWhereNobodyLooksAtTheResponse(t *testing.T) {
	t.Parallel()
	rig := startWire(t, picking(t, "plugins: [{type: random-picker}]", 1))
	c, err := rig.client.Process(rig.ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := wireStream{c, t}
	s.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: headMessage(":method", "POST", ":path", "/v1/messages/count_tokens")}})
	s.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: bodyMessage(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`, true)}})
	if m := s.next(); m.GetRequestHeaders() == nil {
		t.Fatalf("the request's headers were answered with %v", m)
	}
	if m := s.next(); !m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream() {
		t.Fatalf("the request's body was answered with %v", m)
	}
	if m, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream goes on with %v, %v", m, err)
	}
	until(t, "its stream is over", func() bool { return rig.Active() == 0 })
}

// An Envoy that does not read its stream keeps no request's place beyond the
// limit of the hold, although the stream can send nothing any more.
func TestAPeerThatDoesNotReadHoldsNoPlace(t *testing.T) {
	t.Parallel()
	var held atomic.Bool
	k := picking(t, crowded, 1, func(o *PickingOptions) {
		o.Stream = stream.Config{Hold: true, HoldLimit: 50 * machine.Millisecond, MetadataBytes: 4,
			Recorder: record.Func(func(e record.Event) {
				if e.Step == record.Part1Sent {
					held.Store(true)
				}
			})}
	})
	const window = 64 << 10
	rig := startWire(t, k, grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	c, err := rig.client.Process(rig.ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := wireStream{c, t}
	s.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: headMessage(":method", "POST", ":path", "/v1/chat/completions")}})
	s.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: bodyMessage(strings.Replace(hello, "hello", strings.Repeat("a", 16*window), 1), true)}})
	until(t, "its place is free", func() (free bool) {
		k.With(func(m *core.Machine, _ machine.Time) {
			requests, _ := m.Picker().Plugin("inflight-load-producer").(interface {
				Load(slot int) (requests, tokens int64)
			}).Load(m.Picker().Pool().View().States[0].Slot())
			free = held.Load() && requests == 0 && m.InFlight() == 0
		})
		return free
	})
	if n := rig.Active(); n != 1 {
		t.Errorf("%d streams are open: all was sent", n)
	}
}
