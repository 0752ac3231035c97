// Package epp is the endpoint picker on the wire: the ext_proc server that Envoy calls for every request, with its
// health and metrics.
//
// It decides nothing. Each ext_proc stream is one core/epp Stream: this package translates Envoy's protobuf messages
// into its inputs and its effects back, and keeps its deadlines. One goroutine reads a stream; a deadline fires on a
// timer; a lock per stream keeps the two apart, and is not held while Envoy reads slowly. The streams share one
// core/epp Machine behind a lock (Picking). Picking carries out its effects: it fetches pages, receives KV events, and
// calls the services that plug-ins use.
package epp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/extproc"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Pickers returns the picker for a stream that begins now. The server calls done when the stream is over.
type Pickers interface {
	Take() (k *Picking, done func())
}

// Options of a server.
type Options struct {
	Serving
	// TLS, when not nil, is used on Address; MetricsTLS on MetricsAddress.
	TLS        credentials.TransportCredentials
	MetricsTLS *tls.Config
	// Pickers decide; they are required.
	Pickers Pickers
	// Now is the run's clock.
	Now func() machine.Time
	// Registry takes the server's metrics; nil makes one.
	Registry *prometheus.Registry
	// Pages are further handlers of the metrics listener, by pattern. They show pieces of prompts and the process
	// itself: to this machine, and to clients with one of MetricsTokens or the certificate that MetricsTLS requires.
	Pages map[string]http.Handler
	// Log gets failures; nil is silent.
	Log *slog.Logger
}

// Serving configures a server's listeners.
type Serving struct {
	// Addresses to listen on; empty ones are not opened. The ecosystem's ports are 9002 (ext_proc and gRPC health),
	// 9003 (gRPC health) and 9090 (metrics over HTTP).
	Address, HealthAddress, MetricsAddress string
	// MaxRecvBytes and MaxSendBytes limit one gRPC message; 0 is 64 MiB for the first and no limit for the other.
	MaxRecvBytes, MaxSendBytes int
	// StreamMetrics adds metrics about ext_proc streams (--enable-grpc-stream-metrics).
	StreamMetrics bool
	// MetricsFor chooses the readers of /metrics, and MetricsTokens are the tokens that they show.
	MetricsFor    Readers
	MetricsTokens serve.Tokens
	// Wrap, when not nil, wraps the listener at Address, to measure at the socket.
	Wrap func(net.Listener) net.Listener
}

// Readers are the clients to which /metrics is served. A client with a token or a certificate is always one.
type Readers uint8

// The readers.
const (
	LocalReaders Readers = iota // and this machine
	AllReaders                  // all clients
	KnownReaders                // no others
)

// metricsPages returns the pages of the metrics listener, each for its readers.
func (o *Options) metricsPages() http.Handler {
	known := func(r *http.Request) bool {
		return o.MetricsTokens.Allow(r.Header.Get("Authorization")) || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
	}
	const needs = "show a token of --metrics-token-file, or a certificate of --metrics-client-ca-file"
	var metrics = promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{})
	switch all := metrics; o.MetricsFor {
	case LocalReaders:
		metrics = serve.LocalOnly(all, known, needs+", or start with --metrics-endpoint-auth=false")
	case KnownReaders:
		metrics = serve.Known(all, known, needs)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	for pattern, h := range o.Pages {
		mux.Handle(pattern, serve.LocalOnly(h, known, needs))
	}
	return mux
}

// Server is a running EPP.
type Server struct {
	o        Options
	grpc     *grpc.Server
	health   *health.Server
	healthAt *grpc.Server
	metrics  *http.Server
	active   atomic.Int64
	killed   atomic.Bool
	m        exposed
	serving  serve.Group
	checks   healthChecks

	listeners map[string]net.Listener // by what is served there
}

// stuck is how long Stop waits for streams after it has cut them off.
const stuck = time.Second

// ServiceName is the gRPC service whose health Envoy asks for.
const ServiceName = "envoy.service.ext_proc.v3.ExternalProcessor"

var healthNames = []string{"", ServiceName, "readiness"}

// Start opens the listeners and serves until Stop.
func Start(o Options) (*Server, error) {
	if o.Pickers == nil || o.Now == nil {
		return nil, errors.New("epp: Pickers and Now are required")
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Registry = cmp.Or(o.Registry, prometheus.NewRegistry())
	s := &Server{o: o, health: health.NewServer(), listeners: map[string]net.Listener{},
		m: newServerMetrics(o.Registry, o.StreamMetrics), serving: serve.Group{Log: o.Log},
		checks: healthChecks{peers: map[string]*checker{}}}
	for _, x := range [...]struct{ what, address string }{{"ext_proc", o.Address}, {"health", o.HealthAddress},
		{"metrics", o.MetricsAddress}} {
		if x.address == "" {
			continue
		}
		l, err := serve.Listen(x.what, x.address)
		if err != nil {
			for _, l := range s.listeners {
				l.Close()
			}
			return nil, err
		}
		s.listeners[x.what] = l
	}

	options := append(extproc.ServerOptions(),
		grpc.MaxRecvMsgSize(cmp.Or(o.MaxRecvBytes, 64<<20)), grpc.UnaryInterceptor(s.checks.intercept))
	if o.MaxSendBytes > 0 {
		options = append(options, grpc.MaxSendMsgSize(o.MaxSendBytes))
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(o.TLS))
	}
	s.grpc = grpc.NewServer(options...)
	extprocv3.RegisterExternalProcessorServer(s.grpc, &processor{s: s})
	healthv1.RegisterHealthServer(s.grpc, s.health)
	s.SetReady(true)
	s.health.SetServingStatus("liveness", healthv1.HealthCheckResponse_SERVING)
	if extProc := s.listeners["ext_proc"]; extProc != nil {
		if o.Wrap != nil {
			extProc = o.Wrap(extProc)
		}
		s.serve("ext_proc", s.grpc, extProc)
	}
	if l := s.listeners["health"]; l != nil {
		s.healthAt = grpc.NewServer(grpc.UnaryInterceptor(s.checks.intercept))
		healthv1.RegisterHealthServer(s.healthAt, s.health)
		s.serve("health", s.healthAt, l)
	}
	if l := s.listeners["metrics"]; l != nil {
		s.metrics = serve.Pages(s.o.metricsPages(), o.Log)
		if o.MetricsTLS != nil {
			l = tls.NewListener(l, o.MetricsTLS)
		}
		s.serving.Go("metrics", func() error { return s.metrics.Serve(l) })
	}
	return s, nil
}

func (s *Server) serve(what string, g *grpc.Server, l net.Listener) {
	s.serving.Go(what, func() error {
		err := g.Serve(s.checks.watch(l))
		if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
}

// Failed has the error of the first listener that ended by itself.
func (s *Server) Failed() <-chan error { return s.serving.Failed() }

// Addr returns the address of the ext_proc service.
func (s *Server) Addr() string { return s.addressOf("ext_proc") }

// HealthAddr returns the address of the separate gRPC health service, or "".
func (s *Server) HealthAddr() string { return s.addressOf("health") }

// MetricsAddr returns the address of /metrics, or "".
func (s *Server) MetricsAddr() string { return s.addressOf("metrics") }

func (s *Server) addressOf(what string) string {
	if l := s.listeners[what]; l != nil {
		return l.Addr().String()
	}
	return ""
}

// Active is the number of ext_proc streams that have not ended.
func (s *Server) Active() int { return int(s.active.Load()) }

// Register adds metrics to the server's own.
func (s *Server) Register(c prometheus.Collector) error { return s.o.Registry.Register(c) }

// SetReady changes what the health services say; Envoy's health check and
// Kubernetes' readiness probe both read it.
func (s *Server) SetReady(ready bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthv1.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		s.health.SetServingStatus(name, status)
	}
}

// Stop takes the server out of service without losing a request. It reports not ready, serves until all clients that
// check its health have seen that, lets the streams finish until ctx ends, and then closes the rest.
func (s *Server) Stop(ctx context.Context) error {
	s.SetReady(false)
	s.checks.awaitChecks(ctx, time.Now())
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	var left int
	select {
	case <-done:
	case <-ctx.Done():
		left = s.Active()
		s.grpc.Stop()
		select {
		case <-done:
		case <-time.After(stuck): // a plug-in that never comes back
		}
	}
	s.close()
	if left > 0 {
		return fmt.Errorf("epp: %d requests were still held when the time to stop was over", left)
	}
	return nil
}

// Kill ends everything at once, as a crash would.
func (s *Server) Kill() {
	s.killed.Store(true)
	s.grpc.Stop()
	s.close()
}

func (s *Server) close() {
	if s.healthAt != nil {
		s.healthAt.Stop()
	}
	if s.metrics != nil {
		s.metrics.Close()
	}
	s.serving.Wait()
}
