package stack

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
)

// Model servers that someone else runs, behind our gateway and EPP.
func TestForeignEndpoints(t *testing.T) {
	t.Parallel()
	soon := dist.Fixed(machine.Millisecond) // left to itself a server prefills for up to 30 s
	fleet, err := modelserver.New(
		modelserver.Options{Servers: []modelserver.ServerOptions{
			{Models: []string{"m"}, Prefill: &soon, TokenTime: &soon,
				Engine: engine.Config{Batching: engine.BatchingIndependent}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := fleet.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fleet.Stop(ctx) })
	r := start(t, quick(func(s *scenario.Scenario) {
		p := &s.Pools[0]
		p.Flow, p.Replicas = scenario.Plain, 0
		p.Endpoints = []string{strings.Replace(fleet.Addresses()[0], "127.0.0.1", "localhost", 1)}
	}), nil)
	if a := r.post("/v1/chat/completions", chat); a.status != 200 || !strings.Contains(a.body, "[DONE]") {
		t.Fatalf("got %d %v %q", a.status, a.err, a.body)
	}
	if r.rec.count(record.EPP, record.EndpointPicked) != 1 || r.rec.count(record.Server, record.RequestReceived) != 0 {
		t.Fatal("the record shows what cannot be seen, or not what can")
	}
}

// fakeEPP is an external endpoint picker: it routes every request to one model server, and a test decides what it does
// with the body.
type fakeEPP struct {
	extprocv3.UnimplementedExternalProcessorServer
	target func() string
	body   func(s extprocv3.ExternalProcessor_ProcessServer, body []byte) error
	// response handles response headers; nil passes all.
	response func() error
	mute     bool // says nothing at all
}

func (f *fakeEPP) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	var body []byte
	for {
		in, err := s.Recv()
		if err != nil {
			return nil
		}
		switch m := in.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestBody:
			if body = append(body, m.RequestBody.Body...); m.RequestBody.EndOfStream {
				if !f.mute {
					err = s.Send(f.headers())
				}
				if err == nil {
					err = f.body(s, body)
				}
			}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			if f.response != nil {
				return f.response()
			}
			err = s.Send(&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}})
		case *extprocv3.ProcessingRequest_ResponseBody:
			err = s.Send(&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{
					Response: &extprocv3.CommonResponse{
						BodyMutation: streamed(m.ResponseBody.Body, m.ResponseBody.EndOfStream)}}}})
		}
		if err != nil {
			return err
		}
	}
}

const fakeBoundary = "fake-boundary"

func (f *fakeEPP) headers() *extprocv3.ProcessingResponse {
	set := func(k, v string) *corev3.HeaderValueOption {
		return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: k, RawValue: []byte(v)}}
	}
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: &extprocv3.HeaderMutation{
				RemoveHeaders: []string{"content-length"},
				SetHeaders: []*corev3.HeaderValueOption{set("x-gateway-destination-endpoint", f.target()),
					set("content-type", held.ContentType(fakeBoundary))}}}}}}
}

func streamed(b []byte, end bool) *extprocv3.BodyMutation {
	return &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: b, EndOfStream: end}}}
}

func sendBody(s extprocv3.ExternalProcessor_ProcessServer, b []byte, end bool) error {
	return s.Send(&extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{
			Response: &extprocv3.CommonResponse{BodyMutation: streamed(b, end)}}}})
}

// startFake serves a fake EPP, puts it behind our Envoy and returns the rig.
func startFake(t *testing.T, f *fakeEPP, change func(*scenario.Scenario)) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(g, f)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	var r *rig
	f.target = func() string { return r.Endpoints[0] }
	r = start(t, quick(change), func(o *Options) { o.EPP.Address = l.Addr().String() })
	return r
}

// The model server reports a picker's breach of the contract as an error outcome.
func TestForeignEPPViolates(t *testing.T) {
	t.Parallel()
	part1 := func(b []byte) []byte { return held.Part1(fakeBoundary, b) }
	for name, body := range map[string]func(extprocv3.ExternalProcessor_ProcessServer, []byte) error{
		"does not wait for the first token": func(s extprocv3.ExternalProcessor_ProcessServer, b []byte) error {
			return sendBody(s, append(part1(b), held.Part2(fakeBoundary, "m")...), true)
		},
		"ends without part 2": func(s extprocv3.ExternalProcessor_ProcessServer, b []byte) error {
			return sendBody(s, part1(b), true)
		},
		"names the parts wrongly": func(s extprocv3.ExternalProcessor_ProcessServer, b []byte) error {
			return sendBody(s, []byte(strings.Replace(string(part1(b)), held.PayloadPart, "body", 1)), true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Long enough for part 2 to come too early on a busy machine, too.
			r := startFake(t, &fakeEPP{body: body}, func(s *scenario.Scenario) {
				if err := s.Override(scenario.Overrides{Prefill: "2s"}); err != nil {
					t.Error(err)
				}
			})
			if a := r.post("/v1/chat/completions", chat); a.status != 400 ||
				!strings.Contains(a.body, held.ViolationType) {
				t.Fatalf("got %d %v %q", a.status, a.err, a.body)
			}
			if r.rec.count(record.Server, record.Violation) != 1 {
				t.Fatal("the model server did not report it")
			}
			r.idle()
		})
	}
}

// An external picker that holds and injects as document 000 says, found by
// its endpoints file, as the real one finds its endpoints.
func TestForeignEPPPlain(t *testing.T) {
	t.Parallel()
	f := &fakeEPP{body: func(s extprocv3.ExternalProcessor_ProcessServer, b []byte) error {
		return sendBody(s, b, true)
	}}
	r := startFake(t, f, nil)
	text, err := os.ReadFile(r.EndpointsFile())
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Endpoints []struct{ Name, Address, Port string }
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Endpoints) != 2 ||
		net.JoinHostPort(file.Endpoints[0].Address, file.Endpoints[0].Port) != r.Endpoints[0] {
		t.Fatalf("the endpoints file says %s", text)
	}
	// It announces a multipart body and sends none: our model server refuses.
	if a := r.post("/v1/chat/completions", chat); a.status != 400 {
		t.Fatalf("got %d %v %q", a.status, a.err, a.body)
	}
	r.idle()
}

// The picker's handler ends, with an error, while a request is held: the
// client gets an error and the model server gives up.
func TestForeignEPPHandlerEnds(t *testing.T) {
	t.Parallel()
	f := &fakeEPP{
		body: func(s extprocv3.ExternalProcessor_ProcessServer, b []byte) error {
			return sendBody(s, held.Part1(fakeBoundary, b), false)
		},
		response: func() error { return status.Error(codes.Internal, "the handler ended") },
	}
	r := startFake(t, f, nil)
	if a := r.post("/v1/chat/completions", chat); a.err == nil && a.status < 500 {
		t.Fatalf("got %d %q", a.status, a.body)
	}
	r.idle()
	if r.rec.count(record.Server, record.Aborted)+r.rec.count(record.Server, record.Violation) != 1 {
		t.Fatal("the model server did not give up")
	}
}

// A picker that never says a word has no deadline of its own: Envoy's ends the
// request.
func TestForeignEPPSilent(t *testing.T) {
	t.Parallel()
	f := &fakeEPP{body: func(s extprocv3.ExternalProcessor_ProcessServer, _ []byte) error {
		<-s.Context().Done()
		return s.Context().Err()
	}}
	r := startFake(t, f, func(s *scenario.Scenario) { s.Pools[0].EPP.HoldLimit = 50 * time.Millisecond })
	f.mute = true
	if a := r.post("/v1/chat/completions", chat); a.status != 504 {
		t.Fatalf("got %d %v %q", a.status, a.err, a.body)
	}
	r.idle()
}
