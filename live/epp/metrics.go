package epp

import "github.com/prometheus/client_golang/prometheus"

// metrics are the server's own figures, under the real EPP's names.
type metrics struct {
	inflight   prometheus.Gauge
	processing prometheus.Histogram
}

func newMetrics(r *prometheus.Registry) *metrics {
	m := &metrics{
		inflight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "llm_d_epp_extproc_streams_inflight",
			Help: "ext_proc streams that have not ended."}),
		processing: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "llm_d_epp_request_processing_duration_seconds",
			Help:    "From the request's last byte to the first message out.",
			Buckets: []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}}),
	}
	r.MustRegister(m.inflight, m.processing)
	return m
}
