// Package bbr is the body-based router on the wire: the ext_proc server that Envoy
// asks ahead of routing, which reads a request's model out of its body and puts it
// into headers for the routes (document 001, docs/documents.md). Answers pass it by.
//
// It decides nothing: a stream is a core/stream machine, where a request goes is
// core/bbr.
package bbr

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/windtunnel/windtunnel/core/bbr"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Options of a server.
type Options struct {
	// Address to listen on.
	Address string
	// Router decides; Route may put another in its place.
	Router bbr.Router
	// Stream is what a request's body is held to, and what errors look like.
	Stream stream.Config
	// Now is the run's clock.
	Now func() machine.Time
}

// Server is a running body-based router.
type Server struct {
	o       Options
	router  atomic.Pointer[bbr.Router]
	grpc    *grpc.Server
	at      net.Listener
	serving serve.Group
}

// Start listens and serves until Stop.
func Start(o Options) (*Server, error) {
	l, err := serve.Listen("body-based router", o.Address)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, at: l,
		grpc: grpc.NewServer(grpc.MaxConcurrentStreams(1<<20), grpc.InitialWindowSize(1<<20),
			grpc.InitialConnWindowSize(16<<20), grpc.MaxRecvMsgSize(64<<20))}
	s.Route(o.Router)
	extprocv3.RegisterExternalProcessorServer(s.grpc, service{s: s})
	alive := health.NewServer()
	alive.SetServingStatus(extprocv3.ExternalProcessor_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(s.grpc, alive)
	s.serving.Go("body-based router", func() error {
		if err := s.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	return s, nil
}

// Route has requests that come from now on decided by another router.
func (s *Server) Route(r bbr.Router) { s.router.Store(&r) }

// Addr is where it listens.
func (s *Server) Addr() string { return s.at.Addr().String() }

// Stop lets the streams finish until ctx ends.
func (s *Server) Stop(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
	s.serving.Wait()
}

type service struct {
	extprocv3.UnimplementedExternalProcessorServer
	s *Server
}

// request is one stream, which is one request.
type request struct {
	s      *Server
	wire   extprocv3.ExternalProcessor_ProcessServer
	router *bbr.Router
	m      *stream.Stream
	fx     machine.Effects[stream.Effect]
	err    error // of sending
}

// Process serves one stream. It returns nil only once the request is on its way, or
// answered: Envoy would take it for consent.
func (x service) Process(wire extprocv3.ExternalProcessor_ProcessServer) error {
	r := &request{s: x.s, wire: wire, router: x.s.router.Load(), m: stream.New(x.s.o.Stream)}
	d := drive.New(drive.Options[*stream.Message, *machine.Effects[stream.Effect]]{Machine: r.m, Effects: &r.fx,
		Now: x.s.o.Now, Carry: r.carry})
	defer d.Stop()
	for {
		in, err := wire.Recv()
		var m stream.Message
		if err != nil {
			m = stream.Message{Kind: stream.PeerGone}
		} else if !read(in, &m) {
			if err := pass(wire, in); err != nil {
				return err
			}
			continue
		}
		d.Input(&m)
		var result stream.Result
		d.With(func(machine.Time, *machine.Effects[stream.Effect]) {
			result, err = r.m.Result(), errors.Join(r.err, ended(err))
		})
		switch {
		case err != nil:
			return err
		case result == stream.Failed:
			return errors.New("bbr: the request was given up")
		case result != stream.Running:
			return nil
		}
	}
}

// pass lets a part of an answer pass: where Envoy shows answers, it waits for a word.
func pass(wire extprocv3.ExternalProcessor_ProcessServer, in *extprocv3.ProcessingRequest) error {
	var out extprocv3.ProcessingResponse
	switch x := in.Request.(type) {
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		out.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}
	case *extprocv3.ProcessingRequest_ResponseBody:
		out.Response = &extprocv3.ProcessingResponse_ResponseBody{
			ResponseBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{
				BodyMutation: &extprocv3.BodyMutation{
					Mutation: &extprocv3.BodyMutation_StreamedResponse{
						StreamedResponse: &extprocv3.StreamedBodyResponse{Body: x.ResponseBody.GetBody(),
							EndOfStream: x.ResponseBody.GetEndOfStream()}}}}}}
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		out.Response = &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}
	default:
		return nil
	}
	return wire.Send(&out)
}

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// read is Envoy's message as the machine takes it; false where it is none of its
// business.
func read(in *extprocv3.ProcessingRequest, m *stream.Message) bool {
	switch x := in.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		*m = stream.Message{Kind: stream.Headers, End: x.RequestHeaders.GetEndOfStream()}
		for _, h := range x.RequestHeaders.GetHeaders().GetHeaders() {
			v := h.Value
			if len(h.RawValue) > 0 {
				v = string(h.RawValue)
			}
			m.Head = append(m.Head, header.Header{Name: h.Key, Value: v})
		}
	case *extprocv3.ProcessingRequest_RequestBody:
		*m = stream.Message{Kind: stream.Body, Body: x.RequestBody.GetBody(), End: x.RequestBody.GetEndOfStream()}
	case *extprocv3.ProcessingRequest_RequestTrailers:
		*m = stream.Message{Kind: stream.Trailers}
	default:
		return false
	}
	return true
}

// carry carries out an effect.
func (r *request) carry(now machine.Time, fx *machine.Effects[stream.Effect], i int) {
	e := &fx.List[i]
	var out extprocv3.ProcessingResponse
	switch e.Kind {
	case stream.Decide:
		d := stream.Decision{Leave: true, Remove: r.router.Headers()} // a client's own
		if !e.End {
			decided := r.router.Decide(e.Body)
			d.Set = decided.Set
			d.Remove = slices.DeleteFunc(d.Remove, func(name string) bool { _, set := d.Set.Lookup(name); return set })
			if decided.Answer != nil {
				a := r.s.o.Stream.Errors.Answer(decided.Answer)
				d.Answer, d.Reason = &a, decided.Answer.Message
			}
		}
		r.m.Input(now, &stream.Message{Kind: stream.Decided, Decision: d}, fx)
		return
	case stream.SendRequestHeaders:
		out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: mutation(e.Set, e.Remove)}}}
	case stream.SendRequestBody:
		out.Response = &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{
				BodyMutation: &extprocv3.BodyMutation{
					Mutation: &extprocv3.BodyMutation_StreamedResponse{
						StreamedResponse: &extprocv3.StreamedBodyResponse{Body: e.Body, EndOfStream: e.End}}}}}}
	case stream.PassRequestTrailers:
		out.Response = &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}
	case stream.SendAnswer:
		out.Response = &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(e.Answer.Status)}, Headers: mutation(e.Answer.Set, nil),
			Body: e.Answer.Body}}
	default: // Fail ends the stream by its result; of answers nothing is seen
		return
	}
	if err := r.wire.Send(&out); err != nil && r.err == nil {
		r.err = err
	}
}

func mutation(set header.List, remove []string) *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{RemoveHeaders: remove}
	for _, h := range set {
		m.SetHeaders = append(m.SetHeaders,
			&corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: h.Name, RawValue: []byte(h.Value)},
				AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD})
	}
	return m
}
