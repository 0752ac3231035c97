package epp

import (
	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// kvMetrics are an index's metrics under the real EPP's names and the older ones.
type kvMetrics struct {
	source *kvSource

	messages, errors    *prometheus.CounterVec
	latency, oldLatency prometheus.Histogram
}

// localSubscriber is the real EPP's name for the publishers that connect to it.
const localSubscriber = "local-subscriber"

func newKVMetrics(s *kvSource) *kvMetrics {
	counters := func(f *metric.Family) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	}
	f := metric.KVLookups
	return &kvMetrics{source: s, messages: counters(metric.KVMessages), errors: counters(metric.KVErrors),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}),
		oldLatency: prometheus.NewHistogram(
			prometheus.HistogramOpts{Name: f.Old, Help: f.Help + older, Buckets: f.Buckets})}
}

func (m *kvMetrics) took(d machine.Time) {
	m.latency.Observe(d.Duration().Seconds())
	m.oldLatency.Observe(d.Duration().Seconds())
}

// identifier returns the real EPP's name for a publisher: "namespace/name" of a pod that was dialled, and one name for
// all that connect.
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
	r := reading{out, map[string]*prometheus.Desc{}}
	for _, one := range []struct {
		of *metric.Family
		v  int
	}{{metric.KVAdmissions, int(x.Admitted)}, {metric.KVEvictions, int(x.Forwarded + x.Unexpected)},
		{metric.KVRequests, int(l.Requests)}, {metric.KVHits, int(l.Hits)}, {metric.KVMostHits, int(l.Hits)},
		{metric.KVForwarded, int(x.Forwarded)}, {metric.KVSuppressed, int(x.Suppressed)},
		{metric.KVSubscribers, subscribers}, {metric.KVWorkers, m.source.Sources.Workers}, {metric.KVWaiting, 0}} {
		r.send(one.of, float64(one.v))
	}
}
