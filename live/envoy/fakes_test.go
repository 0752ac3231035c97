//go:build unix

package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	core "github.com/windtunnel/windtunnel/core/epp/picker"
)

// fakePicker is as much of an EPP as the gateway's settings need to be tried
// on: it reads the body to its end, names a destination, and either passes
// the body on or holds the request open until the first token.
type fakePicker struct {
	extprocv3.UnimplementedExternalProcessorServer
	addr   string
	server *grpc.Server
	// destination is put into the header for each request.
	destination func() string
	// held keeps the request open and sends tail after the first token.
	held bool
	tail string
	// buffered answers as an EPP of document 003 does, that sees whole bodies.
	buffered bool
	// maxBody answers 413 as soon as a body is longer; 0 is no limit.
	maxBody int
	// hook replaces all of the behaviour below.
	hook    func(extprocv3.ExternalProcessor_ProcessServer) error
	streams atomic.Int64 // open now
	seen    atomic.Int64 // ever opened

	mu     sync.Mutex
	served []string // what Envoy said of where requests went
}

func (f *fakePicker) start(t *testing.T) *fakePicker {
	t.Helper()
	l, err := net.Listen("tcp", cmpOr(f.addr, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	f.server = grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(f.server, f)
	h := health.NewServer()
	h.SetServingStatus("envoy.service.ext_proc.v3.ExternalProcessor", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(f.server, h)
	done := make(chan struct{})
	go func() { defer close(done); _ = f.server.Serve(l) }()
	t.Cleanup(func() { f.server.Stop(); <-done })
	return f
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Process is one request.
func (f *fakePicker) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	f.seen.Add(1)
	f.streams.Add(1)
	defer f.streams.Add(-1)
	if f.hook != nil {
		return f.hook(s)
	}
	var body bytes.Buffer
	ok, tailSent := false, false
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		switch r := m.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			if r.RequestHeaders.EndOfStream {
				err = f.sendHeaders(s)
			} else if f.buffered {
				err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
					RequestHeaders: &extprocv3.HeadersResponse{}}})
			}
		case *extprocv3.ProcessingRequest_RequestBody:
			body.Write(r.RequestBody.Body)
			if f.maxBody > 0 && body.Len() > f.maxBody {
				return s.Send(immediate(typev3.StatusCode_PayloadTooLarge, `{"error":{"message":"too large"}}`))
			}
			if f.buffered {
				err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
					RequestBody: &extprocv3.BodyResponse{
						Response: &extprocv3.CommonResponse{HeaderMutation: f.destine()}}}})
			} else if r.RequestBody.EndOfStream {
				err = errors.Join(f.sendHeaders(s), sendRequestBody(s, body.Bytes(), !f.held))
			}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			f.note(m)
			ok = strings.HasPrefix(headerValue(r.ResponseHeaders.Headers, ":status"), "2")
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
				ResponseHeaders: &extprocv3.HeadersResponse{}}})
		case *extprocv3.ProcessingRequest_ResponseBody:
			if f.held && ok && !tailSent && len(r.ResponseBody.Body) > 0 {
				tailSent = true
				err = sendRequestBody(s, []byte(f.tail), true)
			}
			err = errors.Join(err, s.Send(
				&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
					ResponseBody: streamed(r.ResponseBody.Body, r.ResponseBody.EndOfStream)}}))
		case *extprocv3.ProcessingRequest_RequestTrailers:
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
				RequestTrailers: &extprocv3.TrailersResponse{}}})
		case *extprocv3.ProcessingRequest_ResponseTrailers:
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
				ResponseTrailers: &extprocv3.TrailersResponse{}}})
		}
		if err != nil {
			return err
		}
	}
}

func (f *fakePicker) note(m *extprocv3.ProcessingRequest) {
	served := ""
	if md := m.GetMetadataContext().GetFilterMetadata()[core.NamespaceLB]; md != nil {
		served = md.Fields[core.KeyServed].GetStringValue()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served = append(f.served, served)
}

func (f *fakePicker) servedBy() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.served)
}

func (f *fakePicker) sendHeaders(s extprocv3.ExternalProcessor_ProcessServer) error {
	return s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{
			HeaderMutation: f.destine(),
		}},
	}})
}

func (f *fakePicker) destine() *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{
		Header: &corev3.HeaderValue{Key: core.HeaderDestination, RawValue: []byte(f.destination())},
	}}}
	if !f.buffered {
		m.RemoveHeaders = []string{"content-length"}
	}
	return m
}

func sendRequestBody(s extprocv3.ExternalProcessor_ProcessServer, b []byte, end bool) error {
	const chunk = 60_000
	for len(b) > chunk {
		if err := s.Send(&extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: streamed(b[:chunk], false)}}); err != nil {
			return err
		}
		b = b[chunk:]
	}
	return s.Send(&extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: streamed(b, end)}})
}

func streamed(b []byte, end bool) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: b, EndOfStream: end}},
	}}}
}

func immediate(code typev3.StatusCode, body string) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{Status: &typev3.HttpStatus{Code: code}, Body: []byte(body)},
	}}
}

func headerValue(h *corev3.HeaderMap, key string) string {
	for _, v := range h.GetHeaders() {
		if v.Key == key {
			return cmpOr(string(v.RawValue), v.Value)
		}
	}
	return ""
}

// fakeServer is a model server: by default it reads the whole body and says
// its own address and the number of bytes.
type fakeServer struct {
	addr     string
	requests atomic.Int64
	server   *http.Server
	handle   http.HandlerFunc
}

func (f *fakeServer) start(t *testing.T) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	f.server = &http.Server{Protocols: &p, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		if f.handle != nil {
			f.handle(w, r)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s read %d bytes over %s", f.addr, n, r.Proto)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = f.server.Serve(l) }()
	t.Cleanup(func() { f.server.Close(); <-done })
	return f
}

// holding answers the first token while the request is still open, and then
// echoes what came after it.
func holding(prefill time.Duration, part1 int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		if _, err := io.ReadFull(r.Body, make([]byte, part1)); err != nil {
			return
		}
		select {
		case <-time.After(prefill):
		case <-r.Context().Done():
			return
		}
		io.WriteString(w, "first ")
		rc.Flush()
		rest, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "%s over %s", rest, r.Proto)
	}
}

// client makes one request and returns status and body.
type client struct {
	t    *testing.T
	addr string
	http *http.Client
}

func newClient(t *testing.T, p *Process, h2 bool) *client {
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	tr := &http.Transport{Protocols: &protocols}
	t.Cleanup(tr.CloseIdleConnections)
	return &client{t: t, addr: p.Addr, http: &http.Client{Transport: tr, Timeout: 30 * time.Second}}
}

func (c *client) post(body io.Reader, headers ...string) (int, string) {
	c.t.Helper()
	code, text, err := c.try(body, headers...)
	if err != nil {
		c.t.Fatal(err)
	}
	return code, text
}

func (c *client) try(body io.Reader, headers ...string) (int, string, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+c.addr+"/v1/completions",
		body)
	if err != nil {
		return 0, "", err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
