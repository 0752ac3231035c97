package held

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// reference is the minimal implementation of document 000's flow: an ext_proc server that wraps, holds and injects,
// and an upstream that waits for part 2. It has no checks, deadlines, record or metrics. Windtunnel's own parts are
// measured against it, so it writes and flushes as they do, on a gRPC server and an HTTP server with the same
// options.
type reference struct {
	extprocv3.UnimplementedExternalProcessorServer
	upstream string
}

const refBoundary = "reference-boundary-0123456789"

func (r *reference) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	var body []byte
	held := false
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
			err = s.Send(&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
					Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: setHeaders(
						header("x-gateway-destination-endpoint", r.upstream),
						header("content-type", "multipart/form-data; boundary="+refBoundary))}}}})
			if err == nil {
				part1 := "--" + refBoundary + "\r\nContent-Disposition: form-data; name=\"request_payload\"\r\n\r\n" +
					string(body) + "\r\n--" + refBoundary + "\r\n"
				err, held = s.Send(requestBody(part1, false)), true
			}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			err = s.Send(&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}})
		case *extprocv3.ProcessingRequest_ResponseBody:
			if held && len(m.ResponseBody.Body) > 0 {
				held = false
				err = s.Send(requestBody("Content-Disposition: form-data; name=\"metadata\"\r\n\r\nabcdefgh\r\n--"+
					refBoundary+"--\r\n", true))
			}
			if err == nil {
				err = s.Send(&extprocv3.ProcessingResponse{
					Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{
						Response: &extprocv3.CommonResponse{
							BodyMutation: mutation(m.ResponseBody.Body, m.ResponseBody.EndOfStream)}}}})
			}
		}
		if err != nil {
			return err
		}
	}
}

func header(key, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
}

// setHeaders sets headers of a request whose length changes.
func setHeaders(set ...*corev3.HeaderValueOption) *extprocv3.HeaderMutation {
	return &extprocv3.HeaderMutation{RemoveHeaders: []string{"content-length"}, SetHeaders: set}
}

func requestBody(b string, end bool) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{
			Response: &extprocv3.CommonResponse{BodyMutation: mutation([]byte(b), end)}}}}
}

func mutation(b []byte, end bool) *extprocv3.BodyMutation {
	return &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: b, EndOfStream: end}}}
}

// refTokens is the number of tokens in either side's answers.
const refTokens = 4

// refEvent is one event, with the fields that clients of the API require.
const refEvent = `data: {"id":"chatcmpl-6f1f2c1b0a0e4c3d","object":"chat.completion.chunk","created":1700000000,` +
	`"model":"m","choices":[{"index":0,"delta":{"content":" tok"},"logprobs":null,"finish_reason":null}]}` + "\n\n"

func (r *reference) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // HTTP/2 does not need it
	_, params, _ := mime.ParseMediaType(req.Header.Get("content-type"))
	mr := multipart.NewReader(req.Body, params["boundary"])
	part, err := mr.NextPart()
	if err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	if _, err := io.Copy(io.Discard, part); err != nil {
		return
	}
	w.Header().Set("content-type", "text/event-stream")
	_, _ = io.WriteString(w, refEvent+refEvent) // the role, and the first token
	_ = control.Flush()
	part, err = mr.NextPart()
	if err != nil {
		return
	}
	metadata, _ := io.ReadAll(part)
	_, _ = io.Copy(io.Discard, req.Body)
	// Data that is ready at the same time is written at once, as windtunnel's server does.
	_, _ = io.WriteString(w,
		strings.Repeat(refEvent, refTokens-1)+"data: {\"choices\":[],\"metadata\":"+
			strconv.Quote(string(bytes.TrimSpace(metadata)))+"}\n\ndata: [DONE]\n\n")
}

// startReference serves both and returns their addresses.
func startReference() ([]string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &reference{upstream: l.Addr().String()}
	server := &http.Server{Handler: r}
	go func() { _ = server.Serve(l) }()
	return serveWatched(e, r)
}
