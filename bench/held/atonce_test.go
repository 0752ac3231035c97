package held

import (
	"net"
	"sync/atomic"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"

	"github.com/windtunnel/windtunnel/live/extproc"
)

// atOnce is an endpoint picker that answers at once: it reads nothing of a
// request and sends it to whoever is next. What it takes is what gRPC takes, and
// the machine's own noise: how often a process among several on these cores has
// to wait.
type atOnce struct {
	extprocv3.UnimplementedExternalProcessorServer
	servers []string
	turn    atomic.Uint64
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
			to := a.servers[a.turn.Add(1)%uint64(len(a.servers))]
			err = s.Send(&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
					Response: &extprocv3.CommonResponse{ClearRouteCache: true,
						HeaderMutation: setHeaders(header("x-gateway-destination-endpoint", to))}}}})
			if err == nil {
				err = s.Send(requestBody(string(body), true))
			}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			err = s.Send(&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}})
		case *extprocv3.ProcessingRequest_ResponseBody:
			err = s.Send(&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{
					Response: &extprocv3.CommonResponse{
						BodyMutation: mutation(m.ResponseBody.Body, m.ResponseBody.EndOfStream)}}}})
		}
		if err != nil {
			return err
		}
	}
}

// startAtOnce serves it.
func startAtOnce(servers []string) ([]string, error) {
	e, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return serveWatched(e, &atOnce{servers: servers})
}

// serveWatched serves an endpoint picker with windtunnel's own options, and says
// where, and where its times are found.
func serveWatched(l net.Listener, p extprocv3.ExternalProcessorServer) ([]string, error) {
	w, page, err := newWatch()
	if err != nil {
		return nil, err
	}
	g := grpc.NewServer(extproc.ConnectionOptions()...)
	extprocv3.RegisterExternalProcessorServer(g, p)
	go func() { _ = g.Serve(w.over(l)) }()
	return []string{l.Addr().String(), page}, nil
}
