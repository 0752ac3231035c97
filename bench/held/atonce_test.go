package held

import (
	"net"
	"sync/atomic"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"

	"github.com/windtunnel/windtunnel/live/extproc"
)

// atOnce is an endpoint picker that answers at once. It reads nothing of a request and chooses endpoints in turn. Its
// time is the time of gRPC plus the noise of the machine, where a process waits for a free core.
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

// startAtOnce serves an atOnce.
func startAtOnce(servers []string) ([]string, error) {
	e, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return serveWatched(e, &atOnce{servers: servers})
}

// serveWatched serves an endpoint picker with windtunnel's own options. It returns the picker's address and that of
// its measured times.
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
