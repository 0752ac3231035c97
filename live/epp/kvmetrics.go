package epp

import (
	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// kvMetrics are an index's metrics under the real EPP's names
// (llm_d_router_epp_kv_cache_*) and the older ones (kvcache_*).
type kvMetrics struct {
	source *kvSource

	messages, errors    *prometheus.CounterVec
	latency, oldLatency prometheus.Histogram
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
	m.messages = prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: kvNames + "events_messages_received_total",
			Help: "[ALPHA] Messages with KV events."}, []string{"pod_identifier"})
	m.errors = prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: kvNames + "events_zmq_errors_total",
			Help: "[ALPHA] Failures of the connections that KV events come over."},
		[]string{"operation", "pod_identifier"})
	m.latency = prometheus.NewHistogram(
		prometheus.HistogramOpts{Name: kvNames + "index_lookup_latency_seconds", Help: "[ALPHA] Time of a look-up.",
			Buckets: lookupBuckets})
	m.oldLatency = prometheus.NewHistogram(
		prometheus.HistogramOpts{Name: oldKVNames + "index_lookup_latency_seconds",
			Help: "[ALPHA] Time of a look-up." + older, Buckets: lookupBuckets})
	return m
}

func (m *kvMetrics) took(d machine.Time) {
	m.latency.Observe(d.Duration().Seconds())
	m.oldLatency.Observe(d.Duration().Seconds())
}

// identifier is what the real one calls a publisher: a pod that is dialled
// "namespace/name", all who connect by one name.
func (m *kvMetrics) identifier(hostPort string) string {
	if m.source.Sources.Bind != "" {
		return localSubscriber
	}
	if id, ok := m.source.dialled.Load(hostPort); ok {
		return id.(string)
	}
	return hostPort
}

func (m *kvMetrics) message(r *kvevents.Report) {
	pod := m.identifier(r.From.Pod)
	if r.Lost != "" {
		m.errors.WithLabelValues("replay", pod).Inc()
		return
	}
	m.messages.WithLabelValues(pod).Inc()
}

// left ends the series of a pod that is no longer dialled.
func (m *kvMetrics) left(pod string) {
	m.messages.DeleteLabelValues(pod)
	m.errors.DeletePartialMatch(prometheus.Labels{"pod_identifier": pod})
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
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(oldKVNames+old, "[ALPHA] "+help+older, nil, nil),
				kind, v)
		}
	}
	subscribers := 0
	if m.source.Sources.Bind != "" {
		subscribers++
	}
	subscribers += int(m.source.publisher.Load())
	var l dataproducer.LookupStats
	var x kvindex.Stats
	m.source.x.k.With(func(k *core.Machine, _ machine.Time) {
		l, x = m.source.Producer.Lookups(), k.KV(m.source.number).Stats()
	})
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	value("index_admissions_total", "index_admissions_total", "Blocks stored.", counter, float64(x.Admitted))
	value("index_evictions_total", "index_evictions_total", "Blocks removed.", counter,
		float64(x.Forwarded+x.Unexpected))
	value("index_lookup_requests_total", "index_lookup_requests_total", "Prompts looked up.", counter,
		float64(l.Requests))
	value("index_lookup_hits_total", "index_lookup_hits_total", "Blocks found on the pod with most.", counter,
		float64(l.Hits))
	value("index_max_pod_hit_count_total", "index_max_pod_hit_count_total", "The same.", counter, float64(l.Hits))
	value("events_dedup_removed_hashes_forwarded_total", "kvevents_dedup_removed_hashes_forwarded_total",
		"Removals that were not repetitions.", counter, float64(x.Forwarded))
	value("events_dedup_removed_hashes_suppressed_total", "kvevents_dedup_removed_hashes_suppressed_total",
		"Removals of blocks that were stored once more.", counter, float64(x.Suppressed))
	value("events_active_subscribers", "", "Publishers dialled, and one for the socket that is bound.", gauge,
		float64(subscribers))
	value("events_pool_capacity", "", "Workers configured for KV events; one goroutine does the work.", gauge,
		float64(m.source.Sources.Workers))
	value("events_pool_queue_depth", "", "Messages that wait for a worker.", gauge, 0)
}
