// Package bbr is the body-based router: the ext_proc server that Envoy calls before routing. It reads a request's
// model from the body and puts it into headers for the routes (document 001, docs/documents.md#document-001). It
// leaves answers unchanged.
//
// This package decides nothing: core/epp/stream handles a stream, and core/gateway/bbr chooses the model's headers.
// Begin with Start.
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

// Options configure a Server.
type Options struct {
	// Address is the host:port to listen on.
	Address string
	// Router decides. Route may replace it.
	Router bbr.Router
	// Stream sets the limits on a request's body and the form of errors.
	Stream stream.Config
	// Now is the run's clock.
	Now func() machine.Time
}

// Server is a running body-based router.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

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
	extprocv3.RegisterExternalProcessorServer(s.grpc, s)
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

// Route sets the router for new requests.
func (s *Server) Route(r bbr.Router) { s.router.Store(&r) }

// Addr returns the host:port that the server listens on.
func (s *Server) Addr() string { return s.at.Addr().String() }

// Stop lets streams finish until ctx ends.
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

// request is one stream, which carries one request.
type request struct {
	s      *Server
	wire   extprocv3.ExternalProcessor_ProcessServer
	router *bbr.Router
	m      *stream.Stream
	fx     machine.Effects[stream.Effect]
	err    error // of sending
}

// Process serves one stream. It returns nil only after the request was passed on or answered, because Envoy takes nil
// for permission to continue.
func (s *Server) Process(wire extprocv3.ExternalProcessor_ProcessServer) error {
	r := &request{s: s, wire: wire, router: s.router.Load(), m: stream.New(s.o.Stream)}
	d := drive.New(drive.Options[*stream.Message, *machine.Effects[stream.Effect]]{Machine: r.m, Effects: &r.fx,
		Now: s.o.Now, Carry: r.carry})
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
			return errors.New("bbr: the request was aborted")
		case result != stream.Running:
			return nil
		}
	}
}

// passed maps the parts of an answer to the effects that pass them on unchanged. Envoy waits for one message for each
// part that it sends.
var passed = map[stream.MessageKind]stream.Kind{stream.ResponseHeaders: stream.SendResponseHeaders,
	stream.ResponseBody: stream.SendResponseBody, stream.ResponseTrailers: stream.PassResponseTrailers}

// carry carries out an effect. Fail needs no message: the stream's result ends it.
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
