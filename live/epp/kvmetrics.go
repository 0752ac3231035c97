package epp

import (
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// kvMetrics are an index's figures under the real EPP's names
// (llm_d_router_epp_kv_cache_*) and the older ones (kvcache_*).
type kvMetrics struct {
	source *kvSource

	admissions, evictions atomic.Uint64
	messages, errors      *prometheus.CounterVec
	latency, oldLatency   prometheus.Histogram
}

const (
	kvNames    = "llm_d_router_epp_kv_cache_"
	oldKVNames = "kvcache_"
)

// localSubscriber is how the real one names the publishers that connect to it.
const localSubscriber = "local-subscriber"

var lookupBuckets = []float64{1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, .1, .5, 1}

func newKVMetrics(s *kvSource) *kvMetrics {
	m := &kvMetrics{source: s}
	m.messages = prometheus.NewCounterVec(prometheus.CounterOpts{Name: kvNames + "events_messages_received_total", Help: "[ALPHA] Messages with KV events."}, []string{"pod_identifier"})
	m.errors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: kvNames + "events_zmq_errors_total", Help: "[ALPHA] Failures of the connections that KV events come over."}, []string{"operation", "pod_identifier"})
	m.latency = prometheus.NewHistogram(prometheus.HistogramOpts{Name: kvNames + "index_lookup_latency_seconds", Help: "[ALPHA] Time of a look-up.", Buckets: lookupBuckets})
	m.oldLatency = prometheus.NewHistogram(prometheus.HistogramOpts{Name: oldKVNames + "index_lookup_latency_seconds", Help: "[ALPHA] Time of a look-up." + older, Buckets: lookupBuckets})
	return m
}

func (m *kvMetrics) took(d machine.Time) {
	m.latency.Observe(d.Duration().Seconds())
	m.oldLatency.Observe(d.Duration().Seconds())
}

func (m *kvMetrics) event(e *kv.Event) {
	switch e.Kind {
	case kv.Stored:
		m.admissions.Add(uint64(len(e.Hashes)))
	case kv.Removed:
		m.evictions.Add(uint64(len(e.Hashes)))
	}
}

func (m *kvMetrics) message(r *kvevents.Report) {
	for i := range r.Events {
		m.event(&r.Events[i])
	}
	pod := localSubscriber
	if m.source.Sources.Bind == "" {
		pod, _, _ = net.SplitHostPort(r.From.Pod)
	}
	if r.Lost != "" {
		m.errors.WithLabelValues("replay", pod).Inc()
		return
	}
	m.messages.WithLabelValues(pod).Inc()
}

// Describe sends nothing: the producers' names and sources decide.
func (m *kvMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counts.
func (m *kvMetrics) Collect(out chan<- prometheus.Metric) {
	m.messages.Collect(out)
	m.errors.Collect(out)
	m.latency.Collect(out)
	m.oldLatency.Collect(out)
	value := func(name, old, help string, kind prometheus.ValueType, v float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(kvNames+name, "[ALPHA] "+help, nil, nil), kind, v)
		if old != "" {
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(oldKVNames+old, "[ALPHA] "+help+older, nil, nil), kind, v)
		}
	}
	subscribers := 0
	if m.source.Sources.Bind != "" {
		subscribers++
	}
	subscribers += int(m.source.publisher.Load())
	var l plugins.LookupStats
	m.source.x.k.With(func(*core.Machine, machine.Time) { l = m.source.Producer.Lookups() })
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	value("index_admissions_total", "index_admissions_total", "Blocks stored.", counter, float64(m.admissions.Load()))
	value("index_evictions_total", "index_evictions_total", "Blocks removed.", counter, float64(m.evictions.Load()))
	value("index_lookup_requests_total", "index_lookup_requests_total", "Prompts looked up.", counter, float64(l.Requests))
	value("index_lookup_hits_total", "index_lookup_hits_total", "Blocks found.", counter, float64(l.Hits))
	value("index_max_pod_hit_count_total", "index_max_pod_hit_count_total", "Blocks of the longest prefixes found.", counter, float64(l.MaxHits))
	value("events_dedup_removed_hashes_forwarded_total", "kvevents_dedup_removed_hashes_forwarded_total", "Removals that took effect.", counter, float64(m.evictions.Load()))
	value("events_dedup_removed_hashes_suppressed_total", "kvevents_dedup_removed_hashes_suppressed_total", "Removals that were repetitions.", counter, 0)
	value("events_active_subscribers", "", "Publishers dialled, and one for the socket that is bound.", gauge, float64(subscribers))
	value("events_pool_capacity", "", "Workers configured for KV events; one goroutine does the work.", gauge, float64(m.source.Sources.Workers))
	value("events_pool_queue_depth", "", "Messages that wait for a worker.", gauge, 0)
}
