package epp

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

// seriesOf returns the lines of a family on a registry's page.
func seriesOf(reg *prometheus.Registry, family string) (lines []string) {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, family) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// A decision is counted by the pod that got it and the port, not by the name
// that the port's endpoint has.
func TestAttemptsNameThePodAndItsPort(t *testing.T) {
	t.Parallel()
	k, reg := measured(t, "plugins: [{type: queue-scorer}]")
	e := picker.NewEndpoint("ns", picker.RankName("w", 1), "127.0.0.1", "8001", nil)
	e.Rank = 1
	k.SetEndpoints([]*picker.Endpoint{e})
	k.testAsk(context.Background(), chatHead("1"), hello).leave()
	want := `llm_d_epp_scheduler_attempts_total{endpoint_name="w",namespace="ns",port="8001",status="success",` +
		`target_model_name="m"} 1`
	if got := seriesOf(reg, "llm_d_epp_scheduler_attempts_total"); len(got) != 1 || got[0] != want {
		t.Errorf("%q", got)
	}
}

// An InferenceModelRewrite's choice counts when the request arrives, whatever
// becomes of it: here nobody can take it.
func TestRewritesCountOnArrival(t *testing.T) {
	t.Parallel()
	k, reg := measured(t, "plugins: [{type: queue-scorer}]")
	var set objects.Set
	if err := set.Add("objects.yaml", []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	selection := set.Select("default", "sim")
	selection.Endpoints = nil
	k.Apply(selection, false)
	if x := k.testAsk(context.Background(), chatHead("1"), hello); x.answer == nil {
		t.Error("taken without endpoints")
	}
	// document 004 has the second
	for _, name := range []string{"llm_d_epp_model_rewrite_decisions_total",
		"inference_extension_model_rewrite_decisions_total"} {
		want := name + `{model_name="m",model_rewrite_name="rw",target_model="m-v2"} 1`
		if got := seriesOf(reg, name); len(got) != 1 || got[0] != want {
			t.Errorf("%q", got)
		}
	}
}

// Metrics about ext_proc streams are only there when asked for.
func TestStreamMetricsAreAskedFor(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		reg := prometheus.NewRegistry()
		newServerMetrics(reg, asked).ended(0, nil)
		for _, name := range []string{"llm_d_epp_extproc_streams_inflight", "llm_d_epp_extproc_streams_total",
			"llm_d_epp_extproc_stream_duration_seconds"} {
			if got := seriesOf(reg, name); (len(got) > 0) != asked {
				t.Errorf("asked for %v: %q", asked, got)
			}
		}
	}
}
