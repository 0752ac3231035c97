package epp

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

// Document 002's deep dive, played three times: scores of 0.75, 2.40 and 0.90
// under the document's own metric names, and those of document 003.
func TestDocumentMetricNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	k := picking(t, `
plugins:
- {name: ReadyFilter, type: ready-filter}
- {type: session-prefix-scorer}
- {type: qps-load-scorer}
- {type: session-sticky-scorer}
- {type: prefix-cache-scorer}
schedulingProfiles:
- name: decode
  plugins:
  - {pluginRef: ReadyFilter}
  - {pluginRef: session-prefix-scorer, weight: 2}
  - {pluginRef: qps-load-scorer, weight: 1}
  - {pluginRef: session-sticky-scorer, weight: 0}
  - {pluginRef: prefix-cache-scorer, weight: 0}
`, 0, func(o *PickingOptions) { o.Metrics = NewPickMetrics(reg, "pool") })
	serving := map[string]*picker.Announced{
		"decode-pod-0": {Ready: true, QPS: 5, MaxQPS: 20},
		"decode-pod-1": {Ready: true, QPS: 12, MaxQPS: 20, Sessions: []string{"conv-xyz"}},
		"decode-pod-2": {Ready: true, QPS: 2, MaxQPS: 20},
		"decode-pod-3": {},
	}
	pool := objects.Selection{Announced: map[string]*picker.Announced{}}
	for name, s := range serving {
		pool.Endpoints = append(pool.Endpoints,
			picker.NewEndpoint("default", name, "127.0.0."+name[len(name)-1:], "8000", nil))
		pool.Announced["default/"+name] = s
	}
	k.Apply(pool, false)
	for i := range 3 {
		k.testAsk(context.Background(), chatHead(fmt.Sprint(i), "x-session-id", "conv-xyz"), hello).leave()
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	page := "\n" + w.Body.String()
	for _, line := range []string{
		`scheduler_requests_total{decision="selected",profile="decode"} 3`,
		`scheduler_requests_total{decision="failed",profile="decode"} 0`,
		`scheduler_pod_score{pod="decode-pod-0",profile="decode"} 0.75`,
		`scheduler_pod_score{pod="decode-pod-1",profile="decode"} 2.4`,
		`scheduler_pod_score{pod="decode-pod-2",profile="decode"} 0.9`,
		`scheduler_cache_hits_total{profile="decode"} 2`,
		`scheduler_cache_misses_total{profile="decode"} 1`,
		`llmd_epp_scheduling_decisions_total{result="success"} 3`,
		`llmd_epp_scheduling_decisions_total{result="no_pods"} 0`,
		`llmd_epp_scheduling_decisions_total{result="filtered_out"} 0`,
		`llmd_epp_scheduling_duration_seconds_count 3`,
		`llmd_epp_candidate_pods_total 12`,
		`llmd_epp_filtered_pods_total 3`,
		`llmd_epp_scored_pods_total 9`,
		`llmd_epp_cache_hit_rate{pod="decode-pod-1"} 0.6666666666666666`,
		`llmd_epp_cache_prefix_length_bytes{pod="decode-pod-1"} 256`,
		`llmd_epp_session_affinity_hits_total 2`,
		`llmd_epp_session_affinity_misses_total 1`,
	} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, name := range []string{"scheduler_decision_duration_seconds{profile=\"decode\"} ",
		`llmd_epp_scheduling_duration_seconds{quantile="0.99"} `} {
		if !strings.Contains(page, "\n"+name) {
			t.Errorf("no %s", name)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}
