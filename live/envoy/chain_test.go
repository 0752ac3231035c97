//go:build unix

package envoy

import (
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// A payload processor in front of the picker sees the same request, and a
// held one stays held through both.
func TestBodyRouter(t *testing.T) {
	t.Parallel()
	server := (&fakeServer{handle: holding(20*time.Millisecond, 8)}).start(t)
	picker := (&fakePicker{destination: func() string { return server.addr }, held: true, tail: "part two"}).start(t)
	router := (&fakePicker{hook: passOn}).start(t)
	c := onePool()
	c.Pools[0].Picker.Addresses = []string{picker.addr}
	c.BodyRouter = &Processor{Addresses: []string{router.addr}}
	p := startEnvoy(t, c)
	code, body := newClient(t, p, false).post(strings.NewReader("part one"))
	if code != 200 || body != "first part two over HTTP/1.1" {
		t.Errorf("got %d %q", code, body)
	}
	if router.seen.Load() != 1 || picker.seen.Load() != 1 {
		t.Errorf("asked %d and %d times, want once each", router.seen.Load(), picker.seen.Load())
	}
	idle(t, p)
}

// passOn is a full-duplex processor that changes nothing.
func passOn(s extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		out := &extprocv3.ProcessingResponse{}
		switch r := m.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
		case *extprocv3.ProcessingRequest_RequestBody:
			out.Response = &extprocv3.ProcessingResponse_RequestBody{
				RequestBody: streamed(r.RequestBody.Body, r.RequestBody.EndOfStream)}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			out.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}
		case *extprocv3.ProcessingRequest_ResponseBody:
			out.Response = &extprocv3.ProcessingResponse_ResponseBody{
				ResponseBody: streamed(r.ResponseBody.Body, r.ResponseBody.EndOfStream)}
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}
