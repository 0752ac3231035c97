package epp

import (
	"context"
	"fmt"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// timed is a measured picking whose plug-ins' turns are timed.
func timed(t *testing.T, text string) (*Picking, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	k := picking(t, text, 2, func(o *PickingOptions) {
		o.Metrics = NewPickMetrics(reg, "pool")
		o.Picker = pickerOf(t, text, picker.Options{Stopwatch: func() machine.Time { return 0 }})
	})
	if err := ObservePool(reg, k, "pool"); err != nil {
		t.Fatal(err)
	}
	return k, reg
}

// counted is how often a plug-in's turn at an extension point counted.
func counted(t *testing.T, reg *prometheus.Registry, point, plugin string) (n int) {
	t.Helper()
	at := fmt.Sprintf("llm_d_epp_plugin_duration_seconds_count{extension_point=%q,plugin_name=%q,plugin_type=%[2]q} ",
		point, plugin)
	for _, line := range seriesOf(reg, "llm_d_epp_plugin_duration_seconds_count") {
		if v, ok := strings.CutPrefix(line, at); ok {
			if _, err := fmt.Sscan(v, &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// Every call of a hook counts: of a stream each piece, of another response the
// end, and trailers; and what was read of a response that broke off.
func TestHooksAreCounted(t *testing.T) {
	t.Parallel()
	text := strings.Replace(byProgram, "- {type: active-request-scorer}\n",
		"- {type: active-request-scorer}\n- {type: destination-endpoint-served-verifier}\n", 1)
	k, reg := timed(t, text)
	rig := startWire(t, k)
	end := func(s wireStream) {
		t.Helper()
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			_, err = s.Recv()
		}
	}
	headers := func(s wireStream, kind string) {
		s.send(&extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_ResponseHeaders{
				ResponseHeaders: headMessage(":status", "200", "content-type", kind)}})
	}
	piece := func(s wireStream, text string, end bool) {
		s.send(&extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: bodyMessage(text, end)}})
	}
	type counts struct{ preRequest, received, streaming, parsing, responses int }
	var want counts
	check := func(what string, more counts) {
		t.Helper()
		want = counts{want.preRequest + more.preRequest, want.received + more.received, want.streaming + more.streaming,
			want.parsing + more.parsing, want.responses + more.responses}
		for _, plugin := range []string{"program-aware-fairness", "inflight-load-producer"} {
			got := counts{counted(t, reg, "PreRequest", plugin),
				counted(t, reg, "ResponseReceived", "destination-endpoint-served-verifier"),
				counted(t, reg, "ResponseStreaming", plugin), counted(t, reg, "ResponseParsing", "openai-parser"), 0}
			for _, line := range seriesOf(reg, "llm_d_epp_response_processing_duration_seconds_count ") {
				_, _ = fmt.Sscanf(line, "llm_d_epp_response_processing_duration_seconds_count %d", &got.responses)
			}
			if got != want {
				t.Errorf("after %s %s has %+v, not %+v", what, plugin, got, want)
			}
		}
	}

	s := rig.open()
	headers(s, "text/event-stream")
	piece(s, "data: {}\n\n", false)
	piece(s, "data: [DONE]\n\n", false)
	piece(s, "", true)
	end(s)
	check("a stream", counts{1, 1, 3, 3, 1})

	s = rig.open()
	headers(s, "application/json")
	piece(s, `{"usage":`, false)
	piece(s, `{}}`, true)
	end(s)
	check("a response in two pieces", counts{1, 1, 1, 1, 1})

	s = rig.open()
	headers(s, "text/event-stream")
	piece(s, "data: {}\n\n", false)
	s.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}})
	end(s)
	check("a stream with trailers", counts{1, 1, 2, 2, 1})

	s = rig.open()
	headers(s, "text/event-stream")
	piece(s, "data: {}\n\n", false)
	end(s)
	check("a stream that broke off", counts{1, 1, 2, 1, 1}) // its end counts, too

	s = rig.open()
	headers(s, "application/json")
	piece(s, `{"usage":`, false)
	end(s)
	check("a response that broke off", counts{1, 1, 1, 0, 1})

	end(rig.open())
	check("a request without a response", counts{preRequest: 1, streaming: 1})
}

// Of a body that nobody looks into there are no tokens, and so no prefix to be
// found.
func TestOpaqueBodyHasNoPrefix(t *testing.T) {
	t.Parallel()
	k, reg := timed(t, "plugins: [{type: prefix-cache-scorer}, {type: queue-scorer}]")
	for times, path := range []string{"/v1/messages/count_tokens", "/v1/messages"} {
		k.testAsk(context.Background(), header.Of(":method", "POST", ":path", path, "x-request-id", "1"), hello).leave()
		if got := counted(t, reg, "DataProducer", "approx-prefix-cache-producer"); got != times {
			t.Errorf("%s: the prefix was looked for %d times", path, got)
		}
		if got := seriesOf(reg, "llm_d_epp_prefix_indexer_hit_bytes_count"); len(got) != times {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got := counted(t, reg, "DataProducer", "token-producer"); got != 2 {
		t.Errorf("tokens were asked for %d times", got)
	}
}

// A program counts once one of its requests was sent on or weighed against
// others, and its service once it had any. The index is there from the start.
func TestProgramsCountOnceWeighed(t *testing.T) {
	t.Parallel()
	k, reg := timed(t, byProgram)
	k.SetEndpoints(nil)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		k.testAsk(ctx, chatHead("1", picker.HeadersFairness[0], "waits"), hello).leave()
	}()
	for waits := int64(0); waits == 0; {
		k.With(func(m *core.Machine, now machine.Time) { waits = m.FlowControl().Snapshot(now).Queued })
	}
	if got := seriesOf(reg, "llm_d_epp_program_aware"); len(got) != 1 || !strings.Contains(got[0], "fairness_index 0") {
		t.Errorf("%q", got)
	}
	cancel()
	<-gone
	k.SetEndpoints([]*picker.Endpoint{picker.NewEndpoint("default", "w", "127.0.0.1", "8000", nil)})
	x := k.testAsk(t.Context(), chatHead("2", picker.HeadersFairness[0], "works"), hello)
	if got := seriesOf(reg, "llm_d_epp_program_aware"); len(got) != 2 ||
		!strings.Contains(got[0], `wait_time_milliseconds{program_id="works"}`) ||
		!strings.Contains(got[1], "fairness_index 1") {
		t.Errorf("%q", got)
	}
	x.leave()
	k.serveOne(t, chatHead("3", picker.HeadersFairness[0], "works"), hello)
	if got := seriesOf(reg, `llm_d_epp_program_aware_attained_service_tokens{program_id="works"}`); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
