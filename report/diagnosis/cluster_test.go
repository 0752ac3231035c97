package diagnosis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/core/record"
)

// cluster answers queries that contain a text with series, and notes all queries.
type cluster struct {
	answers map[string][]Series
	asked   []string
	fails   string
}

func (c *cluster) Instant(_ context.Context, query string, _ time.Time) (out []Series, err error) {
	c.asked = append(c.asked, query)
	if c.fails != "" && strings.Contains(query, c.fails) {
		return nil, errors.New("no answer")
	}
	longest := ""
	for text := range c.answers {
		if strings.Contains(query, text) && len(text) > len(longest) {
			longest = text
		}
	}
	return c.answers[longest], nil
}

func (c *cluster) Range(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]Series, error) {
	if n := to.Sub(from) / step; n < 1 || n > 11_000 {
		return nil, errors.New("more steps than Prometheus answers")
	}
	return c.Instant(ctx, "range "+query, to)
}

func one(v float64, labels ...string) Series {
	s := Series{Labels: map[string]string{}, Times: []float64{1e9}, Values: []float64{v}}
	for i := 0; i < len(labels); i += 2 {
		s.Labels[labels[i]] = labels[i+1]
	}
	return s
}

// counts are cumulative, by upper bounds.
type counts map[string]float64

func buckets(of counts) (list []Series) {
	for le, n := range of {
		list = append(list, one(n, "le", le))
	}
	return list
}

var window = Window{To: time.Unix(1e9, 0), For: 10 * time.Minute,
	SLO: record.SLO{TTFT: 500 * time.Millisecond, TPOT: 40 * time.Millisecond}}

// A cluster whose servers queue: the metrics of vLLM and llm-d lead to the leaf of the guide, and each figure has its
// pod and its moment.
func TestClusterThatQueues(t *testing.T) {
	c := &cluster{answers: map[string][]Series{
		"llm_d_epp_request_total[600s])) or sum(increase(vllm": {one(2000)},
		"avg_over_time(vllm:num_requests_waiting":              {one(40, "pod", "a"), one(38, "pod", "b")},
		"avg_over_time(vllm:kv_cache_usage_perc":               {one(0.2, "pod", "a")},
		"quantile_over_time(0.5, vllm:num_requests_running":    {one(1, "pod", "a")},
		"range vllm:num_requests_waiting": {{Labels: map[string]string{"pod": "b"}, Times: []float64{1e9 - 60, 1e9},
			Values: []float64{90, 3}}},
		"vllm:time_to_first_token_seconds_bucket": buckets(counts{"0.25": 0, "0.5": 200, "1": 400, "+Inf": 2000}),
		"vllm:request_time_per_output_token":      buckets(counts{"0.02": 1000, "0.04": 2000, "+Inf": 2000}),
	}}
	f, err := Cluster(t.Context(), c, window)
	if err != nil {
		t.Fatal(err)
	}
	d := diagnose.Of(f)
	if len(d.Findings) != 1 || d.Findings[0].Leaf != diagnose.MaxNumSeqs || d.Findings[0].Sure != diagnose.Certain {
		t.Fatalf("%+v", d)
	}
	const expected = "queue 40 requests (a, in the 10m0s to 2001-09-09T01:46:40Z): above 10 requests"
	if !strings.HasPrefix(d.Findings[0].Evidence[0], expected) {
		t.Errorf("found %q; expected %q", d.Findings[0].Evidence[0], expected)
	}
	if text := strings.Join(d.Symptoms, "; "); !strings.HasPrefix(text, "requests within their objectives 10%") {
		t.Errorf("found symptoms %s; expected that a tenth of the first tokens is in time", text)
	}
	i := slices.IndexFunc(f.Figures, func(x diagnose.Figure) bool { return x.Name == diagnose.QueuePeak })
	if i < 0 || f.Figures[i] != (diagnose.Figure{Name: diagnose.QueuePeak, Value: 90, Where: "b",
		When: "at 2001-09-09T01:45:40Z"}) {
		t.Errorf("the longest queue is %+v", f.Figures)
	}
	// Prometheus can parse each query.
	for _, q := range c.asked {
		if _, err := parser.ParseExpr(strings.TrimPrefix(q, "range ")); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	if len(c.asked) < 20 {
		t.Errorf("%d queries", len(c.asked))
	}
}

// Document 003's own names, blocked prefillers, and a picker that is slow by its histogram.
func TestClusterByDocument(t *testing.T) {
	failing := map[string][]Series{
		"llm_d_epp_request_error_total":                        {one(0.3)},
		"llmd_sidecar_ssrf_blocked_requests":                   {one(599.6)},
		"llm_d_epp_request_total[600s])) or sum(increase(vllm": {one(2000)},
	}
	f, err := Cluster(t.Context(), &cluster{answers: failing}, window)
	if err != nil {
		t.Fatal(err)
	}
	if d := diagnose.Of(f); d.Leaf(diagnose.OutsidePool) == nil ||
		!strings.HasPrefix(d.Findings[0].Evidence[0], "600 times") {
		t.Errorf("%+v", d)
	}
	slow := map[string][]Series{
		"llm_d_epp_request_total[600s])) or sum(increase(vllm": {one(2000)},
		"llmd_epp_scheduling_duration_seconds":                 {one(0.3)},
		"llm_d_epp_request_ttft_seconds_bucket":                buckets(counts{"0.5": 100, "1": 2000, "+Inf": 2000}),
	}
	if f, err = Cluster(t.Context(), &cluster{answers: slow}, window); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.Figures, func(x diagnose.Figure) bool { return x.Name == diagnose.Pick90 })
	if i < 0 || f.Figures[i].Value != 0.3 {
		t.Errorf("%+v", f.Figures)
	}
	if _, err := Cluster(t.Context(), &cluster{fails: "vllm:nixl_num_failed"}, window); err == nil {
		t.Error("no error although a query failed")
	}
	f, err = Cluster(t.Context(), &cluster{}, window)
	if err != nil || len(f.Figures)+len(f.Complaints) > 0 {
		t.Errorf("of a Prometheus without metrics: found %+v, %v", f, err)
	}
}

func TestHistogram(t *testing.T) {
	c := &cluster{answers: map[string][]Series{
		"x_bucket":   buckets(counts{"1": 10, "2": 30, "4": 40, "+Inf": 40}),
		"cut_bucket": buckets(counts{"1": 10, "2": 30}),
		"all_bucket": buckets(counts{"1": 0, "+Inf": 5}),
	}}
	a := &querier{s: c, ctx: t.Context(), w: window}
	h := a.histogram("x")
	for q, expected := range map[float64]float64{0.25: 1, 0.5: 1.5, 0.75: 2, 1: 4} {
		if v := h.quantile(q); v != expected {
			t.Errorf("quantile %v: found %v; expected %v", q, v, expected)
		}
	}
	for v, expected := range map[float64]float64{0: 0, 0.5: 0.125, 1: 0.25, 3: 0.875, 4: 1, 9: 1} {
		if share := h.below(v); share != expected {
			t.Errorf("below %v: found %v; expected %v", v, share, expected)
		}
	}
	if h := a.histogram("cut"); h != nil {
		t.Errorf("a histogram without its last bucket: found %v", h)
	}
	if h := a.histogram("all"); h.quantile(0.9) != 1 || h.below(1) != 0 {
		t.Errorf("beyond all bounds: found %v, %v", h.quantile(0.9), h.below(1))
	}
}
