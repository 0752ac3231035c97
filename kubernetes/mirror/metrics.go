package mirror

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Metrics show whether objects are the API server's. A nil Metrics counts nothing.
type Metrics struct {
	failures, refused, age *prometheus.Desc

	mu    sync.Mutex
	kinds map[schema.GroupVersionResource]*kindMetrics
}

type kindMetrics struct {
	failures, refused int
	since             time.Time // of the first failure after a success; zero: the API server answers
}

// NewMetrics returns Metrics, which are a prometheus.Collector.
func NewMetrics() *Metrics {
	labels := []string{"resource"}
	return &Metrics{kinds: map[schema.GroupVersionResource]*kindMetrics{},
		failures: prometheus.NewDesc("windtunnel_objects_failures_total",
			"Lists and watches of Kubernetes objects that failed.", labels, nil),
		refused: prometheus.NewDesc("windtunnel_objects_refused",
			"Objects with a mistake, whose last good state counts.", labels, nil),
		age: prometheus.NewDesc("windtunnel_objects_age_seconds",
			"Time since the API server stopped answering; 0 while it answers.", labels, nil)}
}

// of returns the metrics of a resource, with mu locked.
func (m *Metrics) of(r schema.GroupVersionResource) *kindMetrics {
	if m.kinds[r] == nil {
		m.kinds[r] = &kindMetrics{}
	}
	return m.kinds[r]
}

// asked counts the outcome of a list, or of the beginning of a watch.
func (m *Metrics) asked(r schema.GroupVersionResource, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.of(r)
	switch {
	case err == nil:
		k.since = time.Time{}
	default:
		if k.failures++; k.since.IsZero() {
			k.since = time.Now()
		}
	}
}

// refuse counts the refused objects of some resources.
func (m *Metrics) refuse(of map[schema.GroupVersionResource]bool, texts map[shard]map[string]entry) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range of {
		m.of(r).refused = 0
	}
	for s, entries := range texts {
		for _, e := range entries {
			if of[s.resource] && e.refused {
				m.of(s.resource).refused++
			}
		}
	}
}

// Page serves the Metrics alone, at /metrics.
func (m *Metrics) Page() *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.failures
	to <- m.refused
	to <- m.age
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, k := range m.kinds {
		age := 0.0
		if !k.since.IsZero() {
			age = time.Since(k.since).Seconds()
		}
		name := r.GroupResource().String()
		to <- prometheus.MustNewConstMetric(m.failures, prometheus.CounterValue, float64(k.failures), name)
		to <- prometheus.MustNewConstMetric(m.refused, prometheus.GaugeValue, float64(k.refused), name)
		to <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue, age, name)
	}
}
