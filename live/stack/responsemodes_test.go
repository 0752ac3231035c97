package stack

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// A picker that takes longer than processingTimeout (document 003) is given up by
// Envoy: the client gets a 504, or with FailOpen any server's answer.
func TestProcessingTimeoutLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{"FailClose": {"completed", "completed", "timed_out", "timed_out"},
		"FailOpen": {"completed", "completed", "completed", "completed"}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			// whether the picker hears first that Envoy is gone, or gives the request up first, is a race in wall time
			live, played := liveInStep(t,
				oneAtATime("12s", "      bodyMode: BUFFERED\n      processingTimeout: 4s\n", "60s")+
					fmt.Sprintf("    replicas: 2\n    failureMode: %s\nworkload: {requests: 4, rate: 20, "+
						"concurrency: 4}", mode), record.EPP)
			for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
				var got []string
				for _, e := range events {
					if e.Step == record.Finished {
						got = append(got, fmt.Sprint(e.Details.Get("outcome")))
					}
				}
				if counts(got) != counts(want) {
					t.Errorf("%s: %v, expected %v", when, got, want)
				}
			}
		})
	}
}

func counts(of []string) string {
	n := map[string]int{}
	for _, s := range of {
		n[s]++
	}
	return fmt.Sprint(n)
}

// The scenario decides which parts of responses the picker sees, in both times, and therefore its figures: none, or
// those of document 004's note on body modes.
func TestResponseBodyModes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		request, response string
		sees, whole       bool
	}{
		{"BUFFERED", "", false, false}, {"BUFFERED", "NONE", false, false}, {"BUFFERED", "STREAMED", true, false},
		{"BUFFERED", "BUFFERED", true, true},
		{"FULL_DUPLEX_STREAMED", "BUFFERED", true, true}, {"FULL_DUPLEX_STREAMED", "STREAMED", true, false},
	} {
		t.Run(c.request+" "+c.response, func(t *testing.T) {
			t.Parallel()
			response := ""
			if c.response != "" {
				response = "responseBodyMode: " + c.response
			}
			text := fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: plain
    modelServer: {prefill: 20ms, interTokenLatency: 50ms, outputTokens: 8}
    epp:
      bodyMode: %s
      %s
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: queue-scorer}]
        schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
workload: {requests: 1, bodyFields: '{"stream_options": {"include_usage": true}}'}
`, c.request, response)
			live, played := liveAsVirtual(t, text)
			for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
				at := map[record.Step]record.Event{}
				for _, e := range events {
					if e.Hop == record.Client || e.Hop == record.EPP && e.Step == record.FirstTokenSeen ||
						e.Hop == record.Server && e.Step == record.LastTokenSent {
						at[e.Step] = e
					}
				}
				if _, sees := at[record.FirstTokenSeen]; sees != c.sees {
					t.Errorf("%s: the picker sees the first token: %v", when, sees)
				}
				whole := at[record.FirstTokenReceived].Time >= at[record.LastTokenSent].Time
				if when == "live" && !c.whole { // where the picker may be late
					whole = at[record.FirstTokenReceived].Details.Get(
						"bytes") == at[record.LastTokenReceived].Details.Get(
						"bytes")
				}
				if whole != c.whole {
					t.Errorf("%s: the client has the first token only with the last: %v", when, whole)
				}
			}
			s, err := scenario.Parse("modes.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, s, nil)
			r.load()
			page := r.page("http://" + r.Picker.Server().MetricsAddr())
			for _, name := range []string{"llm_d_epp_request_output_tokens_sum{",
				"inference_objective_output_tokens_sum{", "inference_objective_input_tokens_sum{",
				"inference_objective_prompt_cached_tokens_sum{",
				"llm_d_epp_response_size_bytes_count{"} {
				if strings.Contains(page, "\n"+name) != c.sees {
					t.Errorf("%s on the page: %v", name, !c.sees)
				}
			}
		})
	}
}
