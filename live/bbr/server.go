// Package bbr is the body-based router on the wire: the ext_proc server that Envoy
// asks ahead of routing, which reads a request's model out of its body and puts it
// into headers for the routes (document 001, docs/documents.md). Answers pass it by.
//
// It decides nothing: a stream is a core/epp/stream machine, where a request goes is
// core/gateway/bbr.
package bbr

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway/bbr"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/extproc"
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
		grpc: grpc.NewServer(append(extproc.ServerOptions(), grpc.MaxRecvMsgSize(64<<20))...)}
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
		var in extproc.In
		err := wire.RecvMsg(&in)
		m := stream.Message{Kind: in.Kind, Head: in.Head, Body: in.Body, End: in.End}
		if err != nil {
			m = stream.Message{Kind: stream.PeerGone}
		} else if e, answers := passed[in.Kind]; answers || !in.Known {
			if answers {
				r.send(&stream.Effect{Kind: e, Body: in.Body, End: in.End})
			}
			if r.err != nil {
				return r.err
			}
			continue
		}
		d.Input(&m)
		var result stream.Result
		d.With(func(machine.Time, *machine.Effects[stream.Effect]) {
			if result = r.m.Result(); errors.Is(err, io.EOF) {
				err = nil
			}
			err = errors.Join(r.err, err)
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

// passed are the parts of an answer, and how each passes: where Envoy shows answers, it waits for a message.
var passed = map[stream.MessageKind]stream.Kind{stream.ResponseHeaders: stream.SendResponseHeaders,
	stream.ResponseBody: stream.SendResponseBody, stream.ResponseTrailers: stream.PassResponseTrailers}

// carry carries out an effect. Fail ends the stream by its result.
func (r *request) carry(now machine.Time, fx *machine.Effects[stream.Effect], i int) {
	switch e := &fx.List[i]; e.Kind {
	case stream.Decide:
		d := r.router.Routed(e, r.s.o.Stream.Errors)
		r.m.Input(now, &stream.Message{Kind: stream.Decided, Decision: d}, fx)
	case stream.Fail:
	default:
		r.send(e)
	}
}

func (r *request) send(e *stream.Effect) {
	if err := r.wire.SendMsg(&extproc.Out{Effect: e}); err != nil && r.err == nil {
		r.err = err
	}
}
