package held

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
)

// atOnce is an endpoint picker that answers at once: it reads nothing of a
// request and sends it to whoever is next. What it takes from the request's
// last byte to its first message out is the machine's own noise: how often a
// process among several on these cores has to wait in the middle of nothing.
type atOnce struct {
	extprocv3.UnimplementedExternalProcessorServer
	servers []string
	turn    atomic.Uint64
	took    prometheus.Histogram
}

func (a *atOnce) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	var body []byte
	for {
		in, err := s.Recv()
		if err != nil {
			return nil
		}
		switch m := in.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestBody:
			if body = append(body, m.RequestBody.Body...); !m.RequestBody.EndOfStream {
				continue
			}
			whole := time.Now()
			to := a.servers[a.turn.Add(1)%uint64(len(a.servers))]
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
				Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: setHeaders(header("x-gateway-destination-endpoint", to))}}}})
			a.took.Observe(time.Since(whole).Seconds())
			if err == nil {
				err = s.Send(requestBody(string(body), true))
			}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}})
		case *extprocv3.ProcessingRequest_ResponseBody:
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{
				Response: &extprocv3.CommonResponse{BodyMutation: mutation(m.ResponseBody.Body, m.ResponseBody.EndOfStream)}}}})
		}
		if err != nil {
			return err
		}
	}
}

// startAtOnce serves it, and its figure as an EPP's.
func startAtOnce(servers []string) ([]string, error) {
	e, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &atOnce{servers: servers, took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: processingName, NativeHistogramBucketFactor: 1.05})}
	reg := prometheus.NewRegistry()
	reg.MustRegister(a.took)
	go func() { _ = http.Serve(l, promhttp.HandlerFor(reg, promhttp.HandlerOpts{})) }()
	g := grpc.NewServer(grpc.MaxConcurrentStreams(1 << 20))
	extprocv3.RegisterExternalProcessorServer(g, a)
	go func() { _ = g.Serve(e) }()
	return []string{e.Addr().String(), l.Addr().String()}, nil
}
