package parts

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/live/epp"
)

// A picker that runs alone names the chosen pod with --pod-headers (documents 002 and 003), and the reason with
// --explain-headers, without a header in the request.
func TestPodHeaders(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]struct{ request, response []string }{
		"--secure-serving=false": {},
		"--pod-headers": {request: []string{"x-target-pod", "x-selected-pod"},
			response: []string{"x-selected-pod"}},
		"--explain-headers": {request: []string{"x-target-pod", "x-selected-pod"},
			response: []string{"x-selected-pod", "x-scheduling-time-ms", "x-filter-time-ms", "x-scorer-time-ms",
				"x-windtunnel-scores"}},
	} {
		o := console.New()
		o.Stdout, o.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
		o.Env = func(string) (string, bool) { return "", false }
		var c EPP
		if _, err := line(o, &c, "epp",
			[]string{"--pool-name=p", "--secure-serving=false", "--grpc-port=0", "--grpc-health-port=0",
				"--metrics-port=0", flag}, o.Env); err != nil {
			t.Fatal(flag, err)
		}
		opts, err := c.options(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(flag, err)
		}
		opts.Config, opts.ConfigName = []byte("plugins: [{type: round-robin-picker}]"), "round robin"
		opts.Fill = func(k *epp.Picking) error {
			k.SetEndpoints([]*picker.Endpoint{picker.NewEndpoint("default", "a", "127.0.0.7", "8000", nil)})
			return nil
		}
		s, err := epp.StartStandalone(opts)
		if err != nil {
			t.Fatal(flag, err)
		}
		t.Cleanup(func() { _ = s.Stop(context.Background()) })
		conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		head := func(pairs ...string) *extprocv3.HttpHeaders {
			m := &corev3.HeaderMap{}
			for i := 0; i < len(pairs); i += 2 {
				m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
			}
			return &extprocv3.HttpHeaders{Headers: m}
		}
		for _, m := range []*extprocv3.ProcessingRequest{
			{Request: &extprocv3.ProcessingRequest_RequestHeaders{
				RequestHeaders: head(":method", "POST", ":path", "/v1/completions", "x-request-id", "1")}},
			{Request: &extprocv3.ProcessingRequest_RequestBody{
				RequestBody: &extprocv3.HttpBody{Body: []byte(`{"model":"m","prompt":"hi"}`), EndOfStream: true}}},
			{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: head(":status", "200")}},
		} {
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		var request, response map[string]string
		for response == nil {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(flag, err)
			}
			if h := m.GetRequestHeaders(); h != nil {
				request = set(h)
			}
			if h := m.GetResponseHeaders(); h != nil {
				response = set(h)
			}
		}
		for _, name := range []string{"x-target-pod", "x-selected-pod", "x-scheduling-time-ms", "x-filter-time-ms",
			"x-scorer-time-ms", "x-windtunnel-scores"} {
			for side, x := range map[string]struct {
				got  map[string]string
				want []string
			}{"request": {request, want.request}, "response": {response, want.response}} {
				if _, is := x.got[name]; is != slices.Contains(x.want, name) {
					t.Errorf("%s: %s on the %s: %v", flag, name, side, is)
				}
			}
		}
		if request["x-gateway-destination-endpoint"] != "127.0.0.7:8000" || len(want.request) > 0 &&
			request["x-target-pod"] != "127.0.0.7" {
			t.Errorf("%s: %v", flag, request)
		}
	}
}

// set returns the headers that an answer sets.
func set(h *extprocv3.HeadersResponse) map[string]string {
	out := map[string]string{}
	for _, v := range h.GetResponse().GetHeaderMutation().GetSetHeaders() {
		out[v.GetHeader().GetKey()] = string(v.GetHeader().GetRawValue())
	}
	return out
}
