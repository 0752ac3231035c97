package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Window is the stretch of time that figures describe, and the objectives of a good answer in it.
type Window struct {
	To  time.Time
	For time.Duration
	SLO record.SLO
}

// Series is a time series: its labels, and its values at times in seconds since 1970. An instant query returns one
// value for each series.
type Series struct {
	Labels map[string]string
	Times  []float64
	Values []float64
}

// name returns the label by which people know what was measured.
func (s *Series) name() string {
	for _, label := range []string{"pod", "endpoint_name", "instance", "index", "name"} {
		if v := s.Labels[label]; v != "" {
			return v
		}
	}
	return ""
}

// Source answers PromQL.
type Source interface {
	// Instant returns the result of a query at a time.
	Instant(ctx context.Context, query string, at time.Time) ([]Series, error)
	// Range returns the results of a query from one time to another, in steps.
	Range(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]Series, error)
}

// gauges are the queries of figures, with $w for the window. Each names the metric of vLLM or llm-d before document
// 003's.
var gauges = []struct {
	name  diagnose.Name
	query string
}{
	{diagnose.Queue, "avg_over_time(vllm:num_requests_waiting[$w]) or avg_over_time(vllm_queue_length[$w])"},
	{diagnose.KVUse, "avg_over_time(vllm:kv_cache_usage_perc[$w]) or " +
		"avg_over_time(vllm_kv_cache_usage_percent[$w]) / 100"},
	// A batch is full where the number of running requests is its maximum most of the time.
	{diagnose.BatchUse, "quantile_over_time(0.5, vllm:num_requests_running[$w]) / " +
		"max_over_time(vllm:num_requests_running[$w])"},
	{diagnose.GPUUse, "avg_over_time(vllm_gpu_utilization_percent[$w]) / 100 or " +
		"avg_over_time(DCGM_FI_DEV_GPU_UTIL[$w]) / 100"},
	{diagnose.HitRate, "sum(rate(vllm:prefix_cache_hits_total[$w])) / " +
		"sum(rate(vllm:prefix_cache_queries_total[$w])) or avg(avg_over_time(vllm_kv_cache_hit_rate[$w]))"},
	{diagnose.Failures, "(sum(rate(llm_d_epp_request_error_total[$w])) or vector(0)) / " +
		"sum(rate(llm_d_epp_request_total[$w])) or " +
		`sum(increase(envoy_http_downstream_rq_xx{envoy_response_code_class="5"}[$w])) / ` +
		"sum(increase(envoy_http_downstream_rq_xx[$w]))"},
	{diagnose.IndexGot, "sum(increase(llm_d_router_epp_kv_cache_events_messages_received_total[$w])) or " +
		"sum(kv_cache_manager_total_blocks)"},
	{diagnose.IndexUse, `max by (pod) (container_memory_working_set_bytes{pod=~".*kv-cache-manager.*"}) / ` +
		`max by (pod) (container_spec_memory_limit_bytes{pod=~".*kv-cache-manager.*"} > 0)`},
}

// counters are the counters of complaints, with words that core/diagnose knows.
var counters = []struct{ text, query string }{
	{string(record.PrefillerBlocked) + ": llmd_sidecar_ssrf_blocked_requests_total",
		"sum(increase(llmd_sidecar_ssrf_blocked_requests_total[$w]))"},
	{"KV caches could not be fetched: vllm:nixl_num_failed_transfers_total",
		"sum(increase(vllm:nixl_num_failed_transfers_total[$w]))"},
	{"KV caches could not be fetched, not held here: vllm:nixl_num_kv_expired_reqs_total",
		"sum(increase(vllm:nixl_num_kv_expired_reqs_total[$w]))"},
	{string(record.ScrapeFailed) + ": metrics: llm_d_epp_datalayer_poll_errors_total",
		"sum(increase(llm_d_epp_datalayer_poll_errors_total[$w]))"},
	{"ext_proc_error: the picker is down", `count(max_over_time(up{job=~".*epp.*"}[$w]) == 0)`},
}

// Cluster asks for the facts of a cluster in a window.
func Cluster(ctx context.Context, s Source, w Window) (*diagnose.Facts, error) {
	a := &querier{s: s, ctx: ctx, w: w}
	f := &a.Facts
	for _, x := range a.ask("sum(increase(llm_d_epp_request_total[$w])) or " +
		"sum(increase(vllm:request_success_total[$w]))") {
		f.Requests = int(max(0, min(x.Values[0], 1<<40)))
	}
	for _, g := range gauges {
		for _, x := range a.ask(g.query) {
			a.add(g.name, x.Values[0], x.name(), "")
		}
	}
	for _, c := range counters {
		for _, x := range a.ask(c.query) {
			if n := int(math.Round(min(x.Values[0], 1<<40))); n > 0 {
				f.Complaints = append(f.Complaints, diagnose.Complaint{Text: c.text, Count: n, When: a.when()})
			}
		}
	}
	a.queue()
	a.balance()
	a.latencies()
	return f, a.err
}

// querier sends one query after another, until one fails.
type querier struct {
	collector
	s   Source
	ctx context.Context
	w   Window
	err error
}

func (a *querier) add(n diagnose.Name, v float64, where, when string) {
	a.collector.add(n, v, where, cmp.Or(when, a.when()))
}

// when returns the window in words.
func (a *querier) when() string {
	return fmt.Sprintf("in the %s to %s", a.w.For, a.w.To.UTC().Format(time.RFC3339))
}

func (a *querier) ask(query string) (list []Series) {
	query = strings.ReplaceAll(query, "$w", strconv.Itoa(int(a.w.For.Seconds()))+"s")
	if a.err == nil {
		list, a.err = a.s.Instant(a.ctx, query, a.w.To)
	}
	return list
}

// steps is the number of steps of a range query.
const steps = 120

// queue adds the longest queue with its moment, and the shortest average one.
func (a *querier) queue() {
	if a.err != nil {
		return
	}
	var list []Series
	list, a.err = a.s.Range(a.ctx, "vllm:num_requests_waiting or vllm_queue_length", a.w.To.Add(-a.w.For), a.w.To,
		max(a.w.For/steps, time.Second))
	peak, where, at := -1.0, "", 0.0
	for _, x := range list {
		for i, v := range x.Values {
			if v > peak {
				peak, where, at = v, x.name(), x.Times[i]
			}
		}
	}
	if peak >= 0 {
		a.add(diagnose.QueuePeak, peak, where, "at "+time.UnixMilli(int64(at*1e3)).UTC().Format(time.RFC3339))
	}
	least, n := math.Inf(1), 0
	for _, x := range a.Facts.Figures {
		if x.Name == diagnose.Queue {
			least = min(least, x.Value)
			n++
		}
	}
	if n > 1 {
		a.add(diagnose.QueueLeast, least, "", "")
	}
}

// balance adds how much more often the most chosen endpoint was picked than the average one.
func (a *querier) balance() {
	list := a.ask(`sum by (endpoint_name) (increase(llm_d_epp_scheduler_attempts_total{status="success"}[$w]))`)
	total := 0.0
	for _, x := range list {
		total += x.Values[0]
	}
	if len(list) > 1 && total > 0 {
		top := slices.MaxFunc(list, func(x, y Series) int { return cmp.Compare(x.Values[0], y.Values[0]) })
		a.add(diagnose.Balance, top.Values[0]*float64(len(list))/total, top.name(), "")
	}
}

// latencies adds the figures of histograms.
func (a *querier) latencies() {
	// Document 003's picker has a summary in place of the histogram.
	pick := a.histogram("llm_d_epp_scheduler_e2e_duration_seconds")
	if pick != nil {
		a.add(diagnose.Pick90, pick.quantile(0.9), "", "")
	} else {
		for _, x := range a.ask(`max(llmd_epp_scheduling_duration_seconds{quantile="0.9"})`) {
			a.add(diagnose.Pick90, x.Values[0], "", "")
		}
	}
	move := a.histogram("vllm:nixl_xfer_time_seconds")
	if a.Facts.Disaggregated = move != nil; move != nil {
		a.add(diagnose.Transfer90, move.quantile(0.9), "", "")
	}
	server := a.histogram("vllm:time_to_first_token_seconds")
	first := a.histogram("llm_d_epp_request_ttft_seconds")
	if first == nil {
		first = server
	}
	a.objectives(first)
	if first == nil || !(first.quantile(0.5) > 0) {
		return
	}
	whole := first.quantile(0.5)
	a.add(diagnose.Latency90, first.quantile(0.9), "", "")
	for _, x := range []struct {
		name diagnose.Name
		of   histogram
	}{{diagnose.QueueShare, a.histogram("vllm:request_queue_time_seconds")},
		{diagnose.WorkShare, a.histogram("vllm:request_prefill_time_seconds")}, {diagnose.PickShare, pick},
		{diagnose.MoveShare, move}} {
		if x.of != nil {
			a.add(x.name, min(x.of.quantile(0.5)/whole, 1), "", "")
		}
	}
	if server != nil && pick != nil {
		a.add(diagnose.WayShare, max(1-(server.quantile(0.5)+pick.quantile(0.5))/whole, 0), "", "")
	}
}

// objectives adds the shares of requests within the objectives. Histograms count each objective alone, so all of them
// together are kept by at most the smallest share.
func (a *querier) objectives(first histogram) {
	kept := 1.0
	for _, x := range []struct {
		bound  time.Duration
		missed diagnose.Name
		of     func() histogram
	}{{a.w.SLO.TTFT, diagnose.MissedTTFT, func() histogram { return first }},
		{a.w.SLO.TPOT, diagnose.MissedTPOT, func() histogram {
			return a.histogram("vllm:request_time_per_output_token_seconds")
		}},
		{a.w.SLO.E2E, "", func() histogram { return a.histogram("vllm:e2e_request_latency_seconds") }}} {
		if x.bound <= 0 {
			continue
		}
		h := x.of()
		if h == nil {
			continue
		}
		share := h.below(x.bound.Seconds())
		if kept = min(kept, share); x.missed != "" {
			a.add(x.missed, 1-share, "", "")
		}
	}
	if a.w.SLO.Given() && first != nil {
		a.add(diagnose.Attainment, kept, "", "")
	}
}

// histogram are the buckets of a histogram over the window, by their upper bounds, with cumulative counts. It is nil
// where nothing was counted.
type histogram [][2]float64

func (a *querier) histogram(name string) (h histogram) {
	for _, x := range a.ask("sum by (le) (increase(" + name + "_bucket[$w]))") {
		if le, err := strconv.ParseFloat(x.Labels["le"], 64); err == nil {
			h = append(h, [2]float64{le, x.Values[0]})
		}
	}
	machine.SortFunc(h, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
	if n := len(h); n < 2 || !math.IsInf(h[n-1][0], 1) || !(h[n-1][1] > 0) {
		return nil
	}
	return h
}

// quantile returns the value that a share of the observations does not exceed, linear within a bucket, as in
// Prometheus.
func (h histogram) quantile(q float64) float64 {
	rank, low, before := q*h[len(h)-1][1], 0.0, 0.0
	for _, b := range h {
		if b[1] >= rank {
			if math.IsInf(b[0], 1) || b[1] == before {
				return low
			}
			return low + (b[0]-low)*(rank-before)/(b[1]-before)
		}
		low, before = b[0], b[1]
	}
	return low
}

// below returns the share of the observations up to a value.
func (h histogram) below(v float64) float64 {
	total, low, before := h[len(h)-1][1], 0.0, 0.0
	for _, b := range h {
		if v < b[0] {
			if !math.IsInf(b[0], 1) {
				before += (b[1] - before) * (v - low) / (b[0] - low)
			}
			break
		}
		low, before = b[0], b[1]
	}
	return before / total
}
