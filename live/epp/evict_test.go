package epp

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/objects"
)

const evicting = `
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
- {type: random-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: random-picker}]}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
`

func (k *Picking) objectives(o map[string]int) {
	k.Input(core.Objects{Selection: objects.Selection{Objects: picker.Objects{Objectives: o}}, KeepEndpoints: true})
}

func bodyMessage(text string, end bool) *extprocv3.HttpBody {
	return &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}
}

func headMessage(pairs ...string) *extprocv3.HttpHeaders {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return &extprocv3.HttpHeaders{Headers: m}
}

// A waiting request of a higher priority ends one that is being served: its
// stream gets the recorded answer and ends, before its response as well as in
// the middle of it.
func TestEvictionOverTheWire(t *testing.T) {
	for _, answering := range []bool{false, true} {
		k := picking(t, evicting, 1)
		k.objectives(map[string]int{"low": -1, "high": 10})
		s, err := Start(Options{Address: "127.0.0.1:0", Pickers: k, Now: k.o.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Kill)
		conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		t.Cleanup(cancel)
		open := func(objective string) extprocv3.ExternalProcessor_ProcessClient {
			t.Helper()
			c, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
			if err == nil {
				err = c.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
					RequestHeaders: headMessage(":method", "POST", ":path", "/v1/chat/completions", "x-llm-d-inference-objective", objective)}})
			}
			if err == nil {
				err = c.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
					RequestBody: bodyMessage(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`, true)}})
			}
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		next := func(c extprocv3.ExternalProcessor_ProcessClient) *extprocv3.ProcessingResponse {
			t.Helper()
			m, err := c.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		low := open("low")
		for next(low).GetRequestBody() == nil {
		}
		if answering {
			err := errors.Join(
				low.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headMessage(":status", "200", "content-type", "text/event-stream")}}),
				low.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: bodyMessage("data: {}\n\n", false)}}))
			if err != nil {
				t.Fatal(err)
			}
			for next(low).GetResponseBody() == nil {
			}
		}
		high := open("high")
		answer := next(low).GetImmediateResponse()
		if answer.GetStatus().GetCode() != 429 || string(answer.GetBody()) != "request evicted by flow control" ||
			len(answer.GetHeaders().GetSetHeaders()) != 1 || string(answer.Headers.SetHeaders[0].Header.RawValue) != "evicted" {
			t.Errorf("answering %v: the held stream got %v", answering, answer)
		}
		if _, err := low.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("answering %v: the held stream ended with %v", answering, err)
		}
		if first := next(high); first.GetRequestHeaders() == nil {
			t.Errorf("answering %v: the other one got %v", answering, first)
		}
	}
}
