package kvmanager

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// metrics are document 003's, under its names, and a few that it lacks (drops).
type metrics struct {
	registry  *prometheus.Registry
	received  *prometheus.CounterVec
	duration  prometheus.Gauge
	requests  prometheus.Counter
	scoreTime prometheus.Summary
	dropped   *prometheus.CounterVec
	lag       prometheus.Summary
}

func newMetrics(m *Manager) *metrics {
	name := func(s string) string { return "kv_cache_manager_" + s }
	x := &metrics{
		registry: prometheus.NewRegistry(),
		received: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: name("events_received_total"), Help: "KV events received, by type."},
			[]string{"type"}),
		duration: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: name("event_processing_duration_seconds"),
				Help: "Time that the latest message of events took."}),
		requests: prometheus.NewCounter(
			prometheus.CounterOpts{Name: name("score_requests_total"), Help: "Score requests answered."}),
		scoreTime: prometheus.NewSummary(
			prometheus.SummaryOpts{Name: name("score_request_duration_seconds"), Help: "Time that score requests took.",
				Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}}),
		lag: prometheus.NewSummary(
			prometheus.SummaryOpts{Name: name("event_lag_seconds"),
				Help:       "Time from a message's timestamp to its effect on the index.",
				Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}}),
		dropped: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: name("messages_dropped_total"),
				Help: "Messages that were dropped, and losses, by reason."}, []string{"reason"}),
	}
	for _, kind := range []kv.Kind{kv.Stored, kv.Removed, kv.Updated} { // visible before the first event
		x.received.WithLabelValues(kind.Document())
	}
	x.registry.MustRegister(x.received, x.duration, x.requests, x.scoreTime, x.dropped, x.lag, &indexCollector{m})
	return x
}

func (x *metrics) processed(r *kvevents.Report) {
	var n [kv.Heartbeat + 1]int
	for i := range r.Events {
		n[r.Events[i].Kind]++
	}
	for kind, count := range n {
		if count > 0 {
			x.received.WithLabelValues(kv.Kind(kind).Document()).Add(float64(count))
		}
	}
	x.duration.Set(r.Took.Seconds())
	if r.Lag > 0 {
		x.lag.Observe(r.Lag.Seconds())
	}
}

// indexCollector reads the index's metrics at each scrape.
type indexCollector struct{ m *Manager }

var (
	totalBlocks = prometheus.NewDesc("kv_cache_manager_total_blocks", "Pairs of block and pod in the index.", nil,
		nil)
	uniqueBlocks  = prometheus.NewDesc("kv_cache_manager_unique_blocks", "Different blocks in the index.", nil, nil)
	podsTracked   = prometheus.NewDesc("kv_cache_manager_pods_tracked", "Pods in the index.", nil, nil)
	globalHitRate = prometheus.NewDesc("kv_cache_manager_global_hit_rate",
		"Blocks found over blocks asked for, of all score requests.", nil, nil)
	podHitRate = prometheus.NewDesc("kv_cache_manager_hit_rate",
		"Blocks found over blocks asked for, of the requests for which the pod was recommended.", []string{"pod"}, nil)
	utilization = prometheus.NewDesc("kv_cache_manager_cache_utilization",
		"Blocks over the pod's capacity, or over the most it ever held.", []string{"pod"}, nil)
	evictionRate = prometheus.NewDesc("kv_cache_manager_eviction_rate",
		"Blocks per second that the pod removed, over the last minute.", []string{"pod"}, nil)
	podsDisplaced = prometheus.NewDesc("kv_cache_manager_pods_displaced_total",
		"Pods that were dropped because there were too many.", nil, nil)
	eventsIgnored = prometheus.NewDesc("kv_cache_manager_events_ignored_total",
		"Events, or hashes in them, without effect on the index, by reason.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (c *indexCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{totalBlocks, uniqueBlocks, podsTracked, globalHitRate, podHitRate, utilization,
		evictionRate, podsDisplaced, eventsIgnored} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *indexCollector) Collect(ch chan<- prometheus.Metric) {
	var state kvindex.State
	var stats kvindex.Stats
	var pods []kvindex.PodInfo
	if !c.m.index.Do(func(_ machine.Time, ix *kvindex.Index) {
		state, stats = ix.State(), ix.Stats()
		for _, name := range ix.PodNames() {
			p, _ := ix.Pod(name)
			pods = append(pods, p)
		}
	}) {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(totalBlocks, float64(state.Pairs))
	gauge(uniqueBlocks, float64(state.Blocks))
	gauge(podsTracked, float64(state.Pods))
	gauge(globalHitRate, state.HitRate)
	for _, p := range pods {
		gauge(podHitRate, p.HitRate, p.Pod)
		gauge(utilization, p.Utilization, p.Pod)
		gauge(evictionRate, p.EvictionRate, p.Pod)
	}
	ch <- prometheus.MustNewConstMetric(podsDisplaced, prometheus.CounterValue, float64(stats.DisplacedPods))
	for _, r := range []struct {
		reason string
		n      uint64
	}{{"unknown_parent", stats.UnknownParent}, {"unknown_removed", stats.UnknownRemoved},
		{"unresolved", stats.Unresolved}, {"too_short", stats.TooShort},
		{"other_attention", stats.OtherAttention}, {"too_many_media", stats.TooManyMedia}} {
		ch <- prometheus.MustNewConstMetric(eventsIgnored, prometheus.CounterValue, float64(r.n), r.reason)
	}
}
