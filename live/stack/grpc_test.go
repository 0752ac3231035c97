package stack

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// Calls of vLLM's gRPC service have the same steps in wall time, through the real Envoy, and in virtual time, whatever
// their result: their status is in trailers, and the EPP's own answers reach the client in Envoy's form.
func TestGRPCLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for i, c := range []struct{ name, api, server, pool, load, want string }{
		{name: "streamed", api: "grpc-generate", want: "completed 200 5 <nil>"},
		{name: "whole", api: "grpc-generate", load: ", stream: false", want: "completed 200 5 <nil>"},
		{name: "embedded", api: "grpc-embed", want: "completed 200 0 <nil>"},
		{name: "letters of all planes", api: "grpc-generate", load: ", prompt: {bytes: 300, alphabet: unicode}",
			want: "completed 200 5 <nil>"},
		{name: "limited", api: "grpc-generate", load: ", maxTokens: 2", want: "completed 200 2 <nil>"},
		{name: "the server is overloaded", api: "grpc-generate",
			server: ", faults: [{fault: status=429, requests: [2]}]",
			want:   "overloaded 429 0 gRPC status 8: A fault was asked for: status 429."},
		{name: "the server answers nothing", api: "grpc-generate",
			server: ", faults: [{fault: no-body, requests: [2]}]", want: "broken 200 0 the response is empty"},
		{name: "the server answers no content", api: "grpc-generate",
			server: ", faults: [{fault: status=204, requests: [2]}]",
			want:   "server_error 500 0 gRPC status 2: HTTP status 204"},
		{name: "the connection is reset in the prefill", api: "grpc-generate",
			server: ", faults: [{fault: die-in-prefill, requests: [2]}]",
			want: "unavailable 503 0 gRPC status 14: upstream connect error or disconnect/reset before headers. " +
				"reset reason: remote reset"},
		{name: "the prompt is too long", api: "grpc-generate", server: ", maxModelLen: 8",
			want: "refused 400 0 gRPC status 3: This model's maximum context length is 8 tokens. However, your " +
				"request has 25 input tokens. Please reduce the length of the input messages."},
		{name: "the server stalls within the answer", api: "grpc-generate",
			server: ", faults: [{fault: stall=2, requests: [2]}]", load: ", timeout: 5s",
			want: "timed_out 200 2 the client's own time limit"},
		{name: "the picker refuses", api: "grpc-generate", pool: "\n    epp: {maxBodyBytes: 64}",
			want: `server_error 500 0 gRPC status 2: {"error":{"code":413,"message":"the request body has more than ` +
				`64 bytes; send a shorter prompt or raise the limit","param":null,"type":"invalid_request_error"}}`},
		{name: "the client leaves", api: "grpc-generate", server: ", faults: [{fault: stall, requests: [2]}]",
			load: ", leaving: {requests: [2], after: 3s}", want: "left <nil> <nil> the client left"},
	} {
		if !nightly.Each(i, 3) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			live, _ := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 2ms, outputTokens: 5%s}%s
workload: {api: %s, requests: 3%s}
`, c.server, c.pool, c.api, c.load))
			got := ""
			for _, e := range live {
				if e.Step == record.Finished && e.Request == record.RequestID(1, 2) {
					got = fmt.Sprintf("%v %v %v %v", e.Details.Get("outcome"), e.Details.Get("status"),
						e.Details.Get("tokens"), e.Details.Get("reason"))
				}
			}
			if got != c.want {
				t.Errorf("expected %s, got %s", c.want, got)
			}
		})
	}
}
